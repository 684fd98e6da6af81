package main

import (
	"context"
	"fmt"
	"io"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newImageCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build the image that sessions run in",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.newImageBuildCmd())
	return cmd
}

func (a *app) newImageBuildCmd() *cobra.Command {
	opts := &images.Options{}
	var base string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the image: Python 3.12, bash, git, ripgrep, SBCL",
		Long: `Builds the image that sessions use when none is named, unless it is there.
Where a container registry answers it stands on docker.io/library/python:3.12-slim,
else on a base made from Debian's packages and a relocatable CPython.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Base = images.Base(base)
			return a.runImageBuild(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.Tag, "tag", "", "`NAME` of the image (default "+images.Default+")")
	cmd.Flags().StringVar(&base, "base", "", "`KIND`: registry or debian (default: the registry's where one answers)")
	cmd.Flags().BoolVar(&opts.Rebuild, "rebuild", false, "build even where it is there, with fresh packages")
	cmd.Flags().StringVar(&opts.Mirror, "mirror", "", "`URL` of a Debian mirror, for the debian base")
	return cmd
}

func (a *app) runImageBuild(ctx context.Context, opts *images.Options) error {
	switch opts.Base {
	case images.BaseAuto, images.BaseRegistry, images.BaseDebian:
	default:
		return usageError{fmt.Errorf("--base is %q; it must be registry or debian", opts.Base)}
	}
	if err := checkImage("tag", opts.Tag); err != nil {
		return err
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	builder, ok := m.Backend().(images.Builder)
	if !ok {
		return tool.Errorf(tool.Unsupported, "this backend builds no images")
	}
	opts.Progress = func(line string) { fmt.Fprintln(a.err, printable(line)) }
	report, err := images.Build(ctx, builder, opts)
	if err != nil {
		return buildError(err)
	}
	return a.print(report, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s, base %s, %s\n", report.Image, units.HumanSize(float64(report.Size)), report.Base, report.Duration.Round(time.Second))
	})
}

// buildError keeps the text of a failed build: it is for the person at the
// terminal, who needs the package manager's or the network's own words.
func buildError(err error) error {
	if tool.KindOf(err) != tool.Internal {
		return err
	}
	return tool.Errorf(tool.Unavailable, "%s", err.Error()).Because(err)
}

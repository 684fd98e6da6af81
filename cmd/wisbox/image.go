package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newImageCmd() *cobra.Command {
	return group("image", "Build the image that sessions run in, list and remove those of other versions",
		a.newImageBuildCmd(), a.newImageListCmd(), a.newImagePruneCmd())
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
	return withBackend(ctx, a, func(_ *wisbox.Manager, builder images.Builder) error {
		opts.Progress = func(line string) { fmt.Fprintln(a.err, printable(line)) }
		report, err := images.Build(ctx, builder, opts)
		if err != nil {
			return buildError(err)
		}
		return a.print(report, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s, base %s, %s\n", report.Image, units.HumanSize(float64(report.Size)), report.Base, report.Duration.Round(time.Second))
		})
	})
}

// withBackend does something with a backend that has images of the kind asked for.
func withBackend[B any](ctx context.Context, a *app, do func(*wisbox.Manager, B) error) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	backend, ok := m.Backend().(B)
	if !ok {
		return tool.Errorf(tool.Unsupported, "this backend has no images")
	}
	return toolerr.Of(do(m, backend))
}

// buildError keeps the text of a failed build: it is for the person at the
// terminal, who needs the package manager's or the network's own words.
func buildError(err error) error {
	if tool.KindOf(err) != tool.Internal {
		return err
	}
	return tool.Errorf(tool.Unavailable, "%s", err.Error()).Because(err)
}

func (a *app) newImageListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List wisbox's images in Podman's store",
		Long: `Lists the images that wisbox image build has made, of this version (current) and of
others (old), and those that were made from them or have another name (other), with
the kept sessions that were created with each.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runImageList(cmd.Context()) },
	}
}

func (a *app) runImageList(ctx context.Context) error {
	return withBackend(ctx, a, func(m *wisbox.Manager, store images.Store) error {
		sessions, err := m.SessionImages(ctx)
		if err != nil {
			return err
		}
		found, err := images.List(ctx, store, sessions)
		if err != nil {
			return err
		}
		return a.print(map[string]any{"images": found}, func(w io.Writer) { printImages(w, found) })
	})
}

func printImages(w io.Writer, found []images.Image) {
	if len(found) == 0 {
		fmt.Fprintln(w, "there are no images; make one with: wisbox image build")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "IMAGE\tID\tSTATE\tSIZE\tCREATED\tSESSIONS")
	for _, i := range found {
		fmt.Fprintf(tw, "%s\t%.12s\t%s\t%s\t%s\t%s\n", imageName(i), i.ID, i.State, units.HumanSize(float64(i.Size)),
			i.Created.Local().Format(time.DateTime), strings.Join(i.UsedBy, ", "))
	}
	_ = tw.Flush()
}

func imageName(i images.Image) string {
	if i.Name == "" {
		return "<none>"
	}
	return printable(i.Name)
}

func (a *app) newImagePruneCmd() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the images of other versions of wisbox",
		Long: `Removes the images that other versions of wisbox have made, as before an upgrade.
What a container or a kept session of this state root has stays, and so does every
image that has another name than wisbox image build gives. A wisbox of another
version that is still used on this machine builds its own again.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runImagePrune(cmd.Context(), dryRun) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell what would go, but for what containers have")
	return cmd
}

func (a *app) runImagePrune(ctx context.Context, dryRun bool) error {
	return withBackend(ctx, a, func(m *wisbox.Manager, store images.Store) error {
		sessions, err := m.SessionImages(ctx)
		if err != nil {
			return err
		}
		done, err := images.Prune(ctx, store, sessions, dryRun)
		if done == nil {
			return err
		}
		return errors.Join(err, a.print(done, func(w io.Writer) { printPruned(w, done) }))
	})
}

func printPruned(w io.Writer, done *images.Pruned) {
	for _, i := range done.Removed {
		fmt.Fprintf(w, "%s  %s\n", imageName(i), units.HumanSize(float64(i.Size)))
	}
	for _, i := range done.Kept {
		fmt.Fprintf(w, "kept %s: %s\n", imageName(i), i.Kept)
	}
	if len(done.Removed) == 0 {
		fmt.Fprintln(w, "nothing to remove")
	}
}

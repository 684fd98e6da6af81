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
	return group("image", "Build, pull, list and remove the images that sessions run in",
		a.newImageBuildCmd(), a.newImagePullCmd(), a.newImageListCmd(), a.newImagePruneCmd())
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

func (a *app) newImageListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images that sessions can run in",
		Long: `Lists the images of Podman's store, the newest first, with the kept sessions that were
created with each. KIND says what an image is:

  default   what sessions run in without --image
  base      what the default one stands on, where no registry answered
  preset    made by wisbox image build --with
  built     made by wisbox image build -f
  pulled    its name begins with a registry
  other     made on this machine by other means

STATE is current or old for what versions of wisbox make for themselves.`,
		Example: `  wisbox image list
  wisbox image list --json`,
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
	fmt.Fprintln(tw, "IMAGE\tID\tKIND\tSTATE\tSIZE\tCREATED\tSESSIONS")
	for _, i := range found {
		state := string(i.State)
		if i.State == images.Other {
			state = "" // it has none: nothing of wisbox makes it old
		}
		fmt.Fprintf(tw, "%s\t%.12s\t%s\t%s\t%s\t%s\t%s\n", imageName(i), i.ID, i.Kind, state, units.HumanSize(float64(i.Size)),
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
	opts := &images.PruneOptions{}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the images of other versions of wisbox",
		Long: `Removes the images that other versions of wisbox have made, as before an upgrade;
with --all those of wisbox image build --with and -f, too. What a container or a kept
session of this state root has stays. So does every image that wisbox didn't make,
those it has pulled (podman rmi removes them), and what somebody gave another name.`,
		Example: `  wisbox image prune --dry-run
  wisbox image prune --all`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runImagePrune(cmd.Context(), opts) },
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only say what would go; it isn't known then what containers have")
	cmd.Flags().BoolVar(&opts.All, "all", false, "remove presets and what was built with -f, too, where no session has them")
	return cmd
}

func (a *app) runImagePrune(ctx context.Context, opts *images.PruneOptions) error {
	return withBackend(ctx, a, func(m *wisbox.Manager, store images.Store) error {
		sessions, err := m.SessionImages(ctx)
		if err != nil {
			return err
		}
		done, err := images.Prune(ctx, store, sessions, opts)
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

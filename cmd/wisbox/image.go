package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newImageCmd() *cobra.Command {
	return group("image", "Build, pull, list and remove the images that sessions run in",
		a.newImageBuildCmd(), a.newImagePullCmd(), a.newImageWrapCmd(), a.newImageListCmd(), a.newImagePruneCmd())
}

// withBackend calls do with the backend, which must be a B.
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

  default   the image of sessions without --image
  base      the base of the default image, if no registry answered
  preset    made by wisbox image build --with
  built     made by wisbox image build -f or wrap
  pulled    its name begins with a registry
  other     made on this machine by other means

STATE is current or old for images that wisbox itself makes.`,
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
	tw := newTable(w, "IMAGE", "ID", "KIND", "STATE", "SIZE", "CREATED", "SESSIONS")
	for _, i := range found {
		state := string(i.State)
		if i.State == images.Other {
			state = "" // no state: wisbox can't make it old
		}
		tw.row(imageName(i), fmt.Sprintf("%.12s", i.ID), i.Kind, state, units.HumanSize(float64(i.Size)),
			i.Created.Local().Format(time.DateTime), strings.Join(i.UsedBy, ", "))
	}
	_ = tw.Flush()
}

func imageName(i images.Image) string {
	if i.Name == "" {
		return "<none>"
	}
	return streams.Printable(i.Name)
}

func (a *app) newImagePruneCmd() *cobra.Command {
	opts := &images.PruneOptions{}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove images that other versions of wisbox built",
		Long: `Removes images that other versions of wisbox built, for example after an upgrade. With
--all, also removes images that wisbox image build made with --with or -f, or image wrap.
Images stay if a container or a kept session of this state root uses them, if they have
another name, or if wisbox pulled them or didn't build them (podman rmi removes these).`,
		Example: `  wisbox image prune --dry-run
  wisbox image prune --all`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runImagePrune(cmd.Context(), opts) },
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only show what would be removed, which may include images that containers use")
	cmd.Flags().BoolVar(&opts.All, "all", false, "also remove presets and images built with -f or wrap, if no session uses them")
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

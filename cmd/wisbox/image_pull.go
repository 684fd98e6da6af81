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
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/sandbox"
)

// pulled is the output of image pull.
type pulled struct {
	Image    string        `json:"image"`
	ID       string        `json:"id"`
	Size     int64         `json:"size_bytes"`
	Duration time.Duration `json:"duration_ns"`
}

func (a *app) newImagePullCmd() *cobra.Command {
	verify := true
	cmd := &cobra.Command{
		Use:   "pull NAME",
		Short: "Pull an image from a registry",
		Long: `Fetches an image into Podman's store, for --image. The name begins with its registry:
docker.io/library/node:22, ghcr.io/owner/name:tag. wisbox uses Podman's logins (podman
login) and its registries.conf, which lists the registries that need no TLS.`,
		Example: `  wisbox image pull docker.io/library/node:22
  wisbox image pull --tls-verify=false localhost:5000/mine:1
  wisbox run --image docker.io/library/node:22 --pull always -- node --version`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runImagePull(cmd.Context(), args[0], &sandbox.PullOptions{Insecure: !verify})
		},
	}
	cmd.Flags().BoolVar(&verify, "tls-verify", true, "require TLS and a valid certificate of the registry; =false only if you trust the network to it")
	return cmd
}

func (a *app) runImagePull(ctx context.Context, name string, opts *sandbox.PullOptions) error {
	if err := checkImage("NAME", name); err != nil {
		return err
	}
	if images.Registry(name) == "" {
		return noRegistry(name)
	}
	return withBackend(ctx, a, func(_ *wisbox.Manager, store sandbox.ImagePuller) error {
		start := time.Now()
		show := func(step string, done bool) { a.showPull(wisbox.PullProgress{Image: name, Step: step, Done: done}) }
		show("", false)
		opts.Progress = func(line string) { show(line, false) }
		err := store.PullImage(ctx, name, opts)
		show("", true)
		if err != nil {
			return err
		}
		info, err := store.ImageInfo(ctx, name)
		if err != nil {
			return err
		}
		if p, ok := store.(images.Preparer); ok {
			err = p.PrepareImage(ctx, name)
		}
		done := pulled{Image: name, ID: info.ID, Size: info.Size, Duration: time.Since(start)}
		return errors.Join(err, a.print(done, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s, %s\n", done.Image, units.HumanSize(float64(done.Size)), done.Duration.Round(time.Second))
		}))
	})
}

func noRegistry(name string) error {
	if strings.HasPrefix(name, "localhost/") {
		return usageError{fmt.Errorf("%s is an image of this machine, which no registry has; build it with: wisbox image build", name)}
	}
	return usageError{fmt.Errorf("%s names no registry; write one in front, as %s", name, images.Suggest(name))}
}

// showPull reports the progress of a pull on stderr: on a terminal in one line, which it removes at the end.
func (a *app) showPull(p wisbox.PullProgress) {
	line := "pulling " + p.Image
	if p.Step != "" {
		line += ": " + p.Step
	}
	s := a.newStatus()
	if p.Done {
		s.end(nil)
		return
	}
	s.say(line)
}

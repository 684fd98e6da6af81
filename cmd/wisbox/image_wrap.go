package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newImageWrapCmd() *cobra.Command {
	opts := &images.WrapOptions{}
	cmd := &cobra.Command{
		Use:   "wrap [IMAGE]",
		Short: "Make an image for sessions on Kubernetes out of any image",
		Long: `Adds this wisbox to an image at /usr/local/bin/wisbox, replacing an existing file. A
session's Pod needs nothing else. The image needs no shell, and keeps its environment; it
must be for this machine's architecture. Without IMAGE, wraps the default image of
sessions. Wrap images again after an update of wisbox. If Python in WebAssembly is installed
here (wisbox lab wasm install), it is added below ` + wasm.SharedDir + `, with its compiled code.

Prints the new image's name. Push the image to a registry that the cluster's nodes reach, or
load it into the nodes; see docs/cluster.md.`,
		Example: `  wisbox image wrap
  wisbox image wrap docker.io/library/node:22
  wisbox image wrap docker.io/library/node:22 -t registry.example.com/node:wisbox
  wisbox --remote kube:kind-kind/wisbox run --image localhost/wisbox-pod-node:22 -- node -v`,
		Args: exactArgs("[IMAGE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				opts.Image = args[0]
				if args[0] == "" {
					return usageError{fmt.Errorf("IMAGE is empty; name an image, or leave it out for the default image")}
				}
			}
			return a.runImageWrap(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVarP(&opts.Tag, "tag", "t", "", "`NAME` of the new image (default: localhost/wisbox-pod-NAME:TAG, from that of IMAGE)")
	cmd.Flags().StringVar(&opts.Pull, "pull", string(wisbox.PullMissing), "`WHEN` to pull IMAGE from its registry: missing, always or never")
	return cmd
}

func (a *app) runImageWrap(ctx context.Context, opts *images.WrapOptions) error {
	for field, name := range map[string]string{"IMAGE": opts.Image, "--tag": opts.Tag} {
		if err := checkImage(field, name); err != nil {
			return err
		}
	}
	switch wisbox.Pull(opts.Pull) {
	case wisbox.PullMissing, wisbox.PullAlways, wisbox.PullNever:
	default:
		return usageError{fmt.Errorf("--pull is %q; it must be missing, always or never", opts.Pull)}
	}
	if err := withKubernetes(); err != nil { // the image has this very program, and a gateway needs the client
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return tool.Errorf(tool.Unavailable, "wisbox can't find its own program file; start it by its path").Because(err)
	}
	opts.Program = program
	opts.Shared, opts.ShareDir = wasm.InstalledFiles(), wasm.SharedDir
	return withBackend(ctx, a, func(_ *wisbox.Manager, b images.Builder) error {
		var report images.Report
		err := a.watched(func(say func(string)) (err error) {
			opts.Progress = say
			if opts.Shared != nil {
				say("compiling Python in WebAssembly, if this wisbox hasn't yet")
			}
			if opts.Attached, err = wasm.PreparedFiles(ctx, &wasm.Options{}); err != nil {
				return err
			}
			report, err = images.Wrap(ctx, b, opts)
			return err
		})
		if err != nil {
			return buildError(err)
		}
		return a.print(report, func(w io.Writer) {
			printWrapped(w, report)
			if opts.Shared == nil {
				fmt.Fprintln(w, "without Python in WebAssembly; to add it: wisbox lab wasm install, and wrap the image again")
			}
		})
	})
}

func printWrapped(w io.Writer, r images.Report) {
	printBuilt(w, r)
	if images.Registry(r.Image) != "" {
		fmt.Fprintf(w, "next: podman push %s\n", r.Image)
		return
	}
	fmt.Fprintf(w, "next: podman push %s REGISTRY/NAME:TAG\n", r.Image)
	fmt.Fprintf(w, "  or: podman save -o pod.tar %s, and load that into the nodes, as kind load image-archive pod.tar\n", r.Image)
}

package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/images"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version = "dev"

// build is what `wisbox version` tells.
type build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Commit  string `json:"commit,omitempty"`
	Image   string `json:"image"`
}

func (a *app) newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := build{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Image: images.Default}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						b.Commit = s.Value
					}
				}
			}
			return a.print(b, func(w io.Writer) {
				fmt.Fprintf(w, "wisbox %s (%s, %s/%s)\nimage  %s\n", b.Version, b.Go, b.OS, b.Arch, b.Image)
			})
		},
	}
}

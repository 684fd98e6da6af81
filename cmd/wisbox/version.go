package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/images"
)

// version and commit are set by the build: -ldflags "-X main.version=v0.1.0 -X main.commit=…".
var (
	version = "dev"
	commit  = ""
)

// build is the output of `wisbox version`.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Image   string `json:"image"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (a *app) newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Prints the version and the default image of sessions. --json prints:

version   of wisbox, as git describes the commit; dev for a build that set none
commit    the commit that it was built from; missing if unknown
image     the default image of sessions, as wisbox image build tags it
go        the version of Go that built it
os, arch  the platform that it was built for`,
		Example: `  wisbox version
  wisbox version --json | jq -r .image`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := build{Version: version, Commit: commitOf(commit), Image: images.Default, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			return a.print(b, func(w io.Writer) {
				fmt.Fprintf(w, "wisbox %s (%s, %s/%s)\nimage  %s\n", b.Version, b.Go, b.OS, b.Arch, b.Image)
			})
		},
	}
}

// commitOf returns the commit that the build set, or that Go found in the repository.
func commitOf(set string) string {
	info, ok := debug.ReadBuildInfo()
	if set != "" || !ok {
		return set
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

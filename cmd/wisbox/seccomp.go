package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// sessionOptions turns the flags into session options and says aloud where they
// make a session weaker.
func (a *app) sessionOptions(f *sessionFlags) (*wisbox.SessionOptions, error) {
	opts, err := f.options()
	if err != nil || f.seccomp == "" {
		return opts, err
	}
	if opts.Seccomp, err = filepath.Abs(f.seccomp); err != nil {
		return nil, tool.Errorf(tool.Invalid, "the path of --seccomp can't be made absolute").Because(err)
	}
	gap, err := podman.CheckSeccomp(opts.Seccomp)
	if err != nil {
		says := strings.TrimPrefix(err.Error(), sandbox.ErrInvalid.Error()+": ")
		return nil, asUsage(tool.Errorf(tool.Invalid, "--seccomp %q: %s", f.seccomp, says).In("seccomp").Because(err))
	}
	if gap != "" {
		fmt.Fprintf(a.err, "wisbox: %s\n", printable(gap))
	}
	return opts, nil
}

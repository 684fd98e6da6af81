package main

import (
	"fmt"
	"path/filepath"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/tool"
)

// sessionOptions returns the session options for the flags. It warns about flags that make a
// session weaker.
func (a *app) sessionOptions(f *sessionFlags) (*wisbox.SessionOptions, error) {
	if err := a.configure(f); err != nil {
		return nil, err
	}
	opts, err := f.options()
	if err != nil {
		return nil, err
	}
	opts.OnPull = a.showPull
	if f.seccomp == "" {
		return opts, nil
	}
	if opts.Seccomp, err = filepath.Abs(f.seccomp); err != nil {
		return nil, tool.Errorf(tool.Invalid, "the path of --seccomp can't be made absolute").Because(err)
	}
	gap, err := podman.CheckSeccomp(opts.Seccomp)
	if err != nil {
		e := tool.AsError(toolerr.Of(err))
		return nil, asUsage(tool.Errorf(e.Kind, "--seccomp %q: %s", f.seccomp, e.Message).In("seccomp").Because(err))
	}
	if gap != "" {
		fmt.Fprintf(a.err, "wisbox: %s\n", streams.Printable(gap))
	}
	return opts, nil
}

package main

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

var pythonTable = table{
	name: "python", title: "What evaluating Python costs",
	about: "Medians (and p99), ours through the whole of `Session.Call` with all controls and the log on. The base is the host's fastest interpreter itself, no shim, with warm caches.",
	parts: []func(*bench, context.Context) error{(*bench).evaluations},
}

func (b *bench) evaluations(ctx context.Context) error {
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	fresh := func() error { return tool(ctx, s, "evaluate_python", `{"code":"1+1"}`) }
	python, err := hostPython()
	if err != nil {
		return err
	}
	host := func() error { return exec.Command(python, "-I", "-c", "1+1").Run() }
	ours, base, err := alternate(b.n, fresh, host)
	if err != nil {
		return err
	}
	b.add(faster("`evaluate_python` of `1+1`, fresh", "`python3 -I -c 1+1` on the host", ours, base, 4))
	kept, base, err := alternate(b.n, func() error { return tool(ctx, s, "evaluate_python", `{"code":"1+1","state":"kept"}`) }, host)
	if err != nil {
		return err
	}
	b.add(faster("the same, kept", "the same", kept, base, 10))
	return nil
}

// hostPython is the fastest interpreter of the host: what stands first on PATH
// may be a shim, or a build of its own that starts slowly.
func hostPython() (string, error) {
	out, err := exec.Command("python3", "-I", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return "", err
	}
	best, least := "", time.Duration(0)
	for _, path := range []string{strings.TrimSpace(string(out)), "/usr/bin/python3"} {
		took, err := measure(10, func() error { return exec.Command(path, "-I", "-c", "1+1").Run() })
		if err == nil && (best == "" || took.median() < least) {
			best, least = path, took.median()
		}
	}
	return best, nil
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

var grepTable = table{
	name: "grep", title: "How much grep searches in a second",
	about: "Medians (and p99), ours through the whole of `Session.Call`, over one tree of 50,000 files and 500 MB in a session's workspace. " +
		"GNU grep searches it at its place on the host, in one thread and in the locale C, in which it is fastest; both find as many lines. Caches are warm. The page about files has the same next to ripgrep.",
	parts: []func(*bench, context.Context) error{(*bench).throughput},
}

func (b *bench) throughput(ctx context.Context) error {
	const files, size = 50_000, 10_000
	s, err := b.m.Open(ctx, &wisbox.SessionOptions{Limits: sandbox.Limits{Disk: 4 << 30}})
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if err := makeTree(s.WorkspacePath(), files, size); err != nil {
		return err
	}
	for _, one := range []struct{ what, pattern string }{
		{"a literal", `xylophone_needle`},
		{"a regular expression without a literal", `[a-z]{9}_[a-z]{6} = [0-9]{4}`},
	} {
		gnu := func() *exec.Cmd {
			cmd := exec.Command("grep", "-r", "-n", "-E", one.pattern, s.WorkspacePath())
			cmd.Env = append(cmd.Environ(), "LC_ALL=C")
			return cmd
		}
		args, err := json.Marshal(map[string]string{"pattern": one.pattern})
		if err != nil {
			return err
		}
		if err := sameLines(ctx, s, string(args), gnu()); err != nil {
			return err
		}
		ours, base, err := alternate(min(b.n, fileCalls), func() error { return tool(ctx, s, "grep", string(args)) }, func() error { return gnu().Run() })
		if err != nil {
			return err
		}
		b.add(faster("`grep` of "+one.what, "GNU `grep -r`", ours, base, 1))
		b.notes = append(b.notes, fmt.Sprintf("%s: %.0f MB a second, GNU grep %.0f", one.what,
			files*size/1e6/ours.Median().Seconds(), files*size/1e6/base.Median().Seconds()))
	}
	return nil
}

// sameLines returns an error unless both find the same number of lines.
func sameLines(ctx context.Context, s *wisbox.Session, args string, native *exec.Cmd) error {
	res, err := s.Call(ctx, "grep", json.RawMessage(args))
	if err != nil {
		return err
	}
	raw, err := json.Marshal(res.Value)
	if err != nil {
		return err
	}
	var found struct{ Matches []any }
	lines, err := native.Output()
	if err = errors.Join(err, json.Unmarshal(raw, &found)); err != nil {
		return err
	}
	if n := bytes.Count(lines, []byte("\n")); n != len(found.Matches) {
		return fmt.Errorf("grep of %s finds %d lines and %s %d", args, len(found.Matches), native.Path, n)
	}
	return nil
}

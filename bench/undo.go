package main

import (
	"context"
	"fmt"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

var undoTable = table{
	name: "undo", title: "What undo costs a call",
	about: "Medians (and p99) of whole `Session.Call`s in two sessions with the same files, in turn: one that records each call's changes for `wisbox undo`, " +
		"as `wisbox session create`, `agent` and `mcp` make them, and one that doesn't (`--no-undo`).",
	parts: []func(*bench, context.Context) error{(*bench).undoSteps},
}

// undoSteps compares calls of a session that can undo them with calls of one that can't.
func (b *bench) undoSteps(ctx context.Context) error {
	for _, files := range []int{20, 2_000, 20_000} {
		with, err := b.filled(ctx, files, true)
		if err != nil {
			return err
		}
		defer with.Close(ctx)
		without, err := b.filled(ctx, files, false)
		if err != nil {
			return err
		}
		defer without.Close(ctx)
		for _, call := range []struct{ what, name, args string }{
			{"`shell_execute` of `/bin/true`", "shell_execute", `{"commands":["/bin/true"]}`},
			{"`shell_execute` that writes a file", "shell_execute", `{"script":"date +%N >made"}`},
			{"`write_file`", "write_file", `{"file_path":"written","content":"a line\n","mode":"overwrite"}`},
		} {
			in := func(s *wisbox.Session) func() error {
				return func() error { return tool(ctx, s, call.name, call.args) }
			}
			ours, base, err := alternate(min(b.n, 50), in(with), in(without))
			if err != nil {
				return err
			}
			b.add(unpromised(fmt.Sprintf("%s, %d files", call.what, files), "the same without undo", ours, base))
		}
	}
	return nil
}

// filled opens a session with so many files of a source tree.
func (b *bench) filled(ctx context.Context, files int, undo bool) (*wisbox.Session, error) {
	s, err := b.m.Open(ctx, &wisbox.SessionOptions{AutoSnapshot: undo, Limits: sandbox.Limits{Disk: 2 << 30}})
	if err != nil {
		return nil, err
	}
	if err := makeTree(s.WorkspacePath(), files, 4_000); err != nil {
		return nil, err
	}
	return s, tool(ctx, s, "write_file", `{"file_path":"written","content":"a line\n"}`)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/snapshot/snapshottest"
)

var snapshotsTable = table{
	name: "snapshots", title: "What snapshots and clones cost",
	about: "Medians (and p99) of a few rounds, the two sides in turn, each on its own copy of the same tree of small text files, with nothing left to be " +
		"written to the disk before each. A clone is a whole `Session.Clone` with the snapshot that it is made from; the `cp -a` copies the workspace on the host.",
	parts: []func(*bench, context.Context) error{(*bench).smallTree, (*bench).largeTree, (*bench).clones},
}

func (b *bench) smallTree(ctx context.Context) error {
	return b.snapshots(ctx, "20,000 files, 300 MB", &snapshottest.Options{})
}

func (b *bench) largeTree(ctx context.Context) error {
	return b.snapshots(ctx, "50,000 files, 300 MB", &snapshottest.Options{Files: 50_000, Rounds: 3})
}

func (b *bench) snapshots(ctx context.Context, tree string, opts *snapshottest.Options) error {
	dir, err := os.MkdirTemp(filepath.Dir(b.root), "snapshots-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out, err := snapshottest.Measure(ctx, dir, opts)
	if err != nil {
		return err
	}
	for _, r := range out.Rows {
		b.add(faster(r.What+", "+tree, r.PeerName, r.Ours, r.Peer, r.Bar))
	}
	const bar = 1.5
	ratio := float64(out.Store) / float64(out.Git)
	b.notes = append(b.notes, fmt.Sprintf("%s: the store after 50 snapshots of 100 changed files %.1f MB, git's after gc %.1f MB: %.2f× (at most %.1f×: %s)",
		tree, float64(out.Store)/1e6, float64(out.Git)/1e6, ratio, bar, met(ratio <= bar)))
	return nil
}

// clones compares a session's clone to a copy of its files.
func (b *bench) clones(ctx context.Context) error {
	const rounds = 5
	s, err := b.m.Open(ctx, &wisbox.SessionOptions{Limits: sandbox.Limits{Disk: 4 << 30}})
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if err := makeTree(s.WorkspacePath(), 20_000, 15_000); err != nil {
		return err
	}
	var ours, base samples
	for i := range rounds {
		var clone *wisbox.Session
		if err := settled(&ours, func() (err error) { clone, err = s.Clone(ctx, nil); return err }); err != nil {
			return err
		}
		copied := filepath.Join(filepath.Dir(b.root), fmt.Sprint("copy", i))
		if err := settled(&base, exec.Command("cp", "-a", s.WorkspacePath(), copied).Run); err != nil {
			return err
		}
		if err := errors.Join(clone.Close(ctx), os.RemoveAll(copied)); err != nil {
			return err
		}
	}
	bar, has := 1.0, "has no reflinks, so once as fast will do"
	if reflinks(s.WorkspacePath()) {
		bar, has = 2, "has reflinks"
	}
	b.add(faster("full clone of a session with 20,000 files, 300 MB", "`cp -a`", ours, base, bar))
	b.notes = append(b.notes, "clones: the workspace's file system "+has)
	return nil
}

// settled times a function after all pending writes to the disk.
func settled(into *samples, do func() error) error {
	unix.Sync()
	took, err := measureOne(do)
	*into = append(*into, took)
	return err
}

// reflinks reports whether files below dir can share their blocks.
func reflinks(dir string) bool {
	from, err := os.CreateTemp(dir, "from-*")
	if err != nil {
		return false
	}
	defer os.Remove(from.Name())
	defer from.Close()
	to, err := os.CreateTemp(dir, "to-*")
	if err != nil {
		return false
	}
	defer os.Remove(to.Name())
	defer to.Close()
	return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/sandbox"
)

var filesTable = table{
	name: "files", title: "What the file tools cost",
	about: "Medians (and p99), ours through the whole of `Session.Call`. The searches go over one tree of 50,000 files and 500 MB in a session's workspace; " +
		"the native tools search it at its place on the host with as many threads and no ignore rules, and find as many lines. " +
		"Caches are warm; where a row says cold, the kernel's were dropped before each call.",
	parts: []func(*bench, context.Context) error{(*bench).searches, (*bench).listing, (*bench).mounting},
}

const (
	fileCalls = 15 // of each kind, at most: these calls are long
	coldCalls = 5
)

// searches compares grep and glob with ripgrep and find.
func (b *bench) searches(ctx context.Context) error {
	s, err := b.m.Open(ctx, &wisbox.SessionOptions{Limits: sandbox.Limits{Disk: 4 << 30}})
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if err := makeTree(s.WorkspacePath(), 50_000, 10_000); err != nil {
		return err
	}
	for _, one := range []struct {
		what, pattern string
		bar           float64
	}{
		{"a literal", `xylophone_needle`, 1.1},
		{"a regular expression that holds a literal", `xylo\w+_needle\s=\s[0-9]+`, 1.1},
		{"a regular expression without a literal", `[a-z]{9}_[a-z]{6}\s=\s[0-9]{4}`, 1.8},
	} {
		ours, rg, err := grepBoth(ctx, s, one.pattern)
		if err != nil {
			return err
		}
		if err := b.against("`grep` of "+one.what, "`rg`", ours, rg, one.bar); err != nil {
			return err
		}
		if err := b.againstCold("the same, cold", "`rg`", ours, rg, one.bar); err != nil {
			return err
		}
	}
	find := func() error { return exec.Command("find", s.WorkspacePath(), "-name", "*.py").Run() }
	return b.against("`glob` of `**/*.py`", "`find -name '*.py'`", func() error { return tool(ctx, s, "glob", `{"pattern":"**/*.py"}`) }, find, 1.2)
}

// grepBoth returns the search by our tool and by ripgrep, after checking that both find the same.
func grepBoth(ctx context.Context, s *wisbox.Session, pattern string) (ours, rg func() error, err error) {
	args, err := json.Marshal(map[string]string{"pattern": pattern})
	if err != nil {
		return nil, nil, err
	}
	native := func() *exec.Cmd {
		return exec.Command("rg", "--no-config", "-uuu", "-j", strconv.Itoa(runtime.GOMAXPROCS(0)), "-n", "--column", "-e", pattern, s.WorkspacePath())
	}
	if err := sameLines(ctx, s, string(args), native()); err != nil {
		return nil, nil, err
	}
	return func() error { return tool(ctx, s, "grep", string(args)) }, func() error { return native().Run() }, nil
}

// against adds a row that compares two functions, timed in turn.
func (b *bench) against(what, baseName string, ours, base func() error, bar float64) error {
	a, c, err := alternate(min(b.n, fileCalls), ours, base)
	if err == nil {
		b.add(slower(what, baseName, a, c, bar))
	}
	return err
}

// againstCold is like [bench.against] with an empty kernel cache. If the user may not empty it, it
// adds a note instead.
func (b *bench) againstCold(what, baseName string, ours, base func() error, bar float64) error {
	var took [2]samples
	for range min(b.n, coldCalls) {
		for i, do := range []func() error{ours, base} {
			syscall.Sync()
			if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
				b.notes = append(b.notes, what+": not measured, that needs root")
				return nil
			}
			one, err := measureOne(do)
			if err != nil {
				return err
			}
			took[i] = append(took[i], one)
		}
	}
	b.add(slower(what, baseName, took[0], took[1], bar))
	return nil
}

// listing measures ls of one large directory.
func (b *bench) listing(ctx context.Context) error {
	const entries, bar = 100_000, 300 * time.Millisecond
	s, err := b.m.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	for i := range entries {
		if err := os.WriteFile(fmt.Sprintf("%s/f%06d", s.WorkspacePath(), i), nil, 0o644); err != nil {
			return err
		}
	}
	ours, base, err := alternate(min(b.n, fileCalls), func() error { return tool(ctx, s, "ls", `{}`) },
		func() error { return exec.Command("ls", "-l", s.WorkspacePath()).Run() })
	if err != nil {
		return err
	}
	r := slower("`ls` of 100,000 entries (the first 10,000 are answered)", "`ls -l`", ours, base, 0)
	r.bar, r.met = fmt.Sprintf("≤ %d ms", bar.Milliseconds()), ours.Median() <= bar
	b.add(r)
	return nil
}

// mounting compares opening a session with a mount to a plain copy into a session's workspace.
func (b *bench) mounting(ctx context.Context) error {
	src := filepath.Join(filepath.Dir(b.root), "source")
	if err := makeTree(src, 10_000, 10_000); err != nil {
		return err
	}
	s, err := b.m.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	var mounted *wisbox.Session
	var ours, base samples
	for range min(b.n, fileCalls) {
		took, err := measureOne(func() (err error) {
			mounted, err = b.m.Open(ctx, &wisbox.SessionOptions{Mounts: []hostmount.Mount{{HostPath: src, MountPath: "."}}, AllowedRoots: []string{src}})
			return err
		})
		if err != nil {
			return err
		}
		ours = append(ours, took)
		if err := mounted.Close(ctx); err != nil {
			return err
		}
		to := filepath.Join(s.WorkspacePath(), "copy")
		if took, err = measureOne(func() error { return exec.Command("cp", "-a", src, to).Run() }); err != nil {
			return err
		}
		base = append(base, took)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	b.add(slower("a session opened with a mount of 10,000 files and 100 MB", "`cp -a` of them into a session's workspace", ours, base, 2))
	return nil
}

// makeTree writes files of words, similar to source code, into 2,000 directories; every thousandth
// file contains a needle. When it returns, everything is on the disk.
func makeTree(dir string, files, bytes int) error {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprintf("d%02d", i%50), fmt.Sprintf("e%02d", i/50%40))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		name := fmt.Sprintf("f%05d.%s", i, []string{"py", "go", "md", "txt", "c"}[i%5])
		if err := os.WriteFile(filepath.Join(sub, name), sourceText(r, bytes, i%1000 == 7), 0o644); err != nil {
			return err
		}
	}
	syscall.Sync()
	return nil
}

var words = strings.Fields("func return if err nil the value context string int for range package import type struct map " +
	"error server client request handler config option buffer reader writer index length offset result default while class def self")

func sourceText(r *rand.Rand, size int, needle bool) []byte {
	var b bytes.Buffer
	for b.Len() < size {
		for range 3 + r.IntN(9) {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteByte(" .(,="[r.IntN(5)])
		}
		fmt.Fprintf(&b, "%d\n", r.IntN(1000))
	}
	if needle {
		b.WriteString("xylophone_needle = 1234\n")
	}
	return b.Bytes()
}

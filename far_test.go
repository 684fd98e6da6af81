package wisbox_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/packing"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// nearOf are the managers that do what those of other machines ask for.
var nearOf sync.Map

// workspace is the host directory of a session, on whichever machine that is.
func workspace(s *wisbox.Session) string {
	if near, ok := nearOf.Load(wisbox.ManagerOf(s)); ok {
		return filepath.Join(near.(*wisbox.Manager).CacheDir(), "sessions", s.ID(), "workspace")
	}
	return s.WorkspacePath()
}

// farFrom is a Manager on another machine than near's, a stream away. through may be nil.
func farFrom(t *testing.T, near *wisbox.Manager, opts wisbox.Options, through func(io.ReadWriteCloser) io.ReadWriteCloser) *wisbox.Manager {
	t.Helper()
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	opts.Far, opts.CacheDir = "near", cmp.Or(opts.CacheDir, filepath.Join(t.TempDir(), "far"))
	opts.FarConnect = func(context.Context) (io.ReadWriteCloser, error) {
		a, b := net.Pipe()
		serving.Go(func() { _ = near.ServeFar(ctx, b) })
		if through != nil {
			return through(a), nil
		}
		return a, nil
	}
	m, err := wisbox.NewManager(t.Context(), &opts)
	require.NoError(t, err)
	nearOf.Store(m, near)
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		cancel()
		serving.Wait()
		nearOf.Delete(m)
	})
	return m
}

// farWith is a session of another machine.
func farWith(t *testing.T, so wisbox.SessionOptions, opts wisbox.Options) *wisbox.Session {
	t.Helper()
	_, near, _ := heldBy(t, time.Minute, so, wisbox.Options{})
	s, err := farFrom(t, near, opts, nil).Attach(t.Context(), "box")
	require.NoError(t, err)
	return s
}

// TestWhatAFarManagerDoesNot is refused, and never done here instead.
func TestWhatAFarManagerDoesNot(t *testing.T) {
	near, _ := manager(t, wisbox.Options{Holder: []string{"/bin/false"}})
	m := farFrom(t, near, wisbox.Options{}, nil)
	_, err := m.Prune(t.Context(), true)
	require.ErrorContains(t, err, "ssh near")
	_, err = m.HolderReports(t.Context())
	require.ErrorContains(t, err, "ssh near")
	require.ErrorContains(t, m.Hold(t.Context(), "box", 0, nil), "ssh near")
	_, err = m.BuildTemplate(t.Context(), &wisbox.TemplateBuild{})
	require.ErrorContains(t, err, "ssh near")
	assert.Nil(t, m.Backend())
	assert.Zero(t, m.Stats())
	require.ErrorContains(t, m.ServeFar(t.Context(), nil), "own machine")
}

// cutter is a stream that breaks after some bytes, of both directions together.
type cutter struct {
	io.ReadWriteCloser
	left *atomic.Int64
}

func (c cutter) pass(p []byte, do func([]byte) (int, error)) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		_ = c.Close()
		return 0, io.ErrClosedPipe
	}
	n, err := do(p[:min(int64(len(p)), left)])
	if c.left.Add(int64(-n)) <= 0 {
		_ = c.Close()
		err = cmp.Or(err, io.ErrClosedPipe)
	}
	return n, err
}

func (c cutter) Read(p []byte) (int, error)  { return c.pass(p, c.ReadWriteCloser.Read) }
func (c cutter) Write(p []byte) (int, error) { return c.pass(p, c.ReadWriteCloser.Write) }

// TestAConnectionThatIsCutLosesNothing: whatever byte it is cut at, a program runs once or not
// at all; if the client learns that it ran, what it wrote is there; the next call is as before.
func TestAConnectionThatIsCutLosesNothing(t *testing.T) {
	s, near, _ := heldBy(t, time.Minute, wisbox.SessionOptions{}, wisbox.Options{})
	cutAnywhere(t, s.WorkspacePath(), func(through func(io.ReadWriteCloser) io.ReadWriteCloser) *wisbox.Manager {
		return farFrom(t, near, wisbox.Options{}, through)
	})
}

// cutAnywhere cuts the connection to a session box, whose workspace is dir.
func cutAnywhere(t *testing.T, dir string, reach func(through func(io.ReadWriteCloser) io.ReadWriteCloser) *wisbox.Manager) {
	t.Helper()
	const whole = 1 << 40
	run := func(cut int64) (told error, lines int, used int64) {
		left := &atomic.Int64{}
		left.Store(cut)
		m := reach(func(s io.ReadWriteCloser) io.ReadWriteCloser {
			defer func() { left = &atomic.Int64{}; left.Store(whole) }() // the next one is whole
			return cutter{s, left}
		})
		first := left
		s, err := m.Attach(t.Context(), "box")
		if err != nil { // in the hello
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
			s, err = m.Attach(t.Context(), "box")
		}
		require.NoError(t, err, "looking has no effect: it is asked again")
		file := fmt.Sprintf("f%d", cut)
		var out strings.Builder
		res, told := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "cat >> " + file + "; echo out"}, Stdin: strings.NewReader("line\n"), Stdout: &out})
		used = whole - first.Load()
		require.Eventually(t, func() bool { // what a broken connection left ends
			all, err := s.Processes(t.Context())
			return err == nil && len(all) == 0
		}, 20*time.Second, time.Millisecond)
		raw, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		if told == nil {
			assert.Equal(t, 0, res.ExitCode)
			assert.Equal(t, "out\n", out.String())
			assert.Equal(t, "line\n", string(raw))
		}
		_, err = s.Call(t.Context(), "ls", nil)
		require.NoError(t, err, "the next call dials again")
		return told, strings.Count(string(raw), "line"), used
	}
	_, _, total := run(whole)
	outcomes := map[string]int{}
	for cut := int64(1); cut < total; cut += max(total/40, 1) {
		told, lines, _ := run(cut)
		assert.LessOrEqual(t, lines, 1, "it ran twice, cut at %d", cut)
		switch {
		case told == nil:
			outcomes["done"]++
		case strings.Contains(told.Error(), "may have begun"):
			outcomes["unknown"]++
		default:
			t.Errorf("cut at %d: %v", cut, told)
		}
	}
	assert.NotZero(t, outcomes["done"])
	assert.NotZero(t, outcomes["unknown"])
	t.Log(total, outcomes)
}

// TestFilesOfAFarSession can be read and watched from here.
func TestFilesOfAFarSession(t *testing.T) {
	s := farWith(t, wisbox.SessionOptions{}, wisbox.Options{})
	assert.Empty(t, s.WorkspacePath())
	changes, err := s.Watch(t.Context(), "/")
	require.NoError(t, err)
	big := strings.Repeat("0123456789", 100_000)
	text(t, s, "write_file", `{"file_path":"dir/f","content":"x"}`)
	require.NoError(t, os.WriteFile(filepath.Join(workspace(s), "big"), []byte(big), 0o644))
	assert.Contains(t, []vfs.Change{{Path: "dir", Op: "created"}, {Path: "dir/f", Op: "created"}, {Path: "big", Op: "created"}}, <-changes)
	got, err := fs.ReadFile(s.Files(), "big")
	require.NoError(t, err)
	assert.Len(t, got, len(big))
	info, err := fs.Stat(s.Files(), "dir")
	require.NoError(t, err)
	assert.True(t, info.IsDir())
	entries, err := fs.ReadDir(s.Files(), ".")
	require.NoError(t, err)
	assert.Len(t, entries, 2)
	_, err = fs.Stat(s.Files(), "nosuch")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = s.Files().Open("../x")
	require.ErrorIs(t, err, fs.ErrInvalid)
	f, err := s.Files().Open("big")
	require.NoError(t, err)
	_, err = f.Read(make([]byte, 10))
	require.NoError(t, err)
	require.NoError(t, f.Close(), "also of one that wasn't read to its end")
}

// TestASessionThatCanNotBeRecordedIsRemoved from the other machine: here it can't be used.
func TestASessionThatCanNotBeRecordedIsRemoved(t *testing.T) {
	near, _ := manager(t, wisbox.Options{Holder: []string{"/bin/false"}})
	cache := t.TempDir()
	m := farFrom(t, near, wisbox.Options{CacheDir: cache}, nil)
	for _, name := range []string{"box", "loaded"} {
		require.NoError(t, os.MkdirAll(filepath.Join(packing.RecordsOf(cache, "near").Path(name), "in-the-way"), 0o700))
	}
	_, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "ok", Kept: true})
	require.NoError(t, err)
	_, err = m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.ErrorContains(t, err, "can't be removed on this machine")
	var archive bytes.Buffer
	there, err := near.Open(t.Context(), &wisbox.SessionOptions{})
	require.NoError(t, err)
	_, err = there.Save(t.Context(), &archive)
	require.NoError(t, err)
	require.NoError(t, there.Close(t.Context()))
	_, err = m.Load(t.Context(), &archive, &wisbox.LoadOptions{Name: "loaded", Kept: true})
	require.ErrorContains(t, err, "can't be removed on this machine")
	all, err := near.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "ok", all[0].ID)
}

// TestEveryFailedCallIsExplained by the place that knows more, also the start of a program and a connection.
func TestEveryFailedCallIsExplained(t *testing.T) {
	s := farWith(t, wisbox.SessionOptions{}, wisbox.Options{})
	wisbox.ExplainFar(s, func(_ context.Context, _ time.Time, err error) error {
		return tool.Errorf(tool.Closed, "it was evicted").Because(err)
	})
	cmd := sandbox.Cmd{Argv: []string{"true"}, Dir: "nosuch"}
	for name, call := range map[string]func() error{
		"run":   func() error { _, err := s.Run(t.Context(), cmd); return err },
		"start": func() error { _, err := s.Start(t.Context(), cmd); return err },
		"dial":  func() error { _, err := s.Dial(t.Context(), 1); return err },
	} {
		assert.ErrorContains(t, call(), "it was evicted", name)
	}
}

// TestAKilledProgramIsExplained by the place that knows more: a program may end before the connection breaks.
func TestAKilledProgramIsExplained(t *testing.T) {
	s := farWith(t, wisbox.SessionOptions{}, wisbox.Options{})
	killed := sandbox.Cmd{Argv: []string{"sh", "-c", "kill -9 $$"}}
	calls := map[string]func() error{
		"run": func() error { _, err := s.Run(t.Context(), killed); return err },
		"start": func() error {
			p, err := s.Start(t.Context(), killed)
			require.NoError(t, err)
			_, err = p.Wait(t.Context())
			return err
		},
		"output": func() error {
			info, err := s.StartProcess(t.Context(), killed, nil)
			require.NoError(t, err)
			_, err = s.ProcessOutput(t.Context(), info.ProcessID, &wisbox.OutputOptions{Follow: true})
			return err
		},
	}
	wisbox.ExplainFar(s, func(_ context.Context, _ time.Time, err error) error { return err })
	for name, call := range calls {
		require.NoError(t, call(), name)
	}
	wisbox.ExplainFar(s, func(_ context.Context, _ time.Time, err error) error {
		return tool.Errorf(tool.Closed, "it was evicted").Because(err)
	})
	_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"false"}})
	require.NoError(t, err, "it ended by itself")
	for name, call := range calls {
		require.ErrorContains(t, call(), "it was evicted", name)
	}
}

// waitedFor counts the functions that wait for the end of a context.
type waitedFor struct {
	context.Context
	n *atomic.Int32
}

func (waitedFor) Value(any) any { return nil }

// AfterFunc is called by package context.
func (w waitedFor) AfterFunc(f func()) func() bool {
	w.n.Add(1)
	stop := context.AfterFunc(w.Context, f)
	return func() bool { w.n.Add(-1); return stop() }
}

// TestAWatchLeavesNothingBehind in a session that stays open.
func TestAWatchLeavesNothingBehind(t *testing.T) {
	s := farWith(t, wisbox.SessionOptions{}, wisbox.Options{})
	var waiting atomic.Int32
	wisbox.WrapSite(s, func(ctx context.Context) context.Context { return waitedFor{ctx, &waiting} })
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := s.Watch(ctx, "/")
	require.NoError(t, err)
	assert.Equal(t, int32(1), waiting.Load())
	cancel()
	for range changes {
	}
	assert.Zero(t, waiting.Load())
	_, err = s.Watch(t.Context(), "/nosuch")
	require.Error(t, err)
	assert.Zero(t, waiting.Load())
}

// TestMountsOfThisMachineGoThereAndComeBack packed by the rules of mounts, and written here by
// this machine's own record alone.
func TestMountsOfThisMachineGoThereAndComeBack(t *testing.T) {
	near, _ := manager(t, wisbox.Options{Holder: []string{"/bin/false"}})
	src := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(src, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(src, "a"), []byte("a\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(src, "secret.key"), []byte("key"), 0o644))
	require.NoError(t, os.Symlink("a", filepath.Join(src, "link")))
	opts := &wisbox.SessionOptions{Name: "box", Kept: true, AllowedRoots: []string{src}, Mounts: []hostmount.Mount{{HostPath: src, MountPath: ".", Exclude: []string{"*.key"}}}}
	m := farFrom(t, near, wisbox.Options{}, nil)
	_, err := m.Open(t.Context(), &wisbox.SessionOptions{Mounts: opts.Mounts})
	require.Error(t, err, "no root allows it")
	s, err := m.Open(t.Context(), opts)
	require.NoError(t, err)
	_, err = m.Open(t.Context(), opts)
	assert.Equal(t, tool.Exists, tool.KindOf(err))

	holdFor(t, near, "box", time.Minute)
	assert.Equal(t, "a link sub", tree(t, s))
	assert.Equal(t, "a\n", content(t, s, "a"))
	text(t, s, "write_file", `{"file_path":"sub/new","content":"new\n"}`)
	done, err := s.Apply(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, done.Changes, 1)
	raw, err := os.ReadFile(filepath.Join(src, "sub/new"))
	require.NoError(t, err)
	assert.Equal(t, "new\n", string(raw))

	require.NoError(t, s.Reset(t.Context()))
	assert.Equal(t, "a link sub", tree(t, s), "what was mounted is sent again")

	other, err := farFrom(t, near, wisbox.Options{}, nil).Attach(t.Context(), "box")
	require.NoError(t, err)
	_, err = other.Apply(t.Context(), nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err), "whoever mounted nothing has no folder to write to, whatever the other machine says")
	there, err := near.Attach(t.Context(), "box")
	require.NoError(t, err)
	_, err = there.Apply(t.Context(), nil)
	assert.Equal(t, tool.Unsupported, tool.KindOf(err), "nor has the other machine")
}

// TestVersionsMustBeTheSame: each names both.
func TestVersionsMustBeTheSame(t *testing.T) {
	a, b := net.Pipe()
	go func() {
		_, _ = b.Write([]byte("Welcome to box\nwisbox-relay {\"version\":\"v9.8.7\",\"protocol\":\"0\"}\n"))
		_, _ = io.Copy(io.Discard, b)
	}()
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{Far: "old", Version: "v1.2.3", FarConnect: func(context.Context) (io.ReadWriteCloser, error) { return a, nil }})
	require.NoError(t, err)
	defer m.Close()
	_, err = m.List(t.Context())
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	require.ErrorContains(t, err, "v1.2.3")
	require.ErrorContains(t, err, "v9.8.7")
}

// TestAFarMachineThatCanNotBeReached is reached later.
func TestAFarMachineThatCanNotBeReached(t *testing.T) {
	_, near, _ := heldBy(t, time.Minute, wisbox.SessionOptions{}, wisbox.Options{})
	m := farFrom(t, near, wisbox.Options{}, func(s io.ReadWriteCloser) io.ReadWriteCloser {
		_ = s.Close()
		return s
	})
	_, err := m.Attach(t.Context(), "box")
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	require.ErrorContains(t, err, "near")
}

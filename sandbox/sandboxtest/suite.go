package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// NewBackend returns a backend and a spec for Create, with a new ID and workspace on every call, which t's cleanup
// removes. The workspace must be writable by programs. The Suite closes the backend and what it creates.
type NewBackend func(t *testing.T) (sandbox.Backend, sandbox.Spec)

// Options describe a backend's abilities beyond the plain contract.
type Options struct {
	// Isolated means that programs run as uid 1000 without capabilities, network or a
	// writable root, and the limits that Info calls enforced hold.
	Isolated bool
	// Shell runs a script if the image has no bash; default bash -c.
	Shell []string
	// NoPython means that the image has no Python. The checks' programs are then scripts for busybox's commands.
	NoPython bool
	// Except maps the names of checks that the backend is known not to pass to the reason. They are skipped with that
	// reason.
	Except map[string]string
}

// prompt is the maximum time for immediate actions on a busy machine.
var prompt = patience.For(30 * time.Second)

type check struct {
	name string
	run  func(*testing.T, *fixture)
}

// Suite checks a backend against the contract of package sandbox. Each subtest is named by the sentence that it proves.
// With nil options the backend has no isolation.
func Suite(t *testing.T, newBackend NewBackend, opts *Options) {
	if opts == nil {
		opts = &Options{}
	}
	t.Setenv("WISBOX_SUITE_CANARY", "of-the-host")
	f := newFixture(t, newBackend)
	f.opts = opts
	groups := [][]check{runChecks, streamChecks, endChecks, processChecks, terminalChecks, pythonChecks, lifeChecks}
	if opts.NoPython {
		groups[5] = noPythonChecks
	}
	if opts.Isolated {
		groups = append(groups, isolationChecks)
	}
	left := maps.Clone(opts.Except)
	for _, group := range groups {
		for _, c := range group {
			if reason, ok := left[c.name]; ok {
				t.Logf("left out: %s: %s", c.name, reason)
				delete(left, c.name)
				continue
			}
			t.Run(c.name, func(t *testing.T) { c.run(t, f) })
		}
	}
	assert.Empty(t, left, "options except unknown checks")
}

// fixture is one sandbox and the helpers to use it.
type fixture struct {
	opts       *Options
	newBackend NewBackend
	backend    sandbox.Backend
	spec       sandbox.Spec
	box        sandbox.Sandbox
}

func newFixture(t *testing.T, newBackend NewBackend) *fixture {
	backend, spec := newBackend(t)
	spec.Env = map[string]string{"WISBOX_SUITE_SPEC": "spec", "WISBOX_SUITE_BOTH": "spec"}
	return createFixture(t, newBackend, backend, spec)
}

func createFixture(t *testing.T, newBackend NewBackend, backend sandbox.Backend, spec sandbox.Spec) *fixture {
	t.Helper()
	t.Cleanup(func() { assert.NoError(t, backend.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	box, err := backend.Create(ctx, spec)
	require.NoError(t, err, "create the sandbox")
	t.Cleanup(func() { assert.NoError(t, box.Close(context.Background())) })
	return &fixture{newBackend: newBackend, backend: backend, spec: spec, box: box}
}

// fresh returns a new sandbox for one check, with its own backend.
func (f *fixture) fresh(t *testing.T, limits sandbox.Limits) *fixture {
	t.Helper()
	backend, spec := f.newBackend(t)
	spec.Limits = limits
	own := createFixture(t, f.newBackend, backend, spec)
	own.opts = f.opts
	return own
}

// outcome is a result with the received streams.
type outcome struct {
	sandbox.Result
	out, err string
}

// run runs a command to its end; an error, or more than two minutes, ends the check.
func (f *fixture) run(t *testing.T, cmd sandbox.Cmd) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	res, err := f.box.Run(ctx, cmd)
	require.NoError(t, err)
	require.NotEqual(t, sandbox.StatusCancelled, res.Status, "the command took more than two minutes")
	return outcome{Result: res, out: out.String(), err: errs.String()}
}

// limited runs a command with a time limit, and doubles the limit until did returns true: a busy machine may not start
// it within the first.
func (f *fixture) limited(t *testing.T, cmd sandbox.Cmd, limit time.Duration, did func(outcome) bool) outcome {
	t.Helper()
	for ; ; limit *= 2 {
		cmd.Timeout = limit
		if o := f.run(t, cmd); did(o) || limit > prompt {
			assert.GreaterOrEqual(t, o.Duration, limit)
			assert.Less(t, o.Duration, limit+prompt)
			return o
		}
	}
}

// hangs is limited for a survivor, until the survivor has reported that it is ready.
func (f *fixture) hangs(t *testing.T, cmd sandbox.Cmd, way string) outcome {
	t.Helper()
	said := filepath.Join(f.spec.Workspace, "said-"+way)
	require.NoError(t, os.RemoveAll(said)) // left by another check
	return f.limited(t, cmd, 1500*time.Millisecond, func(outcome) bool { _, err := os.Stat(said); return err == nil })
}

func (f *fixture) bash(t *testing.T, script string) outcome {
	t.Helper()
	return f.run(t, f.script(script))
}

// must runs a script that has to succeed and returns its trimmed output.
func (f *fixture) must(t *testing.T, script string) string {
	t.Helper()
	o := f.bash(t, script)
	require.Equal(t, sandbox.StatusExited, o.Status, o.err)
	require.Equal(t, 0, o.ExitCode, o.err)
	return strings.TrimSpace(o.out)
}

// start starts a command that is killed at the check's end.
func (f *fixture) start(t *testing.T, cmd sandbox.Cmd) sandbox.Process {
	t.Helper()
	p, err := f.box.Start(context.Background(), cmd)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

// wait waits for a process and fails the check if it doesn't end.
func wait(t *testing.T, p sandbox.Process) sandbox.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), prompt)
	defer cancel()
	res, err := p.Wait(ctx)
	require.NoError(t, err, "the process should have ended")
	return res
}

// released fails the check if any process holds the lock file of survivor.
func (f *fixture) released(t *testing.T, way string) {
	t.Helper()
	assert.True(t, f.tryLock(t, way), "a process outlived its call: it still holds the lock")
}

func (f *fixture) tryLock(t *testing.T, way string) bool {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(f.spec.Workspace, "lock-"+way), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) { // a pipe without a reader
		return true
	}
	require.NoError(t, err)
	if info, err := lock.Stat(); err == nil && info.Mode().Type() == fs.ModeNamedPipe {
		return lock.Close() != nil
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// watcher is a stream's writer on which a check can wait for text.
type watcher struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newWatcher() *watcher { return &watcher{changed: make(chan struct{}, 1)} }

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return w.text.Write(p)
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await blocks until the stream holds the text.
func (w *watcher) await(t *testing.T, text string) {
	t.Helper()
	require.True(t, w.comes(text), "%q did not come in time: %q", text, w.String())
}

// comes waits for text; it may be called from any goroutine.
func (w *watcher) comes(text string) bool {
	deadline := time.After(prompt)
	for !strings.Contains(w.String(), text) {
		select {
		case <-w.changed:
		case <-deadline:
			return strings.Contains(w.String(), text)
		}
	}
	return true
}

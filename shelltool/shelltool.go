// Package shelltool is the tools that run programs in a session's sandbox:
// shell_execute and read_output for a call with an end, process_* for programs
// that go on.
//
// It checks the arguments, bounds what output costs the host and lays results
// out. It knows nothing of containers: programs go to a sandbox.Runner, which
// keeps time limits and ends whatever a program leaves behind.
package shelltool

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Options of a Shell. Zero fields take the default named.
type Options struct {
	// Runner gives what runs programs; it is asked on every call, so it may
	// make a sandbox on the first one and again after a loss. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
	// Files looks at the workspace, for the directory of a call. Required.
	Files Files
	// Paths says which directories a call may run in; default [vfs.ASCII]. With [vfs.Any]
	// commands takes Unicode too.
	Paths vfs.Grammar
	// Output is the directory for what doesn't fit into a result, the Shell's
	// own. It stays the caller's to close. With nil nothing is kept there:
	// results have no output_id, processes keep their last 256 KiB.
	Output *os.Root
	// MaxTimeout is the longest time that shell_execute gives a program, default 120 s.
	MaxTimeout time.Duration
	// MaxText bounds stdin and a process_write, in characters, default 48,000.
	MaxText int
	// MaxProcesses may run at once, default 16.
	MaxProcesses int
	// Outlives says whether the processes that are begun now outlive the death of this
	// one, for [Shell.Reclaim] in the next; nil says that none does.
	Outlives func() bool
	// Awake is asked before a process is steered: its error, where the session is paused,
	// is the caller's. Nil says that it always is.
	Awake func() error
	// Known is asked before processes are listed or looked for: its error, where those that
	// another Shell has left can't be taken over yet, is the caller's. It may call
	// [Shell.Reclaim]. Nil says that all are known.
	Known func() error
	// Origin names the call of a context, for [Shell.Reclaim] in another process; nil
	// names none.
	Origin func(context.Context) Origin
	// Ended is called once for each process when it has ended, with the values of the
	// context of the call that began it; nil does nothing. It must not block.
	Ended func(begun context.Context, info ProcessInfo, res sandbox.Result)
}

// Shell runs programs for one session. Its methods may be called from many
// goroutines at once. Every error they return is a *tool.Error.
type Shell struct {
	opts    Options
	outputs *outputs

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	starting  int
	processes []*process // in the order of their start
}

// New makes a Shell. It starts nothing.
func New(opts *Options) (*Shell, error) {
	if opts == nil || opts.Runner == nil || opts.Files == nil {
		return nil, errors.New("shelltool: Runner and Files are required")
	}
	s := &Shell{opts: *opts, outputs: &outputs{root: opts.Output}}
	if s.opts.MaxTimeout <= 0 {
		s.opts.MaxTimeout = 120 * time.Second
	}
	if s.opts.MaxText <= 0 {
		s.opts.MaxText = 48_000
	}
	if s.opts.MaxProcesses <= 0 {
		s.opts.MaxProcesses = 16
	}
	if s.opts.Awake == nil {
		s.opts.Awake = func() error { return nil }
	}
	if s.opts.Known == nil {
		s.opts.Known = func() error { return nil }
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Tools lists the tools of the Shell.
func (s *Shell) Tools() []tool.Tool {
	return []tool.Tool{
		tool.New(executeSpec, value(s.Execute)),
		tool.New(readOutputSpec, value(s.ReadOutput)),
		tool.New(startSpec, value(s.StartProcess)),
		tool.New(listSpec, value(s.ListProcesses)),
		tool.New(readSpec, value(s.ReadProcess)),
		tool.New(writeSpec, value(s.WriteProcess)),
		tool.New(signalSpec, value(s.SignalProcess)),
		tool.New(resizeSpec, value(s.ResizeProcess)),
	}
}

// value turns a typed method into a tool's function.
func value[P, R any](fn func(context.Context, P) (*R, error)) func(context.Context, P) (R, error) {
	return func(ctx context.Context, p P) (R, error) {
		r, err := fn(ctx, p)
		if err != nil {
			return *new(R), err
		}
		return *r, nil
	}
}

// begin registers a call. Its context ends when the caller's does and when the
// Shell is closed, which then waits for done.
func (s *Shell) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, tool.Errorf(tool.Closed, "the session is closed; open another one")
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel(); s.calls.Done() }, nil
}

// closeGrace is how long Close waits for killed processes to be gone.
const closeGrace = 15 * time.Second

// Close cancels the calls that run, kills all processes and returns when they
// are gone, or tells after 15 seconds that some are not. A second Close does nothing.
func (s *Shell) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.calls.Wait() // a start that was under way is in the list then
	s.mu.Lock()
	processes := s.processes
	s.processes = nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.kill())
	}
	for _, p := range processes {
		errs = append(errs, p.await(ctx))
		p.discard()
	}
	return errors.Join(errs...)
}

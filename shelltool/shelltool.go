// Package shelltool has the tools that run programs in a session's sandbox: shell_execute and
// read_output for programs that the call waits for, and process_* for programs in the background.
//
// It checks arguments, bounds the host's cost of output, and renders results. It knows nothing of
// containers: a sandbox.Runner runs the programs, enforces time limits, and ends the descendants that
// a program leaves behind.
package shelltool

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// MaxProcesses is the default of [Options.MaxProcesses].
const MaxProcesses = 16

// Options of a Shell. A zero field means the default.
type Options struct {
	// Runner returns the runner of programs. It is called for each call, so it may create a
	// sandbox for the first one and again after a loss. Required.
	Runner func(ctx context.Context) (sandbox.Runner, error)
	// Files checks the directory of a call. Required.
	Files Files
	// Paths is the grammar of directories that a call may run in; default [vfs.ASCII]. With
	// [vfs.Any], commands may also have Unicode.
	Paths vfs.Grammar
	// Output is the directory for output that doesn't fit into a result. It belongs to the Shell
	// alone, but the caller closes it. With nil, results have no output_id, and processes keep
	// their last 256 KiB.
	Output *os.Root
	// MaxTimeout is the longest time that shell_execute gives a program, default 120 s.
	MaxTimeout time.Duration
	// MaxText bounds stdin and a process_write, in characters, default 48,000.
	MaxText int
	// MaxProcesses is the maximum of processes that run at once, default [MaxProcesses].
	MaxProcesses int
	// Outlives reports whether processes that are started now outlive the death of this process,
	// for [Shell.Reclaim] in the next one; nil means that none does.
	Outlives func() bool
	// Awake is called before a call that changes a process, which returns its error, such as that
	// of a paused session. Nil means always awake.
	Awake func() error
	// Known is called before processes are listed or looked up. The call returns its error, such as
	// that processes of another Shell can't be taken over yet. It may call [Shell.Reclaim]. Nil
	// means that all are known.
	Known func() error
	// Origin returns the call of a context, for [Shell.Reclaim] in another process; nil means none.
	Origin func(context.Context) Origin
	// Ended is called once for each process that has ended, with the values of the context of the
	// call that started it; nil does nothing. It must not block.
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

// New returns a Shell. It starts nothing.
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
		s.opts.MaxProcesses = MaxProcesses
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

// value converts a typed method to a tool's function.
func value[P, R any](fn func(context.Context, P) (*R, error)) func(context.Context, P) (R, error) {
	return func(ctx context.Context, p P) (R, error) {
		r, err := fn(ctx, p)
		if err != nil {
			return *new(R), err
		}
		return *r, nil
	}
}

// begin registers a call. Its context ends with the caller's, or when the Shell is closed, whose
// Close then waits for done.
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

// closeGrace is the time that Close waits for the end of killed processes.
var closeGrace = patience.For(15 * time.Second)

// Close cancels running calls, kills all processes and returns when they have ended, or after 15
// seconds with an error if some haven't. A second Close does nothing.
func (s *Shell) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.calls.Wait() // a start in progress is in the list then
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

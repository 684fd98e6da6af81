// Package evaltool is the evaluate_python tool: its parameters and results, the
// validation before anything runs, the files it reads and writes, and the limits
// on what comes back. How code is evaluated is an [Engine]'s part: package python
// has the one for containers.
//
// No code, template or format string of a caller is ever interpreted in this
// process: templates know plain names only, and their values come back from the
// engine as text. What an engine answers is treated as hostile.
package evaltool

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Limits of one call that no option changes.
const (
	MaxReadBytes  = 64 << 20 // of all files that one call reads
	MaxFiles      = 64       // files read, and files written
	MaxWriteChars = 48_000   // characters of one written file
	maxPathFold   = 80       // characters of a caller's own words in a message
)

// Defaults of the options.
const (
	DefaultMaxCode    = 2000
	DefaultMaxTimeout = 5 * time.Second
	minTimeout        = 100 * time.Millisecond
)

// Files is the workspace as evaluations need it; *vfs.FS is one.
type Files interface {
	Stat(ctx context.Context, path string) (vfs.Info, error)
	ReadWhole(ctx context.Context, path string, max int64) ([]byte, vfs.Info, error)
	Apply(ctx context.Context, writes []vfs.Write) ([]vfs.Written, error)
	ChangedSince(b *budget.Budget, mark time.Time, most int) (vfs.Touched, error)
}

// Options configure an Evaluator.
type Options struct {
	Files Files // required
	// Paths says which paths reads, writes and write_text take; default [vfs.ASCII].
	Paths vfs.Grammar
	// Container serves the sandboxes container and restricted, Wasm the sandbox
	// wasm; a nil one makes its sandboxes unsupported.
	Container Engine
	Wasm      Engine
	// Bash and JavaScript evaluate these languages; a nil one makes its language unsupported.
	Bash       Engine
	JavaScript Engine
	// Logger gets one line a run, at debug; nil logs nothing.
	Logger *slog.Logger
	// MaxCode is the length of code in characters, default 2,000.
	MaxCode int
	// MaxTimeout is the longest timeout, default 5 s. A call that names none gets
	// 5 s, or MaxTimeout where that is less.
	MaxTimeout time.Duration
	// MaxOutput is how many characters of stdout and of stderr a result has, default
	// StreamChars.
	MaxOutput int
	// Clean gives a part as progress may report it, without secrets for instance. Default:
	// as it is.
	Clean func(Part) Part
}

// Evaluator is the tool. It may be used from many goroutines at once.
type Evaluator struct {
	opts     Options
	contexts contexts
}

// New makes an Evaluator. It fails only without Files.
func New(opts *Options) (*Evaluator, error) {
	if opts == nil || opts.Files == nil {
		return nil, errors.New("evaltool: Options.Files is required")
	}
	e := &Evaluator{opts: *opts}
	if e.opts.Logger == nil {
		e.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if e.opts.MaxCode <= 0 {
		e.opts.MaxCode = DefaultMaxCode
	}
	if e.opts.MaxTimeout <= 0 {
		e.opts.MaxTimeout = DefaultMaxTimeout
	}
	if e.opts.MaxOutput <= 0 {
		e.opts.MaxOutput = StreamChars
	}
	if e.opts.Clean == nil {
		e.opts.Clean = func(p Part) Part { return p }
	}
	return e, nil
}

// Tools gives the tool evaluate_python.
func (e *Evaluator) Tools() []tool.Tool {
	return []tool.Tool{tool.New(tool.Spec{
		Name:        "evaluate_python",
		Title:       "Evaluate Python",
		Description: e.Guidance(),
		Destructive: true,
		Effect:      tool.ProgramEffect,
		NeedsRoom:   true,
	}, e.Evaluate)}
}

// Evaluate runs one call: it validates, reads, evaluates, and writes everything
// or nothing. Errors are *tool.Error.
func (e *Evaluator) Evaluate(ctx context.Context, params Params) (Result, error) {
	report := tool.Progress(ctx)
	if report == nil {
		return e.Follow(ctx, Run{Params: params}, nil)
	}
	feed := NewFeed(ctx, newest(report, e.opts.Clean))
	defer feed.Close(ctx)
	return e.Follow(ctx, Run{Params: params}, feed)
}

// Follow is Evaluate for a Run, with a Feed for what the code gives while it runs; nil is
// none. Whoever gave the Feed closes it.
func (e *Evaluator) Follow(ctx context.Context, run Run, feed *Feed) (Result, error) {
	c, err := e.prepare(ctx, run)
	if err != nil {
		return Result{}, err
	}
	c.request.Feed = feed
	began := time.Now()
	c.mark = vfs.Mark()
	resp, err := c.engine.Evaluate(ctx, c.request)
	e.forgetRemoved(ctx, c.request.Context)
	if e.mayFallBack(c, err) && ctx.Err() == nil {
		resp, err = e.fallBack(ctx, c, err)
	}
	if err != nil {
		e.log(ctx, c, Result{Status: string(tool.KindOf(err))}, began)
		return Result{}, e.changedBeside(ctx, c, err)
	}
	release := feed.ReleaseAfter(ctx, c.request.Timeout)
	feed.finish(resp)
	release()
	result, err := e.finish(ctx, c, resp)
	result.DurationMS = time.Since(began).Milliseconds()
	e.log(ctx, c, result, began)
	if err != nil {
		return Result{}, err
	}
	return result, nil
}

// mayFallBack reports whether a restricted call whose container can't be had may run in
// WebAssembly, where likewise nothing but the writes has an effect. Kept names are where
// they are.
func (e *Evaluator) mayFallBack(c *call, err error) bool {
	return tool.KindOf(err) == tool.Unavailable && c.request.Sandbox == SandboxRestricted && !c.request.Kept && e.opts.Wasm != nil
}

// fallBack evaluates in WebAssembly. Where that is not installed the error is the
// container's, with both ways out.
func (e *Evaluator) fallBack(ctx context.Context, c *call, cause error) (Response, error) {
	c.request.Sandbox = SandboxWasm
	resp, err := e.opts.Wasm.Evaluate(ctx, c.request)
	if tool.KindOf(err) == tool.Unsupported {
		known := tool.AsError(cause)
		return resp, tool.Errorf(known.Kind, "%s; the sandbox restricted works without a container once `wisbox wasm install` was run", known.Message).Because(cause)
	}
	if err == nil {
		c.notes = append(c.notes, "no container can be had, so this ran in WebAssembly: likewise without effects but the writes, and with all of Python's syntax")
	}
	return resp, err
}

// Reset forgets the names of the kept interpreter context; "" is the tool's own.
func (e *Evaluator) Reset(ctx context.Context, context string) error {
	for _, r := range e.resetters() {
		if err := r.Reset(ctx, context); err != nil {
			return err
		}
	}
	return nil
}

// resetters are the engines that keep something.
func (e *Evaluator) resetters() (found []Resetter) {
	for _, engine := range []Engine{e.opts.Container, e.opts.Wasm, e.opts.Bash, e.opts.JavaScript} {
		if r, ok := engine.(Resetter); ok {
			found = append(found, r)
		}
	}
	return found
}

// Close ends what the engines keep. A later call may start it anew.
func (e *Evaluator) Close() error {
	var errs []error
	for _, r := range e.resetters() {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

func (e *Evaluator) log(ctx context.Context, c *call, r Result, began time.Time) {
	e.opts.Logger.LogAttrs(ctx, slog.LevelDebug, "python.run",
		slog.String("event", "python.run"),
		slog.String("source_event", "asteval.run"), // what the tool that this one succeeds calls it
		slog.String("engine", c.request.Sandbox),
		slog.Int("stdout_len", len(r.Stdout)),
		slog.Int("stderr_len", len(r.Stderr)),
		slog.Int("write_count", len(r.Writes)),
		slog.Int64("duration_ms", time.Since(began).Milliseconds()),
		slog.String("status", r.Status),
		slog.String("code", firstChars(c.request.Code, 200)),
	)
}

func firstChars(text string, n int) string {
	runes := []rune(text[:min(len(text), n*4)])
	return string(runes[:min(len(runes), n)])
}

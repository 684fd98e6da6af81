// Package evaltool implements the tool evaluate_python: its parameters and results, the
// validation before anything runs, the files that it reads and writes, and the limits of
// results. An [Engine] evaluates the code: package python has the one for containers.
//
// This process never interprets a caller's code or format string: it checks the syntax of the
// fields in templates, and the engine returns their texts. An engine's answers are treated as hostile.
package evaltool

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/patience"
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
	DefaultMaxTimeout = 5 * time.Second // stretched on slow machines
	minTimeout        = 100 * time.Millisecond
)

var defaultTimeout = patience.For(DefaultMaxTimeout)

// Files reads and writes files of the workspace; *vfs.FS is one.
type Files interface {
	Stat(ctx context.Context, path string) (vfs.Info, error)
	ReadWhole(ctx context.Context, path string, max int64) ([]byte, vfs.Info, error)
	Apply(ctx context.Context, writes []vfs.Write) ([]vfs.Written, error)
	ChangedSince(b *budget.Budget, mark time.Time, most int) (vfs.Touched, error)
}

// Options configure an Evaluator.
type Options struct {
	Files Files // required
	// Paths is the grammar of paths in reads, writes and write_text; default [vfs.ASCII].
	Paths vfs.Grammar
	// Container evaluates for the sandboxes container and restricted, Wasm for the sandbox wasm, and for
	// restricted if there is no container; nil makes these sandboxes unsupported.
	Container Engine
	Wasm      Engine
	// Bash and JavaScript evaluate these languages; a nil one makes its language unsupported.
	Bash       Engine
	JavaScript Engine
	// Logger gets a line for each run, at level debug; nil logs nothing.
	Logger *slog.Logger
	// LoggedCode returns the beginning of the code as the line has it, without secrets for instance.
	// Default: unchanged.
	LoggedCode func(string) string
	// MaxCode is the length of code in characters, default 2,000.
	MaxCode int
	// MaxTimeout is the maximum timeout, default 5 s. The default timeout of a call is 5 s, or
	// MaxTimeout if that is less.
	MaxTimeout time.Duration
	// MaxOutput is the maximum of characters of stdout and of stderr in a result, default StreamChars.
	MaxOutput int
	// Clean returns a part as progress may report it, without secrets for instance. Default: unchanged.
	Clean func(Part) Part
}

// Evaluator is the tool. It may be used from many goroutines at once.
type Evaluator struct {
	opts     Options
	contexts contexts
}

// New returns an Evaluator. It returns an error only if Files is missing.
func New(opts *Options) (*Evaluator, error) {
	if opts == nil || opts.Files == nil {
		return nil, errors.New("evaltool: Options.Files is required")
	}
	e := &Evaluator{opts: *opts}
	if e.opts.Logger == nil {
		e.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if e.opts.LoggedCode == nil {
		e.opts.LoggedCode = func(code string) string { return code }
	}
	if e.opts.MaxCode <= 0 {
		e.opts.MaxCode = DefaultMaxCode
	}
	if e.opts.MaxTimeout <= 0 {
		e.opts.MaxTimeout = defaultTimeout
	}
	if e.opts.MaxOutput <= 0 {
		e.opts.MaxOutput = StreamChars
	}
	if e.opts.Clean == nil {
		e.opts.Clean = func(p Part) Part { return p }
	}
	return e, nil
}

// Tools returns the tool evaluate_python.
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

// Follow is like Evaluate for a Run, with a Feed for the parts of the answer while the code runs;
// nil means none. The caller closes the Feed.
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

// mayFallBack reports whether a restricted call without a container may run in WebAssembly, where
// the same interpreter runs. A call with kept names may not, since its names are elsewhere.
func (e *Evaluator) mayFallBack(c *call, err error) bool {
	return tool.KindOf(err) == tool.Unavailable && c.request.Sandbox == SandboxRestricted && !c.request.Kept && e.opts.Wasm != nil
}

// fallBack evaluates in WebAssembly. If that can't be used either, it returns both errors.
func (e *Evaluator) fallBack(ctx context.Context, c *call, cause error) (Response, error) {
	resp, err := e.opts.Wasm.Evaluate(ctx, c.request)
	if tool.KindOf(err) == tool.Unsupported {
		known := tool.AsError(cause)
		return resp, tool.Errorf(known.Kind, "%s; without a container the sandbox restricted needs WebAssembly, but %s", known.Message, tool.AsError(err).Message).Because(cause)
	}
	if err == nil {
		c.notes = append(c.notes, "no container is available, so this ran in WebAssembly")
	}
	return resp, err
}

// Reset drops the names of a kept interpreter; "" means the tool's own.
func (e *Evaluator) Reset(ctx context.Context, context string) error {
	for _, r := range e.resetters() {
		if err := r.Reset(ctx, context); err != nil {
			return err
		}
	}
	return nil
}

// resetters returns the engines that keep interpreters.
func (e *Evaluator) resetters() (found []Resetter) {
	for _, engine := range []Engine{e.opts.Container, e.opts.Wasm, e.opts.Bash, e.opts.JavaScript} {
		if r, ok := engine.(Resetter); ok {
			found = append(found, r)
		}
	}
	return found
}

// Close ends the interpreters that the engines keep. A later call may start them again.
func (e *Evaluator) Close() error {
	var errs []error
	for _, r := range e.resetters() {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

func (e *Evaluator) log(ctx context.Context, c *call, r Result, began time.Time) {
	e.opts.Logger.LogAttrs(ctx, slog.LevelDebug, "asteval.run",
		slog.String("event", "asteval.run"), // of every language and sandbox
		slog.String("engine", c.request.Sandbox),
		slog.Int("stdout_len", len(r.Stdout)),
		slog.Int("stderr_len", len(r.Stderr)),
		slog.Int("write_count", len(r.Writes)),
		slog.Int64("duration_ms", time.Since(began).Milliseconds()),
		slog.String("status", r.Status),
		slog.String("code", e.opts.LoggedCode(firstChars(c.request.Code, 200))),
	)
}

func firstChars(text string, n int) string {
	runes := []rune(text[:min(len(text), n*4)])
	return string(runes[:min(len(runes), n)])
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// app is one invocation: its streams and the flags that every command has.
type app struct {
	in       io.Reader
	out, err io.Writer

	json  bool
	debug bool
	cache string
	url   string

	noConfig bool

	wasm wasm.Options // of the commands that have the flags
}

// Exit codes. run, exec and shell pass the program's own code on.
const (
	exitOK     = 0
	exitError  = 1   // an error object was printed
	exitUsage  = 2   // the command line is wrong
	exitEngine = 125 // run, exec, shell: wisbox or Podman failed, or the sandbox was lost
)

// exitCode is an error that only sets the exit code: all has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func (a *app) main(ctx context.Context, args []string) int {
	root := a.newRootCmd()
	root.SetArgs(args)
	return a.report(ctx, root.ExecuteContext(ctx))
}

// report prints err and turns it into the exit code; the topic "exit-codes"
// says the same to users.
func (a *app) report(ctx context.Context, err error) int {
	var code exitCode
	var usage usageError
	var sig signalled
	var lost lostOutput
	ended := context.Cause(ctx)
	switch {
	case errors.As(ended, &sig) && (err != nil || sig.sig == syscall.SIGPIPE):
		return sandbox.ExitSignalBase + int(sig.sig)
	case errors.As(err, &code):
		return int(code)
	case errors.As(ended, &lost):
		a.printError(tool.Errorf(tool.Unavailable, "the output can't be written: %s", errors.Unwrap(lost.error)).Because(lost))
		return exitError
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		known := (*tool.Error)(nil)
		if !errors.As(usage.error, &known) {
			known = tool.Errorf(tool.Invalid, "%s", usage.Error())
		}
		a.printError(known)
		return exitUsage
	}
	a.printError(tool.AsError(err))
	if a.debug {
		fmt.Fprintf(a.err, "cause: %v\n", errors.Unwrap(tool.AsError(err)))
	}
	return exitError
}

func (a *app) printError(err *tool.Error) {
	if a.json {
		_ = writeJSON(a.err, map[string]*tool.Error{"error": err})
		return
	}
	where := ""
	if err.Field != "" && !strings.Contains(err.Message, err.Field) {
		where = " (" + err.Field + ")"
	}
	fmt.Fprintf(a.err, "wisbox: %s%s: %s\n", err.Kind, where, printable(err.Message))
}

// engineError gives the errors of run, exec and shell their exit code: 1 could
// be the program's own, which passes.
func (a *app) engineError(ctx context.Context, err error) error {
	if passed := exitCode(0); errors.As(err, &passed) {
		return err
	}
	switch code := a.report(ctx, err); code {
	case exitOK:
		return nil
	case exitError:
		return exitCode(exitEngine)
	default:
		return exitCode(code)
	}
}

// stdin is what a command reads whole. A read of a terminal or a pipe may last for
// ever: this one ends with ctx.
func (a *app) stdin(ctx context.Context) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, a.in)
		_ = w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	return r
}

// openInput opens a file that a person named, where - is stdin.
func (a *app) openInput(ctx context.Context, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(a.stdin(ctx)), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, hostError(err)
	}
	return f, nil
}

// manager opens the state root with the flags that every command has.
func (a *app) manager(ctx context.Context) (*wisbox.Manager, error) {
	opts := a.options(a.logger())
	opts.Holder = a.holdCommand()
	return wisbox.NewManager(ctx, opts)
}

// withSession does something with a session that exists, and leaves it then. What
// was done until a signal came is no success.
func (a *app) withSession(ctx context.Context, name string, do func(*wisbox.Session) error) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.Attach(ctx, name)
	if err != nil {
		return asUsage(err)
	}
	return errors.Join(do(s), ctx.Err(), a.closeSession(ctx, s))
}

func (a *app) options(log *slog.Logger) *wisbox.Options {
	return &wisbox.Options{
		CacheDir: a.cache, Podman: podman.Options{BaseURL: a.url}, Logger: log, Wasm: a.wasm,
	}
}

// logger is silent without --debug: what matters is an error.
func (a *app) logger() *slog.Logger {
	if !a.debug {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// print writes v as JSON with --json, else what text renders.
func (a *app) print(v any, text func(io.Writer)) error {
	if !a.json {
		text(a.out)
		return nil
	}
	return a.printJSON(v)
}

func (a *app) printJSON(v any) error { return writeJSON(a.out, v) }

// writeJSON writes v on one line, with escapes for what could steer a terminal and
// JSON allows as it is.
func writeJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, printableJSON(b.String()))
	return err
}

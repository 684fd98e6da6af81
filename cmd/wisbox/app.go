package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// app is one invocation: its streams and the flags of every command.
type app struct {
	in       io.Reader
	out, err io.Writer
	signals  *streams.Signals // nil in tests
	args     []string
	ofTools  bool // the command is about tools, and its errors name them

	json  bool
	debug bool
	cache string
	url   string

	pod bool // this is a container of a Pod, which has one session

	remote string // as given by the flag
	far    string // the address of the machine that has the sessions; "" for this one
	farKey string // its API key; "" for the environment's
	farCA  string // the file of its certificate authorities

	noConfig bool

	wasm wasm.Options // for commands with the flags
}

// Exit codes. run, exec and shell pass on the program's own code.
const (
	exitOK     = 0
	exitError  = 1   // an error object was printed
	exitUsage  = 2   // the command line is wrong
	exitEngine = 125 // run, exec, shell: wisbox or Podman failed, or the sandbox was lost
)

// exitCode is an error that only sets the exit code: the command has printed its message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func (a *app) main(ctx context.Context, args []string) int {
	a.args = args
	root := a.newRootCmd()
	root.SetArgs(args)
	return a.report(ctx, root.ExecuteContext(ctx))
}

// report prints err and returns the exit code, as the help topic "exit-codes" describes it.
func (a *app) report(ctx context.Context, err error) int {
	var code exitCode
	var usage usageError
	var sig streams.Signalled
	var lost streams.Lost
	ended := context.Cause(ctx)
	switch {
	case errors.As(err, &sig), errors.As(ended, &sig) && (err != nil || sig.Signal == syscall.SIGPIPE):
		return sandbox.ExitSignalBase + int(sig.Signal)
	case errors.As(err, &code):
		return int(code)
	case errors.As(ended, &lost):
		a.printError(lost.Report())
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
		fmt.Fprintln(a.err, streams.Printable(fmt.Sprintf("cause: %v", errors.Unwrap(tool.AsError(err)))))
	}
	return exitError
}

func (a *app) printError(err *tool.Error) {
	if a.json {
		_ = streams.WriteJSON(a.err, map[string]*tool.Error{"error": err})
		return
	}
	where := ""
	if strings.HasPrefix(err.Field, "--") && !strings.Contains(err.Message, err.Field) { // other fields are the API's
		where = " (" + err.Field + ")"
	}
	text := err.Message
	if !a.ofTools {
		text = inCommands(text)
	}
	fmt.Fprintln(a.err, streams.Printable(fmt.Sprintf("wisbox: %s%s: %s", err.Kind, where, text)))
}

// engineError gives the errors of run, exec and shell an exit code of their own: 1 could be the
// program's.
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

// stdin returns the input for commands that read all of it. A read of a terminal or a pipe may
// block for ever, so this one ends with ctx.
func (a *app) stdin(ctx context.Context) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, a.in)
		_ = w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	return r
}

// openInput opens a file that a person named; - is stdin.
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

// manager opens the state root with the flags of every command.
func (a *app) manager(ctx context.Context) (*wisbox.Manager, error) {
	opts := a.options(a.logger())
	opts.Holder = a.holdCommand()
	return wisbox.NewManager(ctx, opts)
}

// withSession calls do with an existing session and then detaches from it. If a signal came, it
// returns an error even if do succeeded.
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
	opts := &wisbox.Options{
		CacheDir: a.cache, Podman: podman.Options{BaseURL: a.url}, Logger: log, Wasm: a.wasm, Far: a.far, FarKey: a.farKey, FarCAFile: a.farCA, Version: version,
	}
	opts.Wasm.Loading = liftMemory
	if a.pod {
		a.inPod(opts)
	}
	return opts
}

// logger discards everything without --debug: important events are errors.
func (a *app) logger() *slog.Logger {
	if !a.debug {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// print writes v as JSON with --json, otherwise the output of text.
func (a *app) print(v any, text func(io.Writer)) error {
	if !a.json {
		var b strings.Builder
		text(&b)
		_, err := io.WriteString(a.out, streams.Printable(b.String()))
		return err
	}
	return a.printJSON(v)
}

func (a *app) printJSON(v any) error { return streams.WriteJSON(a.out, v) }

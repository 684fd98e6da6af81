package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

type evalOptions struct {
	sessionFlags
	engine     wasmFlags
	session    string
	file       string
	keep       bool
	context    string
	restricted bool
	wasm       bool
	globals    []string
	reads      []string
	writes     []string
	timeout    time.Duration
	out        string
}

func (a *app) newEvalCmd() *cobra.Command {
	return group("eval", "Evaluate code in a sandbox", append(hidden(a.newEvalLispCmd()), a.newEvalPythonCmd())...)
}

func (a *app) newEvalPythonCmd() *cobra.Command {
	opts := &evalOptions{}
	cmd := &cobra.Command{
		Use:   "python [flags] [CODE]",
		Short: "Evaluate Python and print its value",
		Long: `Evaluates Python with the tool evaluate_python, in a new session, or with --session in a
kept one. Prints the code's output while it runs, then its value; --out saves
pictures and tables. %magic, !command and display() work as in notebooks: see
docs/python.md. The exit code is 1 if the code raised, and 124 if it timed out.`,
		Example: `  wisbox eval python '1 + 1'
  wisbox eval python --global 'n=[1,2,3]' 'sum(n)'
  wisbox eval python '%timeit sum(range(1000))'
  wisbox eval python --session box --keep -f analysis.py --out plots`,
		Args: codeOr(&opts.file),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if a.wasm, err = opts.engine.options(); err != nil {
				return err
			}
			if err := opts.check(a.wasm); err != nil {
				return err
			}
			return a.runEvalPython(cmd.Context(), opts, args)
		},
	}
	opts.sessionFlags.register(cmd.Flags())
	markRare(opts.sessionFlags.flags, "image", "mount")
	flags := cmd.Flags()
	flags.StringVar(&opts.session, "session", "", "`NAME` of a kept session to evaluate in (default: a new one)")
	flags.StringVarP(&opts.file, "file", "f", "", "read the code from this `FILE`, - is stdin")
	flags.BoolVar(&opts.keep, "keep", false, "keep names between calls of the session")
	flags.StringVar(&opts.context, "context", "", "keep names in the context of this `NAME`; see: wisbox lab context")
	flags.BoolVar(&opts.restricted, "restricted", false, "use the sandbox restricted, whose only effects are writes; without a container it runs in WebAssembly")
	flags.BoolVar(&opts.wasm, "wasm", false, "use Python in WebAssembly, which needs no Podman; see: wisbox lab wasm install")
	opts.engine.register(flags)
	flags.StringArrayVar(&opts.globals, "global", nil, "a name and its value, as `NAME=JSON`; repeatable")
	flags.StringArrayVar(&opts.reads, "read", nil, "`FILE` of the workspace for the code; repeatable")
	flags.StringArrayVar(&opts.writes, "write", nil, "file to write after success, as `PATH=TEMPLATE`; repeatable")
	flags.Var(timeFlag{&opts.timeout}, "timeout", "end the code after this `TIME`, e.g. 0.5, 5s or 2m; a kept session has its own limit (default 5s)")
	flags.StringVar(&opts.out, "out", "", "`DIR` for displayed pictures and tables")
	return cmd
}

func (a *app) runEvalPython(ctx context.Context, opts *evalOptions, args []string) error {
	raw, err := a.evalArguments(ctx, opts, args)
	if err != nil {
		return err
	}
	var params evaltool.Params
	if err := json.Unmarshal(raw, &params); err != nil {
		return err
	}
	return a.inSession(ctx, opts.session, &opts.sessionFlags, opts.ofAPerson, func(s *wisbox.Session) error {
		shown := &liveOutput{out: a.out, err: a.err, raw: !isTerminal(a.out)} // output to a file or a program stays unchanged
		if a.json {
			shown.out, shown.err = io.Discard, io.Discard
		}
		res, err := s.Evaluate(ctx, evaltool.Run{Params: params}, shown.part)
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(res.Value)
		} else {
			err = shown.end(res)
		}
		return errors.Join(err, a.saveDisplay(res, opts.out), failedCode(res))
	})
}

// ofAPerson sets bounds for a person's own file rather than a model's snippet.
func (o *evalOptions) ofAPerson(so *wisbox.SessionOptions) {
	so.MaxCode = tool.MaxArguments
	so.MaxEvalTimeout = max(so.MaxEvalTimeout, patience.For(evaltool.DefaultMaxTimeout), o.timeout)
}

// callIn calls a tool in the kept session with that name. If name is "", it opens a session with
// the flags, after adjust has changed the options; adjust may be nil.
func (a *app) callIn(ctx context.Context, name string, flags *sessionFlags, adjust func(*wisbox.SessionOptions), toolName string, args json.RawMessage) (res *tool.Result, err error) {
	err = a.inSession(ctx, name, flags, adjust, func(s *wisbox.Session) error {
		res, err = s.CallOwn(ctx, toolName, args)
		return err
	})
	return res, err
}

// inSession calls do with such a session.
func (a *app) inSession(ctx context.Context, name string, flags *sessionFlags, adjust func(*wisbox.SessionOptions), do func(*wisbox.Session) error) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := a.attachOrOpen(ctx, m, name, flags, adjust)
	if err != nil {
		return err
	}
	defer func() { _ = a.closeSession(ctx, s) }()
	return do(s)
}

func (a *app) attachOrOpen(ctx context.Context, m *wisbox.Manager, name string, flags *sessionFlags, adjust func(*wisbox.SessionOptions)) (*wisbox.Session, error) {
	if name != "" {
		s, err := m.Attach(ctx, name)
		return s, asUsage(err)
	}
	so, err := a.sessionOptions(flags)
	if err != nil {
		return nil, err
	}
	if adjust != nil {
		adjust(so)
	}
	return a.open(ctx, m, flags, so)
}

func (a *app) evalArguments(ctx context.Context, opts *evalOptions, args []string) (json.RawMessage, error) {
	params := map[string]any{}
	code, err := a.code(ctx, opts.file, args)
	if err != nil {
		return nil, err
	}
	params["code"] = code
	if opts.keep {
		params["state"] = "kept"
	}
	if opts.context != "" {
		params["context"] = opts.context
	}
	if opts.restricted {
		params["sandbox"] = "restricted"
	}
	if opts.wasm {
		params["sandbox"] = "wasm"
	}
	if a.wasm.Fuel != 0 {
		params["fuel"] = a.wasm.Fuel
	}
	if a.wasm.Memory != 0 {
		params["memory"] = a.wasm.Memory
	}
	if opts.timeout != 0 {
		params["timeout"] = opts.timeout.Seconds()
	}
	globals := map[string]string{}
	for _, g := range opts.globals {
		name, value, ok := strings.Cut(g, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--global is %q; write it as NAME=JSON", g)}
		}
		if !json.Valid([]byte(value)) {
			return nil, usageError{fmt.Errorf("--global: the value of %s is not JSON; write a string with its quotes, for instance", name)}
		}
		globals[name] = value
	}
	params["globals"] = globals
	params["reads"] = pathsOf(opts.reads)
	writes := []map[string]string{}
	for _, w := range opts.writes {
		path, content, ok := strings.Cut(w, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--write is %q; write it as PATH=TEMPLATE", w)}
		}
		writes = append(writes, map[string]string{"path": path, "content": content})
	}
	params["writes"] = writes
	return json.Marshal(params)
}

func pathsOf(paths []string) []map[string]string {
	out := []map[string]string{}
	for _, p := range paths {
		out = append(out, map[string]string{"path": p})
	}
	return out
}

// codeOr requires the argument CODE unless a file is given.
func codeOr(file *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if *file != "" {
			return noArgs(cmd, args)
		}
		return exactArgs("CODE")(cmd, args)
	}
}

func (a *app) code(ctx context.Context, file string, args []string) (string, error) {
	if file == "" {
		return args[0], nil
	}
	in, err := a.openInput(ctx, file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	raw, err := io.ReadAll(io.LimitReader(in, tool.MaxArguments))
	if err != nil {
		return "", hostError(err)
	}
	return string(raw), nil
}

// check refuses flags without an effect and flags that contradict each other.
func (o *evalOptions) check(engine wasm.Options) error {
	switch {
	case !o.wasm && (engine.Module != "" || engine.Fuel != 0 || engine.Memory != 0):
		return usageError{errors.New("--wasm-python, --wasm-fuel and --wasm-memory are for --wasm; give it too")}
	case o.restricted && o.wasm:
		return usageError{errors.New("--restricted and --wasm exclude each other; give one of them")}
	case o.timeout < 0 || o.timeout > maxEvalTimeout:
		return usageError{fmt.Errorf("--timeout is %s; it must be from 0.1s to %s", o.timeout, maxEvalTimeout)}
	}
	if o.session != "" && engine.Module != "" {
		return usageError{errors.New("--wasm-python and --session exclude each other: a kept session has the installed module, or that of WISBOX_WASM_PYTHON")}
	}
	return o.refuseFor(o.session)
}

// maxEvalTimeout bounds a person's own code; a session's limit is for a model's code.
const maxEvalTimeout = 24 * time.Hour

func failedCode(res *tool.Result) error {
	if !res.Failed {
		return nil
	}
	if e, err := evaluationOf(res); err == nil && e.Status == evaltool.StatusTimedOut {
		return exitCode(sandbox.ExitTimeout)
	}
	return exitCode(exitError)
}

var displayExt = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg", "text/html": ".html", "text/markdown": ".md",
	"text/latex": ".tex", "application/json": ".json", "application/javascript": ".js", "application/pdf": ".pdf",
}

// saveDisplay writes displayed objects to the files 1.png, 2.html, … in dir, and reports them.
func (a *app) saveDisplay(res *tool.Result, dir string) error {
	if dir == "" {
		return nil
	}
	e, err := evaluationOf(res)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return hostError(err)
	}
	pictures := res.Blobs
	for i, d := range e.Display {
		data := []byte(d.Data)
		if len(pictures) > 0 && pictures[0].MIME == d.MIME {
			data, pictures = pictures[0].Data, pictures[1:]
		}
		ext, ok := displayExt[d.MIME]
		if !ok {
			ext = ".txt"
		}
		path := filepath.Join(dir, fmt.Sprintf("%d%s", i+1, ext))
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return hostError(err)
		}
		if !a.json {
			fmt.Fprintln(a.err, "wisbox: saved", streams.Printable(path))
		}
	}
	return nil
}

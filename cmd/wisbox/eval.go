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
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

type evalOptions struct {
	sessionFlags
	session    string
	file       string
	keep       bool
	restricted bool
	wasm       bool
	globals    []string
	reads      []string
	writes     []string
	timeout    float64
	out        string
}

func (a *app) newEvalCmd() *cobra.Command {
	return group("eval", "Evaluate code in a sandbox", a.newEvalPythonCmd())
}

func (a *app) newEvalPythonCmd() *cobra.Command {
	opts := &evalOptions{}
	cmd := &cobra.Command{
		Use:   "python [flags] [CODE]",
		Short: "Evaluate Python and print its value",
		Long: `Evaluates Python in a session of its own, or with --session in a kept one, through
the tool evaluate_python. What the code prints goes to stdout, then its value. Code
that raises is exit code 1.`,
		Example: `  wisbox eval python '1 + 1'
  wisbox eval python --global 'n=[1,2,3]' 'sum(n)'
  wisbox eval python --session box --keep -f analysis.py --out plots`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && opts.file == "" {
				return nil
			}
			if opts.file != "" {
				return noArgs(cmd, args)
			}
			return exactArgs("CODE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opts.check(a.wasmPython); err != nil {
				return err
			}
			return a.runEvalPython(cmd.Context(), opts, args)
		},
	}
	opts.sessionFlags.register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&opts.session, "session", "", "kept session, its `NAME`, to evaluate in (default: one of its own)")
	flags.StringVarP(&opts.file, "file", "f", "", "read the code from this `FILE`, - is stdin")
	flags.BoolVar(&opts.keep, "keep", false, "keep names between calls of the session")
	flags.BoolVar(&opts.restricted, "restricted", false, "use the small safe interpreter")
	flags.BoolVar(&opts.wasm, "wasm", false, "use Python in WebAssembly, which needs no Podman; see: wisbox wasm install")
	flags.StringVar(&a.wasmPython, "wasm-python", "", "`FILE` python.wasm for --wasm (default the installed one)")
	flags.StringArrayVar(&opts.globals, "global", nil, "a name and its value, as `NAME=JSON`; repeatable")
	flags.StringArrayVar(&opts.reads, "read", nil, "`FILE` of the workspace for the code; repeatable")
	flags.StringArrayVar(&opts.writes, "write", nil, "file to write after success, as `PATH=TEMPLATE`; repeatable")
	flags.Float64Var(&opts.timeout, "timeout", 0, "`SECONDS`, from 0.1; a kept session has a limit of its own (default 5)")
	flags.StringVar(&opts.out, "out", "", "`DIR` for what the code displays, pictures above all")
	return cmd
}

func (a *app) runEvalPython(ctx context.Context, opts *evalOptions, args []string) error {
	raw, err := a.evalArguments(ctx, opts, args)
	if err != nil {
		return err
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := a.evalSession(ctx, m, opts)
	if err != nil {
		return err
	}
	defer func() { _ = a.closeSession(ctx, s) }()
	res, err := s.Call(ctx, "evaluate_python", raw)
	if err != nil {
		return err
	}
	return errors.Join(a.printEvaluation(res), saveDisplay(res, opts.out), failedCode(res))
}

func (a *app) evalSession(ctx context.Context, m *wisbox.Manager, opts *evalOptions) (*wisbox.Session, error) {
	if opts.session != "" {
		s, err := m.Attach(ctx, opts.session)
		return s, asUsage(err)
	}
	so, err := a.sessionOptions(&opts.sessionFlags)
	if err != nil {
		return nil, err
	}
	so.MaxCode = tool.MaxArguments // a person's own file is not a model's snippet
	so.MaxEvalTimeout = max(evaltool.DefaultMaxTimeout, time.Duration(opts.timeout*float64(time.Second)))
	return a.open(ctx, m, &opts.sessionFlags, so)
}

func (a *app) evalArguments(ctx context.Context, opts *evalOptions, args []string) (json.RawMessage, error) {
	params := map[string]any{}
	code, err := a.code(ctx, opts, args)
	if err != nil {
		return nil, err
	}
	params["code"] = code
	if opts.keep {
		params["state"] = "kept"
	}
	if opts.restricted {
		params["sandbox"] = "restricted"
	}
	if opts.wasm {
		params["sandbox"] = "wasm"
	}
	if opts.timeout != 0 {
		params["timeout"] = opts.timeout
	}
	globals := map[string]string{}
	for _, g := range opts.globals {
		name, value, ok := strings.Cut(g, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--global is %q; write it as NAME=JSON", g)}
		}
		if !json.Valid([]byte(value)) {
			return nil, usageError{fmt.Errorf("--global: the value of %s is not JSON; a string has its quotes for instance", name)}
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

func (a *app) code(ctx context.Context, opts *evalOptions, args []string) (string, error) {
	if opts.file == "" {
		return args[0], nil
	}
	in, err := a.openInput(ctx, opts.file)
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

// check refuses flags that say nothing, or nothing together.
func (o *evalOptions) check(wasmPython string) error {
	switch {
	case o.restricted && o.wasm:
		return usageError{errors.New("--restricted and --wasm are two interpreters; take one of them")}
	case !(o.timeout >= 0 && o.timeout <= maxEvalTimeout.Seconds()):
		return usageError{fmt.Errorf("--timeout is %v; it must be from 0.1 to %v seconds", o.timeout, maxEvalTimeout.Seconds())}
	}
	if o.session != "" && wasmPython != "" {
		return usageError{errors.New("--wasm-python is for a session of eval's own; a kept one has the installed module, or that of WISBOX_WASM_PYTHON")}
	}
	return o.refuseFor(o.session)
}

// maxEvalTimeout is how long a person's own code may run; a session's own limit is
// for a model's.
const maxEvalTimeout = 24 * time.Hour

// evaluation is what of a result a person wants to see.
type evaluation struct {
	Value   *string `json:"value_repr"`
	Stdout  string  `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Status  string  `json:"status"`
	Message string  `json:"message"`
	Display []struct {
		MIME string `json:"mime"`
		Data string `json:"data"`
	} `json:"display"`
}

func evaluationOf(res *tool.Result) (evaluation, error) {
	var e evaluation
	raw, err := json.Marshal(res.Value)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(raw, &e)
}

func (a *app) printEvaluation(res *tool.Result) error {
	if a.json {
		return a.printJSON(res.Value)
	}
	e, err := evaluationOf(res)
	if err != nil {
		return err
	}
	fmt.Fprint(a.out, e.Stdout)
	fmt.Fprint(a.err, printable(e.Stderr))
	if e.Value != nil {
		fmt.Fprintln(a.out, printable(*e.Value))
	}
	if e.Message != "" {
		fmt.Fprintln(a.err, "wisbox:", printable(e.Message))
	}
	return nil
}

func failedCode(res *tool.Result) error {
	if res.Failed {
		return exitCode(exitError)
	}
	return nil
}

var displayExt = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg", "text/html": ".html", "text/markdown": ".md",
	"text/latex": ".tex", "application/json": ".json",
}

// saveDisplay writes what was displayed as files 1.png, 2.html, … into dir.
func saveDisplay(res *tool.Result, dir string) error {
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
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d%s", i+1, ext)), data, 0o644); err != nil {
			return hostError(err)
		}
	}
	return nil
}

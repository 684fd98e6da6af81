package wasm_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/internal/conformance"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// TestConformance runs the shared cases on this engine, without a container: the
// file tools, evaluate_python and the context operations over one directory.
func TestConformance(t *testing.T) {
	const own = "../../integration/testdata/cases"
	if hosttest.Raced {
		t.Setenv("WISBOX_SLACK", "8")
	}
	dir := conformance.Dir(own)
	target := func(t *testing.T) conformance.Target {
		return &conformance.InProcess{Start: func(context.Context, conformance.OpenOptions) (*conformance.Local, error) {
			return &conformance.Local{Do: toolsOver(t, t.TempDir(), engine(t))}, nil
		}}
	}
	conformance.Run(t, target, &conformance.Options{Skip: notForWasm, Parallel: true},
		filepath.Join(dir, "rlm.jsonl"), filepath.Join(own, "own-rlm.jsonl"), filepath.Join(dir, "python.jsonl"), filepath.Join(own, "own-python.jsonl"), filepath.Join(own, "own-notebook.jsonl"))
}

// notForWasm returns the reason to skip a case: it names another sandbox, or differs by design.
func notForWasm(c *conformance.Case) string {
	switch {
	case namesAnother(c.Args):
		return "for another sandbox"
	case c.ID == "python.fresh.random":
		return "random numbers are the same on every run here"
	case strings.HasPrefix(c.ID, "own.notebook.limits."):
		return "limits by choice are a session's options, and here is none"
	case c.ID == "python.kept.died", c.ID == "own.notebook.context.timeout", c.ID == "own.notebook.context.ends", c.ID == "own.notebook.interrupt":
		return "an interpreter that ends in the midst leaves the kept names as they were"
	}
	return ""
}

func namesAnother(args json.RawMessage) bool {
	var p struct{ Sandbox string }
	return json.Unmarshal(args, &p) == nil && p.Sandbox == evaltool.SandboxContainer
}

type call = func(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error)

func toolsOver(t *testing.T, dir string, e *wasm.Engine) call {
	files := openFiles(t, dir)
	eval, err := evaltool.New(&evaltool.Options{Files: files, Wasm: patient{e.Session(files)}})
	require.NoError(t, err)
	ops, err := rlm.New(&rlm.Options{Files: files, Eval: e})
	require.NoError(t, err)
	set := tool.NewSet(append(append(append(files.Tools(), eval.Tools()...), ops.Tools()...), hostScript(filepath.Join(dir, "workspace")))...)
	return func(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error) {
		if name == "evaluate_python" {
			args = inWasm(args)
		}
		return set.Call(ctx, name, args)
	}
}

// patient gives calls without a timeout a minute: on a busy machine the default of 5 s is over before much Python has run.
// A loop without an end tests that default, and keeps it.
type patient struct{ *wasm.Session }

func (p patient) Evaluate(ctx context.Context, req evaltool.Request) (evaltool.Response, error) {
	if req.Timeout == evaltool.DefaultMaxTimeout && !strings.Contains(req.Code, "while True") {
		req.Timeout = time.Minute
	}
	return p.Session.Evaluate(ctx, req)
}

type scriptParams struct {
	Script  string  `json:"script"`
	Timeout float64 `json:"timeout,omitempty"`
}

type scriptResult struct {
	ExitCode int    `json:"exit_code"`
	Status   string `json:"status"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
}

// hostScript replaces shell_execute: it runs the scripts of our cases in the directory itself. Evaluations can't reach
// it.
func hostScript(dir string) tool.Tool {
	return tool.New(tool.Spec{Name: "shell_execute"}, func(ctx context.Context, p scriptParams) (scriptResult, error) {
		cmd := exec.CommandContext(ctx, "bash", "-c", p.Script)
		cmd.Dir = dir
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return scriptResult{}, err
		}
		return scriptResult{ExitCode: cmd.ProcessState.ExitCode(), Status: "exited", Stdout: string(out)}, nil
	})
}

// inWasm sets the sandbox if a case uses the default.
func inWasm(args json.RawMessage) json.RawMessage {
	var fields map[string]any
	if json.Unmarshal(args, &fields) != nil || fields["sandbox"] != nil {
		return args
	}
	fields["sandbox"] = "wasm"
	raw, _ := json.Marshal(fields)
	return raw
}

func openFiles(t *testing.T, dir string) *vfs.FS {
	t.Helper()
	roots := map[string]*os.Root{}
	for _, name := range []string{"workspace", "tmp"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(path, 0o700))
		root, err := os.OpenRoot(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = root.Close() })
		roots[name] = root
	}
	files, err := vfs.New(&vfs.Options{Root: roots["workspace"], Tmp: roots["tmp"]})
	require.NoError(t, err)
	return files
}

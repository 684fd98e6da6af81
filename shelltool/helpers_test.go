package shelltool_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// bench is a Shell over the Host backend.
type bench struct {
	t         *testing.T
	host      *sandboxtest.Host
	spec      sandbox.Spec
	box       sandbox.Sandbox
	shell     *shelltool.Shell
	tools     *tool.Set
	workspace string
	output    string
}

func newBench(t *testing.T, change ...func(*shelltool.Options)) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{t: t, host: sandboxtest.NewHost(), workspace: filepath.Join(dir, "workspace"), output: filepath.Join(dir, "output")}
	b.spec = sandbox.Spec{ID: "bench", Image: "host", Workspace: b.workspace}
	opts := &shelltool.Options{
		Runner: func(context.Context) (sandbox.Runner, error) { return b.box, nil },
		Files:  b.files(dir), Output: b.root(b.output),
	}
	for _, c := range change {
		c(opts)
	}
	var err error
	b.box, err = b.host.Create(context.Background(), b.spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.box.Close(context.Background())) })
	b.shell, err = shelltool.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.shell.Close()) })
	b.tools = tool.NewSet(b.shell.Tools()...)
	return b
}

func (b *bench) root(dir string) *os.Root {
	b.t.Helper()
	require.NoError(b.t, os.MkdirAll(dir, 0o700))
	root, err := os.OpenRoot(dir)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = root.Close() })
	return root
}

func (b *bench) files(dir string) *vfs.FS {
	b.t.Helper()
	files, err := vfs.New(&vfs.Options{Root: b.root(b.workspace), Tmp: b.root(filepath.Join(dir, "tmp"))})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = files.Close() })
	return files
}

// flood is a runner whose programs write that many bytes to stdout and end.
type flood int

func (n flood) Run(_ context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	_, err := cmd.Stdout.Write(make([]byte, n))
	return sandbox.Result{Status: sandbox.StatusExited, Stdout: sandbox.Stream{Bytes: int64(n)}}, err
}

func (n flood) Start(context.Context, sandbox.Cmd) (sandbox.Process, error) {
	return nil, sandbox.ErrUnsupported
}

// call calls a tool with JSON, as every surface does.
func (b *bench) call(name, args string) (*tool.Result, error) {
	return b.tools.Call(context.Background(), name, json.RawMessage(args))
}

// must calls a tool that has to succeed and returns its value.
func must[R any](b *bench, name, args string) (R, *tool.Result) {
	b.t.Helper()
	res, err := b.call(name, args)
	require.NoError(b.t, err)
	return res.Value.(R), res
}

func (b *bench) execute(args string) (shelltool.ExecuteResult, *tool.Result) {
	b.t.Helper()
	return must[shelltool.ExecuteResult](b, "shell_execute", args)
}

// script runs a script with further arguments, `"cwd":"x"` for instance.
func (b *bench) script(script string, more ...string) (shelltool.ExecuteResult, *tool.Result) {
	b.t.Helper()
	return b.execute("{" + strings.Join(append(more, `"script":`+quote(script)), ",") + "}")
}

func quote(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

func (b *bench) start(args string) string {
	b.t.Helper()
	info, _ := must[shelltool.ProcessInfo](b, "process_start", args)
	return info.ProcessID
}

// readUntil reads a process's output until it contains text or the process has ended.
func (b *bench) readUntil(id, text string) (string, shelltool.ReadResult) {
	b.t.Helper()
	var all strings.Builder
	var offset int64
	deadline := time.Now().Add(time.Minute)
	for {
		require.True(b.t, time.Now().Before(deadline), "no %q in %q", text, all.String())
		r, err := b.shell.ReadProcess(context.Background(), shelltool.ReadParams{ProcessID: id, Offset: offset, WaitSeconds: 5})
		require.NoError(b.t, err)
		all.WriteString(r.Output)
		offset = r.NextOffset
		if text != "" && strings.Contains(all.String(), text) || r.State != "running" && !r.Truncated {
			return all.String(), *r
		}
	}
}

// noFiles is an empty workspace.
type noFiles struct{}

func (noFiles) Stat(context.Context, string) (vfs.Info, error) {
	return vfs.Info{}, tool.Errorf(tool.NotFound, "there is nothing")
}

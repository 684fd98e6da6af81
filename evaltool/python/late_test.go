package python_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// delayed holds the second signal of each process back until the test delivers it.
type delayed struct {
	sandbox.Runner
	deliver chan func()
}

func (d delayed) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	p, err := d.Runner.Start(ctx, cmd)
	return &delayedProcess{Process: p, deliver: d.deliver}, err
}

type delayedProcess struct {
	sandbox.Process
	signals int
	deliver chan func()
}

func (p *delayedProcess) Signal(name string) error {
	if p.signals++; p.signals == 2 {
		p.deliver <- func() { _ = p.Process.Signal(name) }
		return nil
	}
	return p.Process.Signal(name)
}

func TestTheOutputOfCCodeAndThreadsBelongsToTheCall(t *testing.T) {
	b := newBench(t)
	const c = "import ctypes\nc = ctypes.CDLL(None)\n"
	for _, kept := range []bool{false, true} {
		for _, call := range []struct{ code, want string }{
			{c + "c.puts(b'C')\nprint('Python')\nc.printf(b'no line end')", "C\nPython\nno line end"},
			{c + "c.puts(b'C')\n1/0", "C\n"},
			{"print('next')", "next\n"},
		} {
			resp := b.eval(t, evaltool.Request{Code: call.code, Kept: kept})
			assert.Equal(t, call.want, resp.Stdout, resp.Stderr)
		}
	}
	for name, code := range map[string]string{
		"thread":          "threading.Thread(target=say).start()",
		"thread's thread": "threading.Thread(target=lambda: threading.Thread(target=say).start()).start()",
		"pool":            "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(2).submit(say)",
		"failed code":     "threading.Thread(target=say).start()\n1/0",
	} {
		resp := b.eval(t, evaltool.Request{Code: "import threading, time\ndef say(): time.sleep(0.1); print('late')\n" + code})
		assert.Equal(t, "late\n", resp.Stdout, name)
	}
}

// TestAnInterruptThatComesLateEndsNoOtherEvaluation: its own evaluation answered while the interrupt was on its way.
func TestAnInterruptThatComesLateEndsNoOtherEvaluation(t *testing.T) {
	t.Parallel()
	host := sandboxtest.NewHost()
	box, err := host.Create(t.Context(), sandbox.Spec{ID: boxID, Image: "host", Workspace: t.TempDir()})
	require.NoError(t, err)
	defer box.Close(context.Background())
	late := delayed{box, make(chan func(), 1)}
	e := python.New(&python.Options{Runner: func(context.Context) (sandbox.Runner, error) { return late, nil }})
	defer e.Close()
	eval := func(code string, timeout time.Duration) evaltool.Response {
		resp, err := e.Evaluate(t.Context(), evaltool.Request{Code: code, Kept: true, Sandbox: evaltool.SandboxContainer, Timeout: timeout})
		require.NoError(t, err)
		return resp
	}
	eval("import time", time.Minute)
	resp := eval("try: time.sleep(60)\nexcept KeyboardInterrupt: time.sleep(0.4)", 50*time.Millisecond)
	assert.Equal(t, evaltool.StatusTimedOut, resp.Status)
	deliver := <-late.deliver
	time.AfterFunc(20*time.Millisecond, deliver)
	resp = eval("time.sleep(1); 'whole'", time.Minute)
	assert.Equal(t, "'whole'", value(resp), resp.Stderr)
}

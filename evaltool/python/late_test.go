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

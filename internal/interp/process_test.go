package interp

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// deaf is a runner, and its process, that reads nothing and writes given messages.
type deaf struct {
	sandbox.Runner
	sandbox.Process
	cmd  sandbox.Cmd
	gone chan struct{}
}

func (d *deaf) Start(_ context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	d.cmd = cmd
	return d, nil
}

func (d *deaf) Wait(context.Context) (sandbox.Result, error) {
	<-d.gone
	return sandbox.Result{Status: sandbox.StatusExited}, nil
}

func TestAReplyThatNobodyReadsBlocksNoMessage(t *testing.T) {
	d := &deaf{gone: make(chan struct{})}
	p, err := Start(t.Context(), d, sandbox.Cmd{}, 64, func() *bytes.Buffer { return &bytes.Buffer{} })
	require.NoError(t, err)
	go func() {
		for range 5 {
			_, _ = d.cmd.Control.Out.Write(frame("event"))
		}
		close(d.gone)
	}()
	taken := make(chan struct{}, 5)
	answered, late := p.Ask(t.Context(), Request{
		Message: bytes.NewReader([]byte("request")),
		Accept:  func([]byte) bool { return false },
		Divert:  func([]byte) ([]byte, bool) { taken <- struct{}{}; return []byte("reply"), true },
	})
	assert.False(t, answered)
	assert.Empty(t, late)
	assert.Len(t, taken, 5)
	n, err := d.cmd.Control.In.Read(make([]byte, 1))
	assert.Zero(t, n)
	assert.ErrorIs(t, err, io.ErrClosedPipe)
}

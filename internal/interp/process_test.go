package interp

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

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

func (d *deaf) Kill() error {
	close(d.gone)
	return nil
}

// TestAnAnswerToAnUnreadRequestEndsTheProcess: the requests would stay in memory.
func TestAnAnswerToAnUnreadRequestEndsTheProcess(t *testing.T) {
	usual := readTime
	readTime = time.Millisecond
	t.Cleanup(func() { readTime = usual })
	d := &deaf{gone: make(chan struct{})}
	p, err := Start(t.Context(), d, sandbox.Cmd{}, 64, func() *bytes.Buffer { return &bytes.Buffer{} })
	require.NoError(t, err)
	go func() { _, _ = d.cmd.Control.Out.Write(frame("answer")) }()
	answered, late := p.Ask(t.Context(), Request{
		Message: bytes.NewReader([]byte("request")),
		Accept:  func(m []byte) bool { return string(m) == "answer" },
	})
	assert.True(t, answered)
	assert.Empty(t, late)
	assert.True(t, p.Ended())
}

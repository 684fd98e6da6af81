package hold

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

type failing struct {
	Session
	wrote chan error
}

// Start starts a program that writes, and then fails.
func (f failing) Start(_ context.Context, _ Request, io Streams) (sandbox.Process, error) {
	go func() {
		_, err := io.Stdout.Write([]byte("x"))
		f.wrote <- err
	}()
	return nil, errors.New("no step can be made")
}

// TestAStartThatFailsKeepsNoWriter, because its client doesn't read the output.
func TestAStartThatFailsKeepsNoWriter(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	x := newExchange(t.Context(), NewConn(ours), Request{Stdout: true})
	s := failing{wrote: make(chan error, 1)}
	require.Error(t, x.start(s))
	x.end()
	require.ErrorIs(t, <-s.wrote, errClientGone)
}

// secretive is a program that can't introduce itself, and whose end waits for its writer's.
type secretive struct {
	sandbox.Process
	killed int
	wrote  chan error
	writes error
}

func (s *secretive) Start(_ context.Context, _ Request, io Streams) (sandbox.Process, error) {
	go func() {
		_, err := io.Stdout.Write([]byte("x"))
		s.wrote <- err
	}()
	return s, nil
}
func (*secretive) Do(context.Context, Request, Streams) (*Answer, error) { return nil, nil }
func (*secretive) Busy() bool                                            { return true }
func (*secretive) Empty(context.Context) error                           { return nil }
func (*secretive) Introduction() ([]byte, error)                         { return nil, errors.New("no introduction") }
func (s *secretive) Kill() error                                         { s.killed++; return nil }
func (s *secretive) Wait(context.Context) (sandbox.Result, error) {
	s.writes = <-s.wrote
	return sandbox.Result{}, nil
}

// TestAProgramThatCannotIntroduceItselfIsWaitedFor, because only Wait frees its resources.
func TestAProgramThatCannotIntroduceItselfIsWaitedFor(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	x := newExchange(t.Context(), NewConn(ours), Request{Stdout: true})
	s := &secretive{wrote: make(chan error, 1)}
	require.ErrorContains(t, x.start(s), "no introduction")
	require.Equal(t, 1, s.killed)
	require.ErrorIs(t, s.writes, errClientGone)
}

// lavish is a session with a large answer.
type lavish struct{ failing }

func (lavish) Do(context.Context, Request, Streams) (*Answer, error) {
	return &Answer{Text: strings.Repeat("x", 4*ChunkSize)}, nil
}

// TestAGuestThatDoesNotReadLosesItsAnswer: it would stay in the server's memory.
func TestAGuestThatDoesNotReadLosesItsAnswer(t *testing.T) {
	usual := answerTime
	answerTime = time.Millisecond
	t.Cleanup(func() { answerTime = usual })
	ours, theirs := net.Pipe()
	defer theirs.Close()
	over := make(chan struct{})
	go func() {
		defer close(over)
		ServeGuest(t.Context(), ours, lavish{}, func(int) (func(), error) { return func() {}, nil })
	}()
	require.NoError(t, NewConn(theirs).SendJSON(FrameRequest, Request{Op: versioned + "any"}))
	_, err := io.ReadFull(theirs, make([]byte, headerSize)) // and nothing of the answer itself
	require.NoError(t, err)
	<-over
}

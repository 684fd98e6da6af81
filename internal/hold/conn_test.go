package hold_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/sandbox"
)

// handing is a session whose operations hand over no, one or two connections.
type handing struct {
	hold.Session
	conns int
	bare  bool // without a descriptor
}

// bare is a connection that hides its descriptor.
type bare struct {
	net.Conn
	halves
}

type halves interface{ CloseWrite() error }

func (h handing) Do(_ context.Context, _ hold.Request, io hold.Streams) (*hold.Answer, error) {
	for range h.conns {
		ours, theirs, err := tcpPair()
		if err != nil {
			return nil, err
		}
		if h.bare {
			theirs = bare{theirs, theirs.(halves)}
		}
		if err := io.Conn(theirs); err != nil {
			return nil, err
		}
		if _, err := ours.Write([]byte("hello")); err != nil {
			return nil, err
		}
		if err := ours.Close(); err != nil {
			return nil, err
		}
	}
	return &hold.Answer{Value: []byte(`"done"`)}, nil
}

func (h handing) Start(context.Context, hold.Request, hold.Streams) (sandbox.Process, error) {
	return nil, errors.New("no program")
}

func (h handing) Busy() bool { return true }

func tcpPair() (a, b net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	b, err = l.Accept()
	return a, b, err
}

// TestAConnectionIsHandedOver with the operation, and works without the holder; one without a
// descriptor works as long as its process lives.
func TestAConnectionIsHandedOver(t *testing.T) {
	t.Run("with a descriptor", func(t *testing.T) { handOver(t, false) })
	t.Run("without", func(t *testing.T) { handOver(t, true) })
}

func handOver(t *testing.T, bare bool) {
	for conns, want := range map[int][]string{0: nil, 1: {"hello"}, 2: {"hello", "hello"}} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- hold.New(&hold.Options{Session: handing{conns: conns, bare: bare}}).Serve(ctx, l) }()
		client := &hold.Client{Dial: func(context.Context) (*hold.Conn, error) {
			conn, err := net.Dial("unix", path)
			return hold.NewConn(conn), err
		}}
		var got []net.Conn
		answer := &hold.Answer{}
		err = client.Do(t.Context(), hold.Request{Op: "dial"}, hold.Streams{Conn: func(c net.Conn) error {
			got = append(got, c)
			return nil
		}}, answer)
		require.NoError(t, err)
		cancel()
		require.Error(t, <-ended) // the end of its context
		var said []string
		for _, conn := range got {
			all, err := io.ReadAll(conn)
			require.NoError(t, err)
			said = append(said, string(all))
			require.NoError(t, conn.Close())
		}
		assert.Equal(t, want, said)
	}
}

// endless is a session whose operations end only with stop.
type endless struct {
	hold.Session
	begun, stop chan struct{}
}

func (e endless) Do(context.Context, hold.Request, hold.Streams) (*hold.Answer, error) {
	close(e.begun)
	<-e.stop
	return &hold.Answer{}, nil
}

// TestAHolderThatEndsSaysSoBeforeItWaits for operations, because somebody else may have to end
// them.
func TestAHolderThatEndsSaysSoBeforeItWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s := endless{begun: make(chan struct{}), stop: make(chan struct{})}
	why := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	holder := hold.New(&hold.Options{Session: s, Ending: func(cause error) {
		assert.ErrorIs(t, cause, why)
		close(s.stop)
	}})
	go func() { ended <- holder.Serve(ctx, l) }()
	client := &hold.Client{Dial: func(context.Context) (*hold.Conn, error) {
		conn, err := net.Dial("unix", path)
		return hold.NewConn(conn), err
	}}
	asked := make(chan error, 1)
	go func() { asked <- client.Do(t.Context(), hold.Request{Op: "run"}, hold.Streams{}, &hold.Answer{}) }()
	<-s.begun
	cancel(why)
	require.ErrorIs(t, <-ended, why)
	require.NoError(t, <-asked)
}

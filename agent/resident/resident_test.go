package resident_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/native"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is an agent of this machine and a directory for its secrets.
type place struct {
	*resident.Spawned
	secrets string
	dials   atomic.Int64
}

func (p *place) Dial(ctx context.Context) (resident.Ends, error) {
	p.dials.Add(1)
	return p.Spawned.Dial(ctx)
}

// spawn starts the agent that the library brings.
func spawn(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "wisbox-resident-") // others can't reach t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	path, err := native.Install(dir)
	require.NoError(t, err)
	p := &place{secrets: filepath.Join(dir, "secrets")}
	require.NoError(t, os.Mkdir(p.secrets, 0o755))
	cmd := exec.Command(path, "init", dir, p.secrets)
	cmd.Stderr = os.Stderr
	p.Spawned, err = resident.Spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

func handle(t *testing.T, opts resident.Options) *resident.Agent {
	t.Helper()
	a := resident.New(&opts)
	t.Cleanup(func() { assert.NoError(t, a.Close()) })
	return a
}

func TestAllCallersShareOneConnection(t *testing.T) {
	p := spawn(t)
	a := handle(t, resident.Options{Link: p})
	first, err := a.Conn(t.Context())
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			conn, err := a.Conn(t.Context())
			assert.NoError(t, err)
			assert.Same(t, first, conn)
			res, err := conn.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
			assert.NoError(t, err)
			assert.Equal(t, sandbox.StatusExited, res.Status)
		})
	}
	all.Wait()
	require.EqualValues(t, 1, p.dials.Load())
	sockets, err := a.Sockets(t.Context())
	require.NoError(t, err)
	again, err := a.Sockets(t.Context())
	require.NoError(t, err)
	require.Same(t, sockets, again)
	listener, err := sockets.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	require.NoError(t, listener.Close())
}

func TestManyHandlesHaveOneAgentEachWithItsOwnPrograms(t *testing.T) {
	p := spawn(t)
	one, other := handle(t, resident.Options{Link: p}), handle(t, resident.Options{Link: p})
	conn, err := other.Conn(t.Context())
	require.NoError(t, err)
	left, err := conn.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	require.NoError(t, one.With(t.Context(), func(c *agent.Conn) error { return c.Ping(t.Context()) }))
	one.EndAll(sandbox.StatusDiskLimit)
	require.NoError(t, one.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = left.Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a program of another owner goes on")
	other.EndAll(sandbox.StatusDiskLimit)
	res, err := left.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusDiskLimit, res.Status)
}

func TestALostConnectionIsMadeAgainWithItsSecrets(t *testing.T) {
	p := spawn(t)
	var revived []error
	a := handle(t, resident.Options{Link: p, Revive: func(_ context.Context, lost error) error {
		revived = append(revived, lost)
		return os.Remove(filepath.Join(p.secrets, "A")) // as a sandbox does that is started again
	}})
	require.NoError(t, a.KeepSecrets(t.Context(), map[string][]byte{"A": []byte("one"), "B": nil}))
	require.NoError(t, a.KeepSecrets(t.Context(), map[string][]byte{"A": []byte("two")}))
	conn, err := a.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	again, err := a.Conn(t.Context())
	require.NoError(t, err)
	require.NotSame(t, conn, again)
	require.Len(t, revived, 1)
	require.ErrorIs(t, revived[0], sandbox.ErrLost)
	data, err := os.ReadFile(filepath.Join(p.secrets, "A"))
	require.NoError(t, err)
	require.Equal(t, "two", string(data))
}

func TestASecretThatFindsNoPlaceIsSaidSo(t *testing.T) {
	p := spawn(t)
	a := handle(t, resident.Options{Link: p})
	require.ErrorIs(t, a.KeepSecrets(t.Context(), map[string][]byte{"A": make([]byte, 2<<20)}), sandbox.ErrUnavailable)
	require.NoError(t, os.Mkdir(filepath.Join(p.secrets, "B"), 0o755))
	err := a.KeepSecrets(t.Context(), map[string][]byte{"B": []byte("hidden")})
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.NotContains(t, err.Error(), "hidden")
}

func TestAClosedHandleIsLost(t *testing.T) {
	p := spawn(t)
	a := resident.New(&resident.Options{Link: p})
	conn, err := a.Conn(t.Context())
	require.NoError(t, err)
	program, err := conn.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	res, err := program.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusSandboxLost, res.Status)
	require.ErrorIs(t, a.With(t.Context(), func(*agent.Conn) error { return nil }), sandbox.ErrLost)
	require.ErrorIs(t, a.KeepSecrets(t.Context(), map[string][]byte{"A": nil}), sandbox.ErrLost)
	require.NoError(t, resident.New(&resident.Options{Link: p}).Close(), "one that was never used")
}

func TestAnAgentThatIsNotTheOneIsRefused(t *testing.T) {
	errOther := errors.New("another one")
	p := spawn(t)
	a := handle(t, resident.Options{Link: p, Check: func(h agent.Hello) error {
		require.NotZero(t, h.Workspace)
		return errOther
	}})
	_, err := a.Conn(t.Context())
	require.ErrorIs(t, err, errOther)
}

// link is a function.
type link func(ctx context.Context) (resident.Ends, error)

func (l link) Dial(ctx context.Context) (resident.Ends, error) { return l(ctx) }

func TestALinkThatBreaksIsTriedThreeTimes(t *testing.T) {
	tries := 0
	broken := link(func(context.Context) (resident.Ends, error) {
		tries++
		return resident.Ends{}, io.ErrUnexpectedEOF
	})
	a := handle(t, resident.Options{Link: broken, Explain: func(_ context.Context, cause error) error {
		return fmt.Errorf("%w: explained: %w", sandbox.ErrUnavailable, cause)
	}})
	_, err := a.Conn(t.Context())
	require.ErrorContains(t, err, "explained")
	require.Equal(t, 3, tries)
	refused := link(func(context.Context) (resident.Ends, error) { tries++; return resident.Ends{}, sandbox.ErrLost })
	_, err = handle(t, resident.Options{Link: refused}).Conn(t.Context())
	require.ErrorIs(t, err, sandbox.ErrLost)
	require.Equal(t, 4, tries, "what is refused is not tried again")
}

func TestACallerThatGivesUpLeavesTheOthersTheirConnection(t *testing.T) {
	p, goOn := spawn(t), make(chan struct{})
	slow := link(func(ctx context.Context) (resident.Ends, error) {
		<-goOn
		return p.Dial(ctx)
	})
	a := handle(t, resident.Options{Link: slow})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := a.Conn(ctx); gone <- err }()
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	a.EndAll(sandbox.StatusCancelled) // nothing runs, nothing is waited for
	close(goOn)
	_, err := a.Conn(t.Context())
	require.NoError(t, err)
}

func TestTheFirstWayThatLeadsThereIsTaken(t *testing.T) {
	no := link(func(context.Context) (resident.Ends, error) {
		return resident.Ends{}, fmt.Errorf("%w: not here", resident.ErrNoWay)
	})
	yes := link(func(context.Context) (resident.Ends, error) { return resident.Ends{}, nil })
	fails := link(func(context.Context) (resident.Ends, error) { return resident.Ends{}, io.EOF })
	_, err := resident.FirstOf{no, yes, fails}.Dial(t.Context())
	require.NoError(t, err)
	_, err = resident.FirstOf{no, fails, yes}.Dial(t.Context())
	require.ErrorIs(t, err, io.EOF, "a way that could lead there isn't passed over")
	_, err = resident.FirstOf{no, no}.Dial(t.Context())
	require.ErrorIs(t, err, resident.ErrNoWay)
}

// TestWithoutDescriptorsThereAreNoSockets: a relay's stream carries none.
func TestWithoutDescriptorsThereAreNoSockets(t *testing.T) {
	p := spawn(t)
	a := handle(t, resident.Options{Link: link(func(ctx context.Context) (resident.Ends, error) {
		ends, err := p.Dial(ctx)
		if err == nil {
			err = ends.Descriptors.Close()
		}
		return resident.Ends{Frames: ends.Frames}, err
	})})
	_, err := a.Sockets(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnsupported)
}

// TestOnlyTheFirstProcessOfAContainerIsTaken: that it takes from a real one is tested in
// package podman.
func TestOnlyTheFirstProcessOfAContainerIsTaken(t *testing.T) {
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	for name, pid := range map[string]int{"gone": dead.Process.Pid, "none": 0, "this test": os.Getpid(), "agent of no container": spawn(t).PID(), "another program": 1} {
		t.Run(name, func(t *testing.T) {
			taken := resident.Taken{PID: func(context.Context) (int, error) { return pid, nil }}
			_, err := taken.Dial(t.Context())
			require.ErrorIs(t, err, resident.ErrNoWay)
		})
	}
	mine := resident.Taken{PID: func(context.Context) (int, error) { return 0, sandbox.ErrLost }}
	_, err := mine.Dial(t.Context())
	require.ErrorIs(t, err, sandbox.ErrLost)
}

// TestAnAgentThatHearsNobodyHoldsNobody: its socket is full, and callers give up in time.
func TestAnAgentThatHearsNobodyHoldsNobody(t *testing.T) {
	deaf, err := resident.Spawn(exec.Command("sleep", "600"))
	require.NoError(t, err)
	defer deaf.Close() // after its patience
	for i := range 10_000 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		ends, err := deaf.Dial(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Positive(t, i)
			return
		}
		require.NoError(t, ends.Close())
	}
	t.Fatal("the socket has no bound")
}

func TestARelayThatSaysSomethingElseIsUnsupported(t *testing.T) {
	relayed := resident.Relayed{Exec: func(_ context.Context, argv []string) (io.ReadWriteCloser, error) {
		require.Equal(t, []string{resident.Path, "relay"}, argv)
		return said{strings.NewReader("HTTP/1.1 400 Bad Request\r\n\r\n")}, nil
	}}
	_, err := handle(t, resident.Options{Link: relayed}).Conn(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnsupported)
}

type said struct{ io.Reader }

func (said) Write(p []byte) (int, error) { return len(p), nil }
func (said) Close() error                { return nil }

//go:build integration

package podman

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// relay offers a service's socket at a TCP address, as another machine would.
type relay struct {
	net.Listener
	socket string

	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(t *testing.T, socket string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{Listener: l, socket: socket}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); r.cut(); all.Wait() })
	return r
}

func (r *relay) serve(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("unix", r.socket)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.conns = append(r.conns, c, up)
	r.mu.Unlock()
	go func() { _, _ = io.Copy(up, c); up.Close() }()
	_, _ = io.Copy(c, up)
}

// cut breaks all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// execsIn returns the exec sessions that a container has had.
func execsIn(t *testing.T, s *Sandbox) []string {
	t.Helper()
	data, err := s.b.inspect(t.Context(), s.name)
	require.NoError(t, err)
	return data.ExecIDs
}

// TestAgentIsReachedByItsSocketOrThroughTheService: on the service's machine by its socket, from another one through
// the service.
func TestAgentIsReachedByItsSocketOrThroughTheService(t *testing.T) {
	near := newHost(t, nil)
	s := near.create(near.spec("near"))
	out, _ := sh(t, s, "echo hi")
	require.Equal(t, "hi\n", out)
	require.Empty(t, execsIn(t, s), "nothing is executed to reach the agent")

	service, err := near.Service(t.Context())
	require.NoError(t, err)
	r := newRelay(t, strings.TrimPrefix(service.URL, "unix://"))
	far := newHost(t, &Options{BaseURL: "tcp://" + r.Addr().String()})
	s = far.create(far.spec("far"))
	out, _ = sh(t, s, "echo hi")
	require.Equal(t, "hi\n", out)
	require.Len(t, execsIn(t, s), 1, "the relay")
	got := sleeping(t, s)
	r.cut()
	require.Equal(t, sandbox.StatusSandboxLost, ended(t, got).Status)
	out, _ = sh(t, s, "ps -eo args | grep -c '[s]leep 300'; true")
	require.Equal(t, "0\n", out, "the lost agent's programs are gone, and there is another agent")
}

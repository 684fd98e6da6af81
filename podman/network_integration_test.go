//go:build integration

package podman

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

var anyPort = netip.MustParseAddrPort("127.0.0.1:0")

// talk is Python that connects to a port and prints what it gets.
const talk = `import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
print(s.makefile().read(), end="")`

func python(t *testing.T, s sandbox.Runner, script string, args ...string) (string, sandbox.Result) {
	t.Helper()
	var out bytes.Buffer
	res, err := s.Run(t.Context(), sandbox.Cmd{Argv: append([]string{"python3", "-c", script}, args...), Stdout: &out, Stderr: &out, Timeout: time.Minute})
	require.NoError(t, err)
	return out.String(), res
}

// greet answers each connection with a line, until the listener ends.
func greet(l net.Listener) (ended chan error) {
	ended = make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			_, _ = io.WriteString(c, "hello from the host\n")
			c.Close()
		}
	}()
	return ended
}

// bothWays checks sandboxes of this machine, whose sockets the agent hands over, and those of a remote service, whose
// data the agent carries.
func bothWays(t *testing.T, check func(t *testing.T, h *host)) {
	t.Run("handed over", func(t *testing.T) { check(t, newHost(t, nil)) })
	t.Run("carried", func(t *testing.T) {
		service, err := newHost(t, nil).Service(t.Context())
		require.NoError(t, err)
		r := newRelay(t, strings.TrimPrefix(service.URL, "unix://"))
		check(t, newHost(t, &Options{BaseURL: "tcp://" + r.Addr().String()}))
	})
}

// TestThisProcessListensInASandboxAndNowhereElse: programs of that sandbox can connect, others can't, and the port
// closes with the sandbox.
func TestThisProcessListensInASandboxAndNowhereElse(t *testing.T) { bothWays(t, listensInside) }

func listensInside(t *testing.T, h *host) {
	s, other := h.create(h.spec("listens")), h.create(h.spec("other"))
	l, err := s.Listen(t.Context(), anyPort)
	require.NoError(t, err)
	ended := greet(l)
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)

	out, res := python(t, s, talk, port)
	require.Equal(t, "hello from the host\n", out)
	require.Zero(t, res.ExitCode)
	out, res = python(t, other, talk, port)
	require.NotZero(t, res.ExitCode)
	require.Contains(t, out, "ConnectionRefusedError")
	if c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second); err == nil { // another listener may have that port
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Second)))
		said, _ := io.ReadAll(c)
		require.NotContains(t, string(said), "hello", "nothing of ours listens on this machine")
	}

	require.NoError(t, l.Close())
	require.Error(t, <-ended)
	_, res = python(t, s, talk, port)
	require.NotZero(t, res.ExitCode, "a closed listener is closed inside")
}

// TestThisProcessConnectsToASandboxesServer, and reaches nothing but its loopback.
func TestThisProcessConnectsToASandboxesServer(t *testing.T) { bothWays(t, connectsInside) }

func connectsInside(t *testing.T, h *host) {
	s, other := h.create(h.spec("serves")), h.create(h.spec("other"))
	reader, writer := io.Pipe()
	server, err := s.Start(t.Context(), sandbox.Cmd{Stdout: writer, Argv: []string{"python3", "-uc", `import socket
l = socket.create_server(("127.0.0.1", 0))
print(l.getsockname()[1])
while True:
    c, _ = l.accept()
    c.sendall(c.recv(100).upper())
    c.close()`}})
	require.NoError(t, err)
	var port uint16
	_, err = fmt.Fscanln(reader, &port)
	require.NoError(t, err)

	c, err := s.DialPort(t.Context(), port)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "shout")
	require.NoError(t, err)
	said, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "SHOUT", string(said))
	_, err = other.DialPort(t.Context(), port)
	require.ErrorContains(t, err, "refused")
	require.NoError(t, server.Kill())
	writer.Close()
}

// TestPacketsComeFromASandbox, such as those for a DNS server.
func TestPacketsComeFromASandbox(t *testing.T) { bothWays(t, packetsFromInside) }

func packetsFromInside(t *testing.T, h *host) {
	s := h.create(h.spec("packets"))
	pc, err := s.ListenPacket(t.Context(), anyPort)
	require.NoError(t, err)
	defer pc.Close()
	got := make(chan string, 1)
	go func() {
		buf := make([]byte, 100)
		n, from, err := pc.ReadFrom(buf)
		if err == nil {
			_, err = pc.WriteTo([]byte("answer"), from)
		}
		got <- fmt.Sprint(string(buf[:n]), err)
	}()
	out, _ := python(t, s, `import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.sendto(b"question", ("127.0.0.1", int(sys.argv[1])))
print(s.recv(100))`, fmt.Sprint(pc.LocalAddr().(*net.UDPAddr).Port))
	require.Equal(t, "b'answer'\n", out)
	require.Equal(t, "question<nil>", <-got)
}

// TestASandboxThatIsClosedHasNoListener: nothing pins its namespace any more either.
func TestASandboxThatIsClosedHasNoListener(t *testing.T) { bothWays(t, closedInside) }

func closedInside(t *testing.T, h *host) {
	s := h.create(h.spec("closed"))
	require.NoError(t, s.Close(t.Context()))
	_, err := s.Listen(t.Context(), anyPort)
	require.ErrorIs(t, err, sandbox.ErrLost)
}

// TestAServiceElsewhereHasNoCompanions, and explains why.
func TestAServiceElsewhereHasNoCompanions(t *testing.T) {
	near := newHost(t, nil)
	service, err := near.Service(t.Context())
	require.NoError(t, err)
	r := newRelay(t, strings.TrimPrefix(service.URL, "unix://"))
	far := newHost(t, &Options{BaseURL: "tcp://" + r.Addr().String()})
	s := far.create(far.spec("far"))
	err = s.Accompany(t.Context(), []sandbox.Companion{{Name: "db", Image: testImage(), Port: 5432}})
	require.ErrorIs(t, err, sandbox.ErrUnsupported)
	require.ErrorContains(t, err, "another machine")
}

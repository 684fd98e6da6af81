package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// serving creates a session with testdata/websocket.py on port 8000.
func (h *home) serving(session string) {
	h.t.Helper()
	h.do("session", "create", session)
	source, err := os.ReadFile("testdata/websocket.py")
	require.NoError(h.t, err)
	h.do("exec", "-d", "--wait-port", "8000", session, "--", "python3", "-c", string(source))
}

// port is a running `wisbox port`.
type port struct {
	cmd   *exec.Cmd
	where string
	said  *lines
}

// lines collects a command's output as it arrives.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (h *home) port(args ...string) *port {
	h.t.Helper()
	cmd := h.command(append([]string{"port"}, args...)...)
	p := &port{cmd: cmd, said: &lines{}}
	cmd.Stderr = p.said
	out, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	h.begin(cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(h.t, err, p.said.String())
	p.where = strings.TrimSpace(line)
	return p
}

// ends waits for the command's end.
func (p *port) ends(t *testing.T) int {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.cmd.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it doesn't end: " + p.said.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// over returns a client that connects to that address for every URL.
func over(t *testing.T, network, addr string) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Jar: jar, Timeout: time.Minute}
}

func read(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	res, err := client.Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(raw)
}

// TestPortIsASocketOfItsOwner: it needs no rule, and no other user of the machine can connect.
func TestPortIsASocketOfItsOwner(t *testing.T) {
	h := newHome(t)
	h.serving("box")
	p := h.port("box", "8000")
	_, body := read(t, over(t, "unix", p.where), "http://anything/")
	assert.Equal(t, "hello anything -", body)
	socket, err := os.Lstat(p.where)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o600, socket.Mode())
	dir, err := os.Lstat(filepath.Dir(p.where))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), dir.Mode().Perm())
	if os.Getuid() == 0 { // only root can be another user
		require.ErrorIs(t, connectAs(61234, p.where), unix.EACCES)
		require.NoError(t, connectAs(0, p.where))
	}
	assert.Contains(t, h.fail("port", "box", "8000"), "open already, at "+p.where)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	assert.Equal(t, 130, p.ends(t))
	assert.NoFileExists(t, p.where)
	killed(t, h.port("box", "8000").cmd)
	assert.FileExists(t, p.where)
	_, body = read(t, over(t, "unix", h.port("box", "8000").where), "http://again/")
	assert.Equal(t, "hello again -", body, "one that was killed is in nobody's way")
}

// connectAs connects to a unix socket as another user, in a thread that ends with it.
func connectAs(uid int, path string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			_, _ = unix.SetfsgidRetGid(uid)
			_, err = unix.SetfsuidRetUid(uid)
		}
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			_ = unix.Close(fd)
		}
		done <- err
	}()
	return <-done
}

// TestPortForABrowser with a token, its own host name and WebSockets.
func TestPortForABrowser(t *testing.T) {
	h := newHome(t)
	h.serving("box")
	p := h.port("--tcp", "0", "box", "8000")
	at, err := url.Parse(p.where)
	require.NoError(t, err)
	assert.Equal(t, "box-8000.localhost", at.Hostname())
	addr := "127.0.0.1:" + at.Port()
	stranger, browser := over(t, "tcp", addr), over(t, "tcp", addr)
	status, body := read(t, stranger, "http://"+at.Host+"/")
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.Contains(t, body, "wisbox port")
	for _, name := range []string{"evil.example.com", "localhost", "127.0.0.1", "other-8000.localhost"} {
		status, _ = read(t, stranger, "http://"+name+":"+at.Port()+"/?"+at.RawQuery)
		assert.Equal(t, http.StatusForbidden, status, name)
	}
	status, body = read(t, browser, p.where)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "hello "+at.Host+" -", body, "the cookie is not for programs of the session")
	assert.Equal(t, "hello\n", webSocket(t, addr, at.Host, browser.Jar.Cookies(at)[0].String()))
}

// webSocket sends one message and returns the answer.
func webSocket(t *testing.T, addr, host, cookie string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nCookie: %s\r\n\r\n", host, host, key, cookie)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	assert.Equal(t, base64.StdEncoding.EncodeToString(sum[:]), res.Header.Get("Sec-WebSocket-Accept"))
	message := "hello\n"
	frame := []byte{0x81, 0x80 | byte(len(message)), 1, 2, 3, 4}
	for i, b := range []byte(message) {
		frame = append(frame, b^frame[2+i%4])
	}
	_, err = conn.Write(frame)
	require.NoError(t, err)
	answer := make([]byte, 2+len(message))
	_, err = io.ReadFull(in, answer)
	require.NoError(t, err)
	assert.Equal(t, []byte{0x81, byte(len(message))}, answer[:2])
	return string(answer[2:])
}

// TestPortWhereNothingListens: the answer says what to do, and the port works once a program listens.
func TestPortWhereNothingListens(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	p, raw := h.port("--tcp", "0", "box", "8000"), h.port("--raw", "--tcp", "0", "box", "8000")
	at, err := url.Parse(p.where)
	require.NoError(t, err)
	browser := over(t, "tcp", "127.0.0.1:"+at.Port())
	status, body := read(t, browser, p.where)
	assert.Equal(t, http.StatusBadGateway, status)
	assert.Contains(t, body, "nothing listens on port 8000")
	assert.Contains(t, body, "wisbox exec --detach")
	assert.NotContains(t, h.do("session", "inspect", "box"), `"object"`, "a look makes no container")
	_, err = over(t, "tcp", raw.where).Get("http://x/")
	require.Error(t, err)
	for _, says := range []string{"each user of this machine", "nothing listens on port 8000"} {
		assert.Eventually(t, func() bool { return strings.Contains(raw.said.String(), says) }, time.Minute, time.Millisecond, says)
	}
	h.do("exec", "-d", "--wait-port", "8000", "box", "--", "python3", "-m", "http.server", "8000")
	status, _ = read(t, browser, "http://"+at.Host+"/")
	assert.Equal(t, http.StatusOK, status)
	status, _ = read(t, over(t, "tcp", raw.where), "http://x/")
	assert.Equal(t, http.StatusOK, status)
}

// TestPortsOfTwoSessionsAreApart: neither a session's programs nor its browser reach the other's.
func TestPortsOfTwoSessionsAreApart(t *testing.T) {
	h := newHome(t)
	h.serving("one")
	h.do("session", "create", "two")
	one, two := h.port("--tcp", "0", "one", "8000"), h.port("--tcp", "0", "two", "8000")
	first, err := url.Parse(one.where)
	require.NoError(t, err)
	second, err := url.Parse(two.where)
	require.NoError(t, err)
	browser := over(t, "tcp", "127.0.0.1:"+second.Port())
	status, _ := read(t, browser, two.where)
	assert.Equal(t, http.StatusBadGateway, status, "nothing listens there")
	status, _ = read(t, browser, "http://"+second.Host+"/?"+first.RawQuery)
	assert.Equal(t, http.StatusUnauthorized, status, "the other's token")
	_, errs, code := command(t, h.cache, "exec", "two", "--", "python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8000))")
	assert.NotZero(t, code)
	assert.Contains(t, errs, "Connection refused")
	_, errs, code = command(t, h.cache, "exec", "two", "--", "python3", "-c", "import socket; socket.create_connection(('127.0.0.1', "+first.Port()+"))")
	assert.NotZero(t, code, "what listens on the host is not inside")
	assert.Contains(t, errs, "Connection refused")
}

// TestPortEndsWithTheSession, and when the session's holder is killed.
func TestPortEndsWithTheSession(t *testing.T) {
	h := newHome(t)
	h.serving("box")
	ways := []*port{h.port("box", "8000"), h.port("--tcp", "0", "box", "8000"), h.port("--raw", "--tcp", "0", "box", "8000")}
	conn, err := net.Dial("unix", ways[0].where)
	require.NoError(t, err)
	defer conn.Close()
	h.do("session", "rm", "box")
	for _, p := range ways {
		assert.Equal(t, 1, p.ends(t))
		assert.Contains(t, p.said.String(), "session has ended")
	}
	_, err = io.ReadAll(conn)
	assert.True(t, err == nil || !os.IsTimeout(err), "the connection ended")

	h.serving("next")
	p := h.port("next", "8000")
	killHolder(t, "next", h)
	assert.Equal(t, 1, p.ends(t))
	assert.Contains(t, p.said.String(), "holds this session ended")
}

// established matches the server's end of a connection to port 8000 in /proc/net/tcp.
var established = regexp.MustCompile(`0100007F:1F40 (0100007F:[0-9A-F]{4}) 01`)

// connections returns the number of established connections to port 8000 in a session's sandbox.
func (h *home) connections(session string) int {
	h.t.Helper()
	peers := map[string]bool{} // the kernel may list a connection twice while others arrive
	for _, found := range established.FindAllStringSubmatch(h.do("exec", session, "--", "cat", "/proc/net/tcp"), -1) {
		peers[found[1]] = true
	}
	return len(peers)
}

// openFiles returns the number of descriptors of a process.
func openFiles(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	return len(all)
}

// TestPortUnderAFlood: at most 256 connections get inside at once, and none stays, however the command ends.
func TestPortUnderAFlood(t *testing.T) {
	const server = `import asyncio
async def serve(r, w):
    await r.read()
    w.close()
async def main():
    await (await asyncio.start_server(serve, "127.0.0.1", 8000)).serve_forever()
asyncio.run(main())`
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("exec", "-d", "--wait-port", "8000", "box", "--", "python3", "-c", server)
	holding := holderOf(t, "box", h)
	for name, end := range map[string]os.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		before := openFiles(t, holding)
		p := h.port("box", "8000")
		var clients []net.Conn
		require.Eventually(t, func() bool {
			for len(clients) < 400 {
				conn, err := net.Dial("unix", p.where)
				if err != nil {
					break // the kernel's queue is full until the command accepts more
				}
				clients = append(clients, conn)
			}
			return len(clients) > 256
		}, time.Minute, 10*time.Millisecond, name)
		require.Eventually(t, func() bool { return h.connections("box") >= 256 }, time.Minute, 10*time.Millisecond, name)
		assert.LessOrEqual(t, h.connections("box"), 256, name)
		assert.Less(t, openFiles(t, p.cmd.Process.Pid), 2*256+50, name)
		require.NoError(t, p.cmd.Process.Signal(end))
		p.ends(t)
		require.Eventually(t, func() bool { return h.connections("box") == 0 }, time.Minute, 10*time.Millisecond, name)
		assert.Eventually(t, func() bool { return openFiles(t, holding) <= before+5 }, time.Minute, 10*time.Millisecond, name)
		for _, conn := range clients {
			conn.Close()
		}
	}
}

// TestDialOfASession reaches a server on any address of the loopback interface, with and without rules for the network.
func TestDialOfASession(t *testing.T) {
	for _, opts := range []*wisbox.SessionOptions{nil, {Allow: []string{"example.com"}}} {
		s := open(t, opts)
		_, err := s.Dial(t.Context(), 8000)
		assert.Equal(t, tool.NotFound, tool.KindOf(err))
		for i, addr := range []string{"127.0.0.1", "0.0.0.0", "::", "::1"} {
			port := 8000 + i
			info, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"python3", "-m", "http.server", "--bind", addr, fmt.Sprint(port)}},
				&wisbox.ProcessOptions{WaitPort: uint16(port), WaitTime: time.Minute})
			require.NoError(t, err)
			require.NotNil(t, info.Listens)
			require.True(t, *info.Listens, "%s: %v", addr, info.Notices)
			client := &http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, uint16(port)) },
			}}
			status, _ := read(t, client, "http://x/")
			assert.Equal(t, http.StatusOK, status, addr)
		}
		info, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"true"}}, &wisbox.ProcessOptions{WaitPort: 9000})
		require.NoError(t, err)
		assert.False(t, *info.Listens)
		_, err = s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"true"}}, &wisbox.ProcessOptions{WaitPort: 8000})
		assert.Equal(t, tool.Conflict, tool.KindOf(err))
	}
}

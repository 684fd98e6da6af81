package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// These tests use network namespaces and the product's own dialer: a host with an address that looks public, an
// Internet behind a cable, and sandboxes that have only a loopback.
const (
	roleKey  = "WISBOX_EGRESS_ROLE"
	hostOwn  = "93.184.216.1"
	metadata = "169.254.169.254"
	privates = "10.9.9.9"
)

// internet serves on all addresses of its namespace until its input ends.
func internet() {
	in := json.NewDecoder(os.Stdin)
	var cert struct{ Cert, Key []byte }
	fatal(in.Decode(&cert))
	pair, err := tls.X509KeyPair(cert.Cert, cert.Key)
	fatal(err)
	secure, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}})
	fatal(err)
	plain, err := net.Listen("tcp", ":80")
	fatal(err)
	go func() { fatal(http.Serve(secure, http.HandlerFunc(serveClients))) }()
	go func() { fatal(http.Serve(plain, http.HandlerFunc(serveClients))) }()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// serveClients answers real clients.
func serveClients(rw http.ResponseWriter, r *http.Request) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	said := fmt.Sprintf("%s at %s", r.Host, local)
	switch {
	case r.URL.Path == "/pkg": // of npm's clients
		rw.Header().Set("Content-Type", "application/json")
		said = `{"name":"pkg","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"pkg","version":"1.0.0","dist":{"shasum":"","tarball":"http://example.com/pkg.tgz"}}}}`
	case r.URL.Path == "/repo/info/refs":
		said = strings.Repeat("1", 40) + "\trefs/heads/main\n"
	case r.Header.Get("Upgrade") == "websocket":
		if c, err := websocket.Accept(rw, r, nil); err == nil {
			if r.URL.Path != "/greeting" { // curl only listens
				_, _, err = c.Read(r.Context())
			}
			if err == nil {
				_ = c.Write(r.Context(), websocket.MessageText, []byte(said))
			}
			_ = c.Close(websocket.StatusNormalClosure, "")
		}
		return
	}
	_, _ = io.WriteString(rw, said)
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// connectInternet creates the other namespace and the cable to it.
func connectInternet(t testing.TB, w *world) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleKey+"=internet")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "other", "netns", fmt.Sprint(cmd.Process.Pid))
	run(t, "ip", "addr", "add", hostOwn+"/24", "dev", "cable")
	run(t, "ip", "link", "set", "cable", "up")
	run(t, "ip", "route", "add", "default", "dev", "cable")
	inside := []string{"-t", fmt.Sprint(cmd.Process.Pid), "-n", "ip"}
	for _, a := range []string{address, privates, metadata} {
		run(t, "nsenter", append(inside, "addr", "add", a+"/24", "dev", "other")...)
	}
	run(t, "nsenter", append(inside, "link", "set", "other", "up")...)
	run(t, "nsenter", append(inside, "link", "set", "lo", "up")...)
	cert := w.certificate("example.com", "private.example.com", "metadata.example.com", "own.example.com")
	require.NoError(t, json.NewEncoder(stdin).Encode(map[string][]byte{
		"Cert": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), "Key": keyPEM(t, w.key),
	}))
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
}

// namespace is a sandbox's network namespace: a thread in it opens sockets and starts programs.
type namespace struct{ do chan func() }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{do: make(chan func())}
	made := make(chan error)
	empty := filepath.Join(t.TempDir(), "resolv.conf")
	require.NoError(t, os.WriteFile(empty, nil, 0o644))
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		made <- errors.Join(
			unix.Unshare(unix.CLONE_NEWNET|unix.CLONE_NEWNS|unix.CLONE_FS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(empty, "/etc/resolv.conf", "", unix.MS_BIND, ""),
			exec.Command("ip", "link", "set", "lo", "up").Run(),
		)
		for f := range n.do {
			f()
		}
	}()
	require.NoError(t, <-made)
	t.Cleanup(func() { close(n.do) })
	return n
}

func inside[T any](n *namespace, f func() (T, error)) (v T, err error) {
	done := make(chan struct{})
	n.do <- func() { v, err = f(); close(done) }
	<-done
	return v, err
}

func (n *namespace) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	return inside(n, func() (net.Listener, error) { return new(net.ListenConfig).Listen(ctx, network, address) })
}

func (n *namespace) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	return inside(n, func() (net.PacketConn, error) { return new(net.ListenConfig).ListenPacket(ctx, network, address) })
}

func (n *namespace) DialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	return inside(n, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr.String()) })
}

// curl runs curl in the sandbox.
func (n *namespace) curl(proxy string, args ...string) (string, error) {
	cmd := exec.Command("curl", append([]string{"-sS", "--max-time", "60"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "https_proxy=" + proxy, "http_proxy=" + proxy}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	_, err := inside(n, func() (struct{}, error) { return struct{}{}, cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}

func TestSandboxesInNamespaces(t *testing.T) {
	if os.Getenv(roleKey) != "host" {
		asHost(t)
		return
	}
	w := newWorld(t)
	connectInternet(t, w)
	roots := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.ca.Raw}), 0o644))
	for name, addr := range map[string]string{"example.com": address, "private.example.com": privates, "metadata.example.com": metadata, "own.example.com": hostOwn, "local.example.com": "127.0.0.1"} {
		w.name(name, addr)
	}
	b := &box{world: w}
	rules := []string{"example.com", "private:private.example.com", "private:metadata.example.com", "private:own.example.com", "private:local.example.com"}
	var err error
	b.Proxy, err = New(&Options{Policy: mustParse(t, rules...), Resolver: w, Roots: w.roots, Journal: w.journal})
	require.NoError(t, err)
	defer b.Close()
	one, two := newNamespace(t), newNamespace(t)
	places, err := b.Start(t.Context(), one)
	require.NoError(t, err)
	require.NoError(t, places.Problem)

	for _, proxy := range []string{places.Proxy, ""} { // and without one: transparent
		for url, want := range map[string]string{
			"http://example.com/x":         "example.com at " + address + ":80",
			"https://example.com/x":        "example.com at " + address + ":443",
			"https://private.example.com/": "private.example.com at " + privates + ":443",
		} {
			out, err := one.curl(proxy, "--cacert", roots, url)
			assert.NoError(t, err, "%s by %q: %s", url, proxy, out)
			assert.Equal(t, want, out, "%s by %q", url, proxy)
		}
		for _, host := range []string{"metadata", "own", "local"} {
			out, err := one.curl(proxy, "http://"+host+".example.com/")
			assert.NoError(t, err)
			assert.Contains(t, out, "Denied by wisbox: "+host+".example.com:80: the address may not be reached", "by %q", proxy)
			out, err = one.curl(proxy, "https://"+host+".example.com/")
			assert.Error(t, err, out)
		}
	}
	for _, literal := range []string{address, privates, metadata, hostOwn, "127.0.0.1", "[::1]", "2130706433"} {
		out, err := one.curl(places.Proxy, "http://"+literal+"/")
		assert.NoError(t, err)
		assert.Contains(t, out, "by wisbox: ", literal)
		out, err = one.curl("", "--connect-timeout", "1", "http://"+literal+"/")
		assert.Error(t, err, "%s: %s", literal, out)
	}
	out, err := two.curl(places.Proxy, "http://example.com/")
	assert.Error(t, err, "the other sandbox has no proxy: %s", out)
	listening, err := os.ReadFile("/proc/thread-self/net/tcp")
	require.NoError(t, err)
	assert.NotContains(t, string(listening), " 0A ", "nothing listens on the host")
	require.NoError(t, b.Close())
	out, err = one.curl(places.Proxy, "http://example.com/")
	assert.Error(t, err, out)
	assert.Contains(t, out, "onnect", "the port dies with the proxy: %s", out)
}

// asHost runs a test again in its own namespaces, which needs root.
func asHost(t *testing.T) {
	for _, tool := range []string{"ip", "nsenter", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			hosttest.Lacks(t, "%s is missing", tool)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("only root makes a network namespace; root's run of this test does")
	}
	wanted := "^" + t.Name() + "$"
	if _, parts, found := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); found {
		wanted += "/" + parts
	}
	cmd := exec.Command("/proc/self/exe", "-test.run="+wanted, "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), roleKey+"=host")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("only root makes a network namespace; root's run of this test does")
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

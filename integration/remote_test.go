package integration

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// keyedMachine is a `wisbox serve --allow-remote` over a state root, which other machines use by keys.
type keyedMachine struct {
	*home
	url, ca string
}

func newKeyedMachine(t *testing.T, flags ...string) *keyedMachine {
	t.Helper()
	s := &keyedMachine{home: newHome(t), ca: filepath.Join(t.TempDir(), "cert.pem")}
	key := filepath.Join(t.TempDir(), "key.pem")
	certifyItself(t, s.ca, key)
	cmd := s.command(append([]string{"serve", "--listen", "127.0.0.1:0", "--allow-remote", "--tls-cert", s.ca, "--tls-key", key}, flags...)...)
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	s.begin(cmd)
	lines := bufio.NewReader(said)
	for s.url == "" {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		_, s.url, _ = strings.Cut(strings.TrimSpace(line), "serving on ")
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return s
}

// certifyItself writes a self-signed certificate for 127.0.0.1.
func certifyItself(t *testing.T, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

// person creates a key and returns a client with it.
func (s *keyedMachine) person(flags ...string) (p *farHome, key, id string) {
	s.t.Helper()
	made := struct{ Key, ID string }{}
	require.NoError(s.t, json.Unmarshal([]byte(s.do(append([]string{"--json", "serve", "key", "create"}, flags...)...)), &made))
	p = &farHome{home: s.home, dir: s.t.TempDir()}
	p.write("key", made.Key+"\n")
	p.env = append(os.Environ(), "WISBOX_CACHE="+p.dir+"/cache", "XDG_CONFIG_HOME="+p.dir, "WISBOX_REMOTE=", "WISBOX_API_KEY=")
	p.ok("remote", "add", "team", s.url, "--key-file", "key", "--ca-file", s.ca)
	p.ok("remote", "use", "team")
	return p, made.Key, made.ID
}

// TestARemoteBehindAKey uses a session like a local one, over TLS and without an account on the machine.
func TestARemoteBehindAKey(t *testing.T) {
	hosttest.Slow(t)
	s := newKeyedMachine(t)
	p, _, _ := s.person()
	p.write("src/a", "one\n")
	p.ok("session", "create", "box", "--mount", "src")
	assert.NoDirExists(t, filepath.Join(p.dir, "cache", "sessions"))
	big := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB
	out, _ := p.far(strings.NewReader(big), 3, "exec", "-i", "box", "--", "sh", "-c", "cat a; cat; exit 3")
	assert.Equal(t, "one\n"+big, out)
	_, errs := p.far(nil, 127, "exec", "box", "--", "nosuch")
	assert.Equal(t, "nosuch: command not found\n", errs)
	assert.Equal(t, "42\n", p.ok("eval", "python", "--session", "box", "print(6 * 7)"))
	id := strings.TrimSpace(p.ok("exec", "--detach", "--wait-port", "8000", "box", "--", "python3", "-m", "http.server", "8000"))
	assert.Contains(t, p.ok("ps", "box"), id)
	port := freePort(t)
	p.begin(p.client("port", "--raw", "--tcp", strconv.Itoa(port), "box", "8000"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		res, err := http.Get("http://127.0.0.1:" + strconv.Itoa(port) + "/a")
		if assert.NoError(c, err) {
			body, err := io.ReadAll(res.Body)
			assert.NoError(c, errors.Join(err, res.Body.Close()))
			assert.Equal(c, "one\n", string(body))
		}
	}, 30*time.Second, 10*time.Millisecond)
	p.ok("exec", "box", "--", "sh", "-c", "echo more >> a; echo new > c")
	p.ok("exec", "box", "--", "sh", "-c", "echo wrong > c")
	p.ok("undo", "box")
	p.ok("apply", "box")
	assert.Equal(t, "one\nmore\n", p.read("src/a"))
	assert.Equal(t, "new\n", p.read("src/c"))
	p.ok("cp", "src/c", "box:/d")
	assert.Equal(t, "new\n", p.ok("exec", "box", "--", "cat", "d"))
	p.ok("session", "save", "box", "box.tar")
	p.ok("session", "load", "box.tar", "twin")
	p.ok("session", "clone", "twin", "third")
	p.ok("rename", "third", "fourth")
	p.write("token", "a value of a secret")
	p.ok("session", "secret", "fourth", "TOKEN=token")
	assert.Equal(t, strings.Repeat("*", 19)+"\n", p.ok("exec", "fourth", "--", "sh", "-c", "cat /run/secrets/TOKEN; echo"))
	assert.Equal(t, "ephemeral\n", p.ok("run", "--", "echo", "ephemeral"))
	p.ok("session", "pause", "twin")
	p.far(nil, 125, "exec", "twin", "--", "true")
	p.ok("session", "resume", "twin")
	shown := p.ok("session", "inspect", "box") + p.ok("--json", "session", "inspect", "box") + p.ok("--json", "ls") + p.ok("log", "box")
	assert.NotContains(t, shown, s.cache, "no path of the machine")
	for _, id := range s.sessions() {
		assert.NotContains(t, shown, id)
	}
	assert.Equal(t, 3, strings.Count(p.ok("--json", "ls"), `"kept":true`))
	p.ok("rm", "box", "twin", "fourth")
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, s.sessions()) }, 60*time.Second, 50*time.Millisecond)
}

// TestKeysOfARemoteDoNotMeet: each key has a session "box" and can't find the other's, nor any session of the machine's
// own user.
func TestKeysOfARemoteDoNotMeet(t *testing.T) {
	hosttest.Slow(t)
	s := newKeyedMachine(t)
	a, _, _ := s.person()
	b, keyB, _ := s.person()
	s.do("session", "create", "own")
	s.do("template", "create", "own", "kept")
	for name, p := range map[string]*farHome{"a": a, "b": b} {
		p.ok("session", "create", "box")
		p.ok("exec", "box", "--", "sh", "-c", "echo "+name+" > who")
	}
	b.ok("session", "create", "only-b")
	b.ok("template", "create", "box", "bs")
	ids := s.sessions()
	require.Len(t, ids, 4)
	for _, name := range append(ids, "only-b", "nosuch") {
		if name == "box" {
			continue
		}
		for _, args := range [][]string{
			{"exec", name, "--", "true"}, {"session", "inspect", name}, {"log", name}, {"rm", name}, {"stop", name}, {"rename", name, "mine"}, {"session", "clone", name, "mine"},
			{"cp", name + ":/who", "-"}, {"diff", name}, {"ps", name}, {"session", "save", name, "x.tar"}, {"session", "reset", name}, {"session", "pause", name}, {"snapshot", "list", name},
			{"call", name, "ls", "{}"}, {"attach", name, "x"}, {"session", "allow", name, "example.com"}, {"template", "create", name, "x"},
		} {
			cmd := a.client(args...)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%v", args)
			assert.Contains(t, string(out), "not found", "%v", args)
		}
	}
	for _, name := range []string{"bs", "kept"} {
		a.far(nil, 1, "template", "rm", name)
		a.far(nil, 1, "session", "create", "x", "--template", name)
	}
	assert.Equal(t, "a\n", a.ok("exec", "box", "--", "cat", "who"))
	assert.Equal(t, "b\n", b.ok("exec", "box", "--", "cat", "who"))
	a.ok("session", "save", "box", "a.tar")
	b.write("a.tar", a.read("a.tar"))
	_, errs := b.far(nil, 1, "session", "load", "a.tar", "only-b")
	assert.Contains(t, errs, "exists")
	a.ok("session", "load", "a.tar", "only-b")
	a.ok("rm", "box", "only-b")
	assert.Equal(t, "b\n", b.ok("exec", "box", "--", "cat", "who"))
	for _, args := range [][]string{
		{"session", "create", "x", "--image", "docker.io/library/alpine"}, {"session", "create", "x", "--memory", "8g"}, {"session", "create", "x", "--allow", "example.com"},
		{"session", "create", "x", "--service", "db=docker.io/library/redis"}, {"session", "create", "x", "--allow", "host:22"}, {"session", "create", "x", "--ttl", "48h"},
		{"session", "load", "a.tar", "x", "--with-settings"}, {"session", "allow", "box", "example.com"},
	} {
		out, err := b.client(args...).CombinedOutput()
		require.Error(t, err, "%v: %s", args, out)
	}
	assert.NotContains(t, b.ok("ls"), "\nx ")

	res := s.get(keyB, http.MethodGet, "/v2/sandboxes")
	assert.JSONEq(t, "[]", res, "clients of E2B see none")
	s.do("session", "rm", "own")
	s.do("template", "rm", "kept")
	b.ok("template", "rm", "bs")
	b.ok("rm", "box", "only-b")
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, s.sessions()) }, 60*time.Second, 50*time.Millisecond)
}

// get sends a request to the control API.
func (s *keyedMachine) get(key, method, path string) string {
	s.t.Helper()
	pool := x509.NewCertPool()
	raw, err := os.ReadFile(s.ca)
	require.NoError(s.t, err)
	pool.AppendCertsFromPEM(raw)
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader("{}"))
	require.NoError(s.t, err)
	r.Header.Set("X-Api-Key", key)
	res, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}).Do(r)
	require.NoError(s.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return string(body)
}

// TestAKeysBoundsAreOne total for its E2B sandboxes and its remote sessions.
func TestAKeysBoundsAreOne(t *testing.T) {
	s := newKeyedMachine(t)
	p, key, _ := s.person("--sandboxes", "2")
	made := struct{ SandboxID string }{}
	require.NoError(t, json.Unmarshal([]byte(s.get(key, http.MethodPost, "/v2/sandboxes")), &made))
	require.NotEmpty(t, made.SandboxID)
	p.ok("session", "create", "one")
	_, errs := p.far(nil, 1, "session", "create", "two")
	assert.Contains(t, errs, "this key has 2 sessions and sandboxes")
	assert.Contains(t, s.get(key, http.MethodPost, "/v2/sandboxes"), "this key has 2 sandboxes")
	assert.Contains(t, p.ok("ls"), "one")
	assert.NotContains(t, p.ok("ls"), made.SandboxID)
	p.far(nil, 125, "exec", made.SandboxID, "--", "true")
	s.get(key, http.MethodDelete, "/sandboxes/"+made.SandboxID)
	p.ok("session", "create", "two")
	p.ok("rm", "one", "two")
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, s.sessions()) }, 60*time.Second, 50*time.Millisecond)
}

// cable is a TCP connection between a client and the server that can be cut.
type cable struct {
	net.Listener
	mu  sync.Mutex
	all []net.Conn
}

func (c *cable) run(to string) {
	for {
		near, err := c.Accept()
		if err != nil {
			return
		}
		other, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close()
			continue
		}
		c.mu.Lock()
		c.all = append(c.all, near, other)
		c.mu.Unlock()
		go func() { _, _ = io.Copy(near, other); _ = near.Close() }()
		go func() { _, _ = io.Copy(other, near); _ = other.Close() }()
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close()
	}
	c.all = nil
}

// TestARemotesConnectionThatIsCut ends its client's programs and nothing else, and so does the end of its key.
func TestARemotesConnectionThatIsCut(t *testing.T) {
	s := newKeyedMachine(t)
	p, _, keyID := s.person()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{Listener: l}
	t.Cleanup(func() { _ = l.Close(); c.cut() })
	go c.run(strings.TrimPrefix(s.url, "https://"))
	p.ok("remote", "add", "cable", "https://"+l.Addr().String(), "--key-file", "key", "--ca-file", s.ca)
	p.ok("remote", "use", "cable")
	p.ok("session", "create", "box")
	id := strings.TrimSpace(p.ok("exec", "--detach", "box", "--", "sleep", "600"))
	running := func() (cmd *exec.Cmd, errs *bytes.Buffer) {
		cmd, errs = p.client("exec", "box", "--", "sh", "-c", "echo begun; sleep 601"), &bytes.Buffer{}
		cmd.Stderr = errs
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		p.begin(cmd)
		_, err = io.ReadFull(out, make([]byte, 6))
		require.NoError(t, err)
		return cmd, errs
	}
	cmd, errs := running()
	c.cut()
	_ = cmd.Wait()
	assert.Equal(t, 125, cmd.ProcessState.ExitCode())
	assert.Contains(t, errs.String(), "the connection to the other machine broke during the call")
	assert.Contains(t, p.ok("ps", "box"), id)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NotContains(c, p.ok("exec", "box", "--", "ps", "ax"), "sleep 601", "what the broken one ran is ended")
	}, 20*time.Second, 50*time.Millisecond)

	cmd, errs = running()
	s.do("serve", "key", "revoke", keyID)
	_ = cmd.Wait()
	assert.Equal(t, 125, cmd.ProcessState.ExitCode())
	assert.Contains(t, errs.String(), "the connection to the other machine broke during the call")
	_, said := p.far(nil, 1, "ls")
	assert.Contains(t, said, "revoked")
	for _, id := range s.sessions() {
		assert.Contains(t, s.do("ps", id), "sleep 600", "the session stays until its time is over")
		s.do("rm", id)
	}
}

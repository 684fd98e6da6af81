package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// balancer is one address for several servers: it passes each connection to the next server that accepts
// it, and records the bytes.
type balancer struct {
	url  string
	said *safe

	mu      sync.Mutex
	servers []*server
	next    int
}

func (w *world) balance(servers ...*server) *balancer {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	b := &balancer{url: "http://" + l.Addr().String(), said: &safe{}, servers: servers}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { b.pass(near) })
		}
	})
	w.t.Cleanup(func() {
		require.NoError(w.t, l.Close())
		for _, s := range servers {
			s.kill()
		}
		passing.Wait()
	})
	return b
}

func (b *balancer) dial() net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.servers {
		s := b.servers[b.next%len(b.servers)]
		b.next++
		if conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://")); err == nil {
			return conn
		}
	}
	return nil
}

func (b *balancer) pass(near net.Conn) {
	defer near.Close()
	to := b.dial()
	if to == nil {
		return
	}
	defer to.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(to, near)
		_ = to.Close()
	}()
	_, _ = io.Copy(near, io.TeeReader(to, b.said))
	_ = near.Close()
	<-sent
}

// person is a wisbox user with a key and no rights in the cluster.
type person struct {
	t        *testing.T
	dir, key string
	url      string
	heard    *safe
}

func (b *balancer) person(t *testing.T, key string) *person {
	return &person{t, t.TempDir(), key, b.url, &safe{}}
}

func (p *person) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, hosttest.Binary(p.t), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "WISBOX_CACHE=" + filepath.Join(p.dir, "cache"), "XDG_CONFIG_HOME=" + p.dir,
		"WISBOX_REMOTE=" + p.url, "WISBOX_API_KEY=" + p.key,
	}
	return cmd
}

// try runs wisbox and returns its output and exit code.
func (p *person) try(args ...string) (out, errs string, code int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), guard)
	defer cancel()
	cmd := p.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, p.heard), io.MultiWriter(&stderr, p.heard)
	err := cmd.Run()
	require.NoError(p.t, ctx.Err(), "wisbox %q hangs: %s", args, &stderr)
	if err != nil {
		require.IsType(p.t, &exec.ExitError{}, err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func (p *person) ok(args ...string) string {
	p.t.Helper()
	out, errs, code := p.try(args...)
	require.Zero(p.t, code, "wisbox %q: %s%s", args, out, errs)
	return out
}

func (p *person) fails(word string, args ...string) {
	p.t.Helper()
	out, errs, code := p.try(args...)
	assert.NotZero(p.t, code, "wisbox %q: %s", args, out)
	assert.Contains(p.t, errs, word, "wisbox %q", args)
}

// farWorld returns two servers behind one address.
func farWorld(t *testing.T) (w *world, a, b *server, all *balancer) {
	t.Helper()
	w = newWorld(t)
	a, b = w.serve("--allow-remote"), w.serve("--allow-remote")
	return w, a, b, w.balance(a, b)
}

// silent checks that nothing sent to clients names a Pod, the cluster or a machine.
func (w *world) silent(all *balancer, people ...*person) {
	w.t.Helper()
	heard := all.said.String()
	for _, p := range people {
		heard += p.heard.String()
	}
	words := []string{w.name, w.place, w.proxy.Address, w.secret, w.config, "kubectl"}
	for _, pod := range w.pods() {
		words = append(words, pod.Labels["wisbox.dev/session"], string(pod.UID), pod.Spec.NodeName)
	}
	for _, word := range words {
		if i := strings.Index(heard, word); i >= 0 {
			w.t.Errorf("clients hear %q: %q", word, heard[max(0, i-200):min(len(heard), i+100)])
		}
	}
}

// TestAFarClientOfTwoServers checks that sessions of a client with a key work as elsewhere, behind two
// servers and after one of them was killed.
func TestAFarClientOfTwoServers(t *testing.T) {
	w, a, b, all := farWorld(t)
	p, other := all.person(t, w.keys[0]), all.person(t, w.keys[1])
	src := filepath.Join(p.dir, "src")
	require.NoError(t, os.Mkdir(src, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(src, "a"), []byte("one\n"), 0o644))
	p.ok("session", "create", "box", "--mount", "src")
	assert.Equal(t, "one\n", p.ok("exec", "box", "--", "cat", "a"), "the other server knows it")
	pods := w.pods()
	require.Len(t, pods, 1)
	raw, err := json.Marshal(pods[0])
	require.NoError(t, err)
	assert.NotEmpty(t, pods[0].Labels["wisbox.dev/owner"])
	assert.NotContains(t, string(raw), `"box"`)
	assert.EqualValues(t, 24*3600+60, *pods[0].Spec.ActiveDeadlineSeconds, "the cluster ends it without any server")

	assert.Contains(t, other.ok("ls"), "no sessions")
	other.fails("not found", "exec", "box", "--", "true")
	other.fails("not found", "rm", "box")
	running := strings.TrimSpace(p.ok("exec", "--detach", "box", "--", "sh", "-c", "echo begun; sleep 600"))
	p.ok("exec", "box", "--", "sh", "-c", "echo more >> a; echo new > c")
	p.ok("exec", "box", "--", "sh", "-c", "echo wrong > c")
	p.ok("undo", "box")
	p.ok("apply", "box")
	applied, err := os.ReadFile(filepath.Join(src, "a"))
	require.NoError(t, err)
	assert.Equal(t, "one\nmore\n", string(applied))
	p.ok("cp", "src/c", "box:/d")
	assert.Equal(t, "new\n", p.ok("exec", "box", "--", "cat", "d"))
	assert.Contains(t, p.ok("log", "box"), "echo wrong")
	assert.Contains(t, p.ok("--json", "session", "inspect", "box"), `"id":"box"`)
	p.ok("session", "save", "box", "box.tar")
	p.ok("session", "load", "box.tar", "twin")
	assert.Equal(t, "new\n", p.ok("exec", "twin", "--", "cat", "c"))
	assert.Equal(t, "one\nmore\n", p.ok("run", "--mount", "src", "--", "cat", "a"))

	// Killing a server fails the running call; the session and its processes go on.
	direct := *p
	direct.url = a.url
	var errs bytes.Buffer
	call := direct.command(t.Context(), "exec", "box", "--", "sh", "-c", "touch begun; sleep 600")
	call.Stderr = &errs
	require.NoError(t, call.Start())
	require.Eventually(t, func() bool { _, _, code := p.try("exec", "box", "--", "test", "-e", "begun"); return code == 0 }, guard, 50*time.Millisecond)
	a.kill()
	require.Error(t, call.Wait())
	assert.Contains(t, errs.String(), "it may have begun")
	assert.Contains(t, p.ok("logs", "box", running), "begun")
	assert.Contains(t, p.ok("ps", "box"), "running")
	p.fails("exists already", "session", "create", "twin")
	other.ok("session", "create", "twin")
	assert.Empty(t, other.ok("exec", "twin", "--", "ls"))
	for word, args := range map[string][]string{
		"a clone": {"session", "clone", "box", "third"}, "another name": {"rename", "box", "third"}, "a template": {"template", "create", "box", "kept"},
		"opens no network": {"session", "create", "no", "--allow", "example.com"}, "isn't offered": {"session", "create", "no", "--image", "docker.io/library/alpine"},
	} {
		p.fails(word, args...)
	}
	w.silent(all, p, other)
	assert.Equal(t, 2, strings.Count(p.ok("--json", "ls"), `"kept":true`))
	assert.NotContains(t, a.log.String()+b.log.String(), w.keys[0])
	p.ok("rm", "box", "twin")
	other.ok("rm", "twin")
	require.Eventually(t, func() bool { return len(w.pods()) == 0 }, guard, 20*time.Millisecond, "also that of run")
}

// TestANameIsOneSessionAtAllServers checks concurrent creations with one name, and that a removed session's
// name is free at once.
func TestANameIsOneSessionAtAllServers(t *testing.T) {
	w, a, b, all := farWorld(t)
	makers := make([]*person, 4)
	codes := make([]int, len(makers))
	var making sync.WaitGroup
	for i := range makers {
		makers[i] = all.person(t, w.keys[0])
		makers[i].url = []*server{a, b}[i%2].url
		making.Go(func() { _, _, codes[i] = makers[i].try("session", "create", "box") })
	}
	making.Wait()
	slices.Sort(codes)
	assert.Equal(t, []int{0, 1, 1, 1}, codes)
	makers[0].ok("rm", "box")
	makers[1].ok("session", "create", "box", "--ttl", "10m")
	makers[0].ok("exec", "box", "--", "true")
	require.Eventually(t, func() bool { return len(w.pods()) == 1 }, guard, 20*time.Millisecond)
	assert.EqualValues(t, 660, *w.pods()[0].Spec.ActiveDeadlineSeconds)
	_, body := a.ask(w.keys[0], http.MethodGet, "/v2/sandboxes", "")
	assert.Equal(t, "[]", strings.TrimSpace(body), "a session is no sandbox of E2B's clients")

	// Only the log has errors of the cluster.
	w.proxy.Stop()
	makers[0].fails("the server can't use the session's Pod now", "exec", "box", "--", "true")
	makers[0].fails("the server can't reach its cluster now", "rm", "box")
	makers[1].fails("can't", "session", "create", "third")
	w.proxy.Start()
	require.Eventually(t, func() bool { _, _, code := makers[0].try("exec", "box", "--", "true"); return code == 0 }, guard, 50*time.Millisecond)
	assert.Regexp(t, "failed on the cluster.*can't be reached", a.log.String())
	w.silent(all, makers...)
	pod := w.pods()[0].Name
	require.NoError(t, w.api.Delete().Namespace(w.name).Resource("pods").Name(pod).Do(t.Context()).Error())
	require.Eventually(t, func() bool { return len(w.pods()) == 0 }, guard, 20*time.Millisecond)
	_, errs, code := makers[0].try("exec", "box", "--", "true")
	assert.NotZero(t, code)
	assert.Regexp(t, "has ended, and its files are lost|not found", errs)
	w.silent(all, makers...)

	// The owner can free the name of a session whose creation died with its server.
	before := len(w.pods())
	cut := makers[0].command(t.Context(), "session", "create", "half")
	require.NoError(t, cut.Start())
	require.Eventually(t, func() bool { return len(w.pods()) > before }, guard, time.Millisecond)
	a.kill()
	require.Error(t, cut.Wait())
	makers[1].fails("being created", "session", "create", "half")
	makers[1].ok("rm", "half")
	makers[1].ok("session", "create", "half")
	assert.Contains(t, makers[1].ok("ls"), "half")
}

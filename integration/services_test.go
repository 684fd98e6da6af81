package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// serverImage builds an image whose entrypoint is testdata/services/server.py, as root.
func serverImage(t *testing.T, lines string) string {
	t.Helper()
	need(t)
	if env.isolation == sandbox.IsolationGVisor {
		t.Skip("no other container can join gVisor's network; the run without gVisor does this")
	}
	server, err := os.ReadFile("testdata/services/server.py")
	require.NoError(t, err)
	name := ownName(t)
	newHome(t).do("image", "build", "-t", name, writeTree(t, map[string]string{
		"server.py":     string(server),
		"Containerfile": "FROM localhost/wisbox\nCOPY server.py /server.py\nVOLUME /data\nUSER root\nENTRYPOINT [\"python3\", \"/server.py\"]\nCMD []\n" + lines,
	}))
	return name
}

// question is Python that sends a request to a loopback port.
const question = `import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
s.sendall(sys.argv[2].encode()); s.shutdown(socket.SHUT_WR)
print(s.makefile().read(), end="")`

// services returns the containers of a session's services.
func services(t *testing.T, m *wisbox.Manager, session string) []string {
	t.Helper()
	var list []struct{ Id string }
	filter := url.QueryEscape(fmt.Sprintf(`{"label":["wisbox.companion","wisbox.sandbox=%s"]}`, session))
	require.Equal(t, http.StatusOK, apiInto(t, m, http.MethodGet, "/containers/json?all=true&filters="+filter, &list))
	var ids []string
	for _, c := range list {
		ids = append(ids, c.Id)
	}
	return ids
}

// TestServicesAreReachedAndClosed: programs reach a service at 127.0.0.1 from the first call on. Apart from the
// capabilities in docs/network.md, in the session's user namespace, it has no network, right or file that the session's
// programs lack.
func TestServicesAreReachedAndClosed(t *testing.T) {
	image := serverImage(t, "EXPOSE 8000/tcp 53/udp\n")
	opts := &wisbox.SessionOptions{Services: []sandbox.Companion{{Name: "one", Image: image}, {Name: "two", Image: image, Port: 80, Env: map[string]string{"PORT": "80"}}}}
	opts.Allow = []string{"example.com"} // low ports are theirs, too
	s, other := open(t, opts), open(t, nil)
	out, _ := run(t, s, "python3", "-c", question, "8000", "hello")
	assert.Equal(t, "hello 1\n", out)
	out, _ = run(t, s, "python3", "-c", question, "8000", "hello")
	assert.Equal(t, "hello 2\n", out, "the same one")
	out, _ = run(t, s, "python3", "-c", question, "80", "hello")
	assert.Equal(t, "hello 1\n", out)
	out, _ = run(t, other, "python3", "-c", question, "8000", "hello")
	assert.Contains(t, out, "Connection refused")

	out, _ = run(t, s, "python3", "-c", question, "8000", "facts")
	assert.Equal(t, `seccomp 2 nnp 1
caps cb
devices lo
root Read-only file system, tmp yes, data yes, kernel Read-only file system
workspace [] False
out Network is unreachable
mount Operation not permitted
processes 1
localhost 127.0.0.1
`, out)

	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []sandbox.CompanionState{{Name: "one", Image: image, State: "running"}, {Name: "two", Image: image, State: "running"}}, in.Services)
	assert.EventuallyWithT(t, func(t *assert.CollectT) { // Podman writes it down while the answer is read
		var said strings.Builder
		require.NoError(t, s.ServiceOutput(context.Background(), "one", &wisbox.OutputOptions{Stdout: &said, Tail: 2}))
		assert.Equal(t, "asked hello\nasked facts\n", said.String())
	}, 30*time.Second, 20*time.Millisecond)
	assert.Equal(t, tool.NotFound, kind(s.ServiceOutput(t.Context(), "three", nil)))

	_, body := api(t, env.manager, http.MethodGet, "/containers/"+services(t, env.manager, s.ID())[0]+"/json")
	bounds, _ := body["HostConfig"].(map[string]any)
	for limit, want := range map[string]struct {
		name  string
		value float64
	}{"memory": {"Memory", sandbox.CompanionMemory}, "pids": {"PidsLimit", sandbox.CompanionPIDs}, "cpus": {"CpuQuota", 100_000}} {
		if enforced(t, s)[limit].Enforced {
			assert.Equal(t, want.value, bounds[want.name], limit)
		}
	}

	// a restarted container has its services again, in its new network
	restart(t, s.ID())
	assert.Equal(t, "hello 1\n", recovered(t, s, "python3 -c '"+question+"' 8000 hello"))
	kill(t, inspected(t, env.manager, s.ID(), "Pid"), syscall.SIGKILL)
	assert.Equal(t, "hello 1\n", recovered(t, s, "python3 -c '"+question+"' 8000 hello"), "one that ended, too")
	require.NoError(t, s.Reset(t.Context()))
	in, err = s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "none yet", in.Services[0].State)
	out, _ = run(t, s, "python3", "-c", question, "8000", "hello")
	assert.Equal(t, "hello 1\n", out, "another one")
	require.NoError(t, s.Close(t.Context()))
	assert.Empty(t, services(t, env.manager, s.ID()))
}

// TestAServiceThatDoesNotComeUpSaysWhy and leaves nothing.
func TestAServiceThatDoesNotComeUpSaysWhy(t *testing.T) {
	image := serverImage(t, "EXPOSE 8000\n")
	silent := serverImage(t, "")
	derived := func(lines string) string {
		name := ownName(t)
		newHome(t).do("image", "build", "-t", name, writeTree(t, map[string]string{"Containerfile": "FROM localhost/wisbox\n" + lines}))
		return name
	}
	for name, c := range map[string]struct {
		service sandbox.Companion
		kind    tool.Kind
		says    []string
	}{
		"it ends":           {sandbox.Companion{Image: image, Env: map[string]string{"MODE": "ends"}}, tool.Unavailable, []string{"service db: it ended with exit code 1 before it listened on port 8000", "service ends\nit has no such table"}},
		"it ends in a line": {sandbox.Companion{Image: image, Env: map[string]string{"MODE": "breaks off"}}, tool.Unavailable, []string{"service breaks off\nno such table: t"}},
		"it has no memory":  {sandbox.Companion{Image: image, Env: map[string]string{"MODE": "eats"}, Memory: 32 << 20}, tool.Unavailable, []string{"service db: it ", "ran out of ", "give it more with memory=SIZE"}},
		"it has no user":    {sandbox.Companion{Image: derived("USER nosuch\nENTRYPOINT [\"sleep\", \"1\"]\n"), Port: 1}, tool.Unavailable, []string{"has no user nosuch, as which it is to run"}},
		"nor a directory":   {sandbox.Companion{Image: derived("USER nosuch:x\nVOLUME /d\nCMD [\"true\"]\n"), Port: 1}, tool.Unavailable, []string{"has no user nosuch, as which it is to run"}},
		"it has no group":   {sandbox.Companion{Image: derived("USER 1000:nosuch\nCMD [\"true\"]\n"), Port: 1}, tool.Unavailable, []string{"has no group nosuch, as which it is to run"}},
		"it has no program": {sandbox.Companion{Image: derived("ENTRYPOINT [\"nosuch\"]\n"), Port: 1}, tool.Unavailable, []string{"starts nosuch, which it doesn't have"}},
		"it starts nothing": {sandbox.Companion{Image: derived("EXPOSE 1\n")}, tool.Unavailable, []string{"starts nothing; give it an ENTRYPOINT or a CMD"}},
		"nor a path":        {sandbox.Companion{Image: derived("ENTRYPOINT [\"/no/such\"]\n"), Port: 1}, tool.Unavailable, []string{"starts /no/such, which it doesn't have"}},
		"it has a text":     {sandbox.Companion{Image: derived("ENTRYPOINT [\"/etc/profile\"]\n"), Port: 1}, tool.Unavailable, []string{"starts /etc/profile, which can't be executed"}},
		"it has no port":    {sandbox.Companion{Image: silent}, tool.Invalid, []string{"exposes no TCP port; give the port on which it listens with port="}},
		"it has no image":   {sandbox.Companion{Image: "localhost/nothing-of-that-name:1"}, tool.Unavailable, []string{"service db: image localhost/nothing-of-that-name:1 not found"}},
		"its port is taken": {sandbox.Companion{Image: image, Port: 3128}, tool.Invalid, []string{"another service or program already listens on its port 3128"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.service.Memory != 0 && !enforced(t, open(t, nil))["memory"].Enforced {
				t.Skip("no container's memory is bounded for this user; root's run of this test does it")
			}
			c.service.Name = "db"
			s := open(t, &wisbox.SessionOptions{Services: []sandbox.Companion{c.service}, Allow: []string{"example.com"}})
			for range 2 {
				_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
				require.Equal(t, c.kind, kind(err), "%v", err)
				for _, text := range c.says {
					assert.ErrorContains(t, err, text)
				}
				assert.Empty(t, services(t, env.manager, s.ID()))
			}
		})
	}
	s := open(t, &wisbox.SessionOptions{Services: []sandbox.Companion{{Name: "db", Image: silent, Port: 8000, Env: map[string]string{"MODE": "silent"}}}})
	ctx, giveUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { // a caller that gives up doesn't wait
		defer giveUp()
		assert.Eventually(t, func() bool { return len(services(t, env.manager, s.ID())) == 1 }, time.Minute, 10*time.Millisecond)
	})
	_, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"true"}})
	all.Wait()
	require.Equal(t, tool.Closed, kind(err), "%v", err)
	assert.Empty(t, services(t, env.manager, s.ID()))
}

// TestAServiceEndsWithItsSession, however the session ends; the service's output is bounded.
func TestAServiceEndsWithItsSession(t *testing.T) {
	image := serverImage(t, "EXPOSE 8000\n")
	h := newHome(t)
	h.do("session", "create", "box", "--service", "db="+image+",env=MODE=floods")
	assert.Contains(t, h.do("session", "inspect", "box"), "service    db ("+image+"): none yet")
	assert.Contains(t, h.fail("logs", "box", "db"), "it starts with the session's first program")
	asks := []string{"exec", "box", "--", "python3", "-c", question, "8000", "hello"}
	assert.Equal(t, "hello 1\n", h.do(asks...))
	logs := ""
	require.Eventually(t, func() bool { logs = h.do("logs", "box", "db"); return strings.Contains(logs, "asked hello") }, 30*time.Second, 20*time.Millisecond)
	assert.LessOrEqual(t, len(logs), sandbox.CompanionOutput)
	assert.Greater(t, len(logs), sandbox.CompanionOutput*9/10, "the newest of it is kept")
	assert.Contains(t, h.do("session", "inspect", "box"), "): running")

	killHolder(t, "box", h)
	require.Len(t, services(t, h.manager(), "box"), 1)
	assert.Equal(t, "hello 2\n", h.do(asks...), "the next holder has the same one")
	h.do("session", "clone", "box", "other")
	assert.Equal(t, "hello 1\n", h.do("exec", "other", "--", "python3", "-c", question, "8000", "hello"), "a clone has its own")
	h.do("session", "rm", "other")
	assert.Empty(t, services(t, h.manager(), "other"))

	// a service that ends is reported, and the session continues
	_, body := api(t, h.manager(), http.MethodPost, "/containers/"+services(t, h.manager(), "box")[0]+"/kill?signal=KILL")
	require.Empty(t, body)
	require.Eventually(t, func() bool { return strings.Contains(h.do("session", "inspect", "box"), "exited with code 137") }, 30*time.Second, 100*time.Millisecond)
	h.do("exec", "box", "--", "true")
	h.do("session", "rm", "box")
	assert.Empty(t, services(t, h.manager(), "box"))

	// an ephemeral session whose process is killed
	cmd := h.start("run", "--service", "db="+image, "--", "sleep", "600")
	require.Eventually(t, func() bool {
		names := h.sessions()
		return len(names) == 1 && len(services(t, h.manager(), names[0])) == 1
	}, time.Minute, 50*time.Millisecond)
	name := h.sessions()[0]
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	h.requireNothing()
	assert.Empty(t, services(t, h.manager(), name))
}

// TestTheNewestOfAServicesOutputIsKept, although the file in which Podman has it began again twice: at most once for each
// question, so that the keeper needn't be faster than the service.
func TestTheNewestOfAServicesOutputIsKept(t *testing.T) {
	image := serverImage(t, "EXPOSE 8000\n")
	s := open(t, &wisbox.SessionOptions{Services: []sandbox.Companion{{Name: "db", Image: image, Env: map[string]string{"MODE": "counts"}}}})
	var lines []string
	for n := range 3 {
		out, _ := run(t, s, "python3", "-c", question, "8000", "hello")
		require.Equal(t, fmt.Sprintf("hello %d\n", n+1), out)
		newest := fmt.Sprintf("line %d\nasked hello", 100_000*(n+1)-1)
		require.Eventually(t, func() bool {
			var said strings.Builder
			require.NoError(t, s.ServiceOutput(t.Context(), "db", &wisbox.OutputOptions{Stdout: &said}))
			text := strings.TrimSpace(said.String())
			lines = strings.Split(text, "\n")
			return strings.HasSuffix(text, newest)
		}, time.Minute, 100*time.Millisecond)
	}
	require.Len(t, lines, sandbox.CompanionLines)
	for i, line := range lines[:len(lines)-1] {
		require.Equal(t, fmt.Sprintf("line %d", 300_000-(len(lines)-1)+i), line, "without a gap")
	}
}

// TestServicesOfManyProcessesAreOne: concurrent processes share the services.
func TestServicesOfManyProcessesAreOne(t *testing.T) {
	image := serverImage(t, "EXPOSE 8000\n")
	h := newHome(t)
	s, err := h.manager().Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, Services: []sandbox.Companion{{Name: "db", Image: image}}})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			m, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: h.cache})
			if !assert.NoError(t, err) {
				return
			}
			defer m.Close()
			s, err := m.Attach(t.Context(), "box")
			if !assert.NoError(t, err) {
				return
			}
			defer s.Close(t.Context())
			out, res := run(t, s, "python3", "-c", question, "8000", "hello")
			assert.Zero(t, res.ExitCode, out)
		})
	}
	all.Wait()
	assert.Len(t, services(t, h.manager(), "box"), 1)
	require.NoError(t, h.manager().Remove(t.Context(), "box"))
	assert.Empty(t, services(t, h.manager(), "box"))
}

// TestAServiceOfPostgres from Debian, as the image's root or as its user.
func TestAServiceOfPostgres(t *testing.T) {
	need(t)
	if env.isolation == sandbox.IsolationGVisor {
		t.Skip("no other container can join gVisor's network; the run without gVisor does this")
	}
	if os.Getuid() != 0 {
		t.Skip("its image takes two minutes to build without rights; root's run of this test does it")
	}
	h, image, asUser := newHome(t), ownName(t), ownName(t)
	h.do("image", "build", "-t", image, "testdata/services")
	h.do("image", "build", "-t", asUser, writeTree(t, map[string]string{"Containerfile": "FROM " + image + "\nUSER postgres\n"}))
	h.do("session", "create", "box", "--image", image, "--service", "db="+image+",env=POSTGRES_USER=me", "--service", "more="+asUser+",env=PGPORT=5433,port=5433,memory=256m")
	for _, c := range []struct{ port, user string }{{"5432", "me"}, {"5433", "postgres"}} {
		sql := func(statement string) string {
			return strings.TrimSpace(h.do("exec", "box", "--", "psql", "-h", "127.0.0.1", "-p", c.port, "-U", c.user, "-v", "ON_ERROR_STOP=1", "-qtAc", statement, "postgres"))
		}
		sql("create table t as select generate_series(1, 1000) n")
		assert.Equal(t, "500500", sql("select sum(n) from t"))
	}
	assert.Contains(t, h.do("logs", "box", "db")+errorsOf(t, h, "logs", "box", "db"), "database system is ready to accept connections")
	h.do("session", "rm", "box")
	h.requireNothing()
}

func errorsOf(t *testing.T, h *home, args ...string) string {
	t.Helper()
	_, errs, code := command(t, h.cache, args...)
	require.Zero(t, code)
	return errs
}

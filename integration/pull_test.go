package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

func removeImageLater(t *testing.T, ref string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		info, err := env.backend.ImageInfo(ctx, ref)
		if errors.Is(err, sandbox.ErrNotFound) {
			return
		}
		require.NoError(t, err)
		require.NoError(t, env.backend.RemoveImage(ctx, info.ID))
	})
}

func requireNoImage(t *testing.T, ref string) {
	t.Helper()
	_, err := env.backend.ImageInfo(t.Context(), ref)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
}

// trust gives the Podman service of this test's commands other settings.
func trust(t *testing.T, r *registry) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "registries.conf")
	require.NoError(t, os.WriteFile(conf, []byte(r.insecure()), 0o644))
	t.Setenv("CONTAINERS_REGISTRIES_CONF", conf)
}

func TestAnImageIsPulledAndASessionRunsInIt(t *testing.T) {
	h := newHome(t)
	r := newRegistry(t, false)
	ref := r.push("tiny:1", runtime.GOARCH)
	trust(t, r)

	assert.Contains(t, h.fail("run", "--image", ref, "--pull", "never", "--", "true"), "fetch it with `wisbox image pull "+ref+"`")
	assert.Zero(t, r.manifests())

	out, errs, code := command(t, h.cache, "run", "--image", ref, "--", "echo", "hello")
	require.Zero(t, code, errs)
	assert.Equal(t, "hello\n", out)
	assert.Contains(t, errs, "pulling "+ref+"\n", "plain lines if there is no terminal")
	assert.NotContains(t, errs, "\x1b")
	once := r.manifests()

	_, errs, code = command(t, h.cache, "session", "create", "box", "--image", ref)
	require.Zero(t, code, errs)
	assert.NotContains(t, errs, "pulling", "it is there")
	assert.Equal(t, once, r.manifests())
	h.do("run", "--image", ref, "--pull", "always", "--", "true")
	assert.Greater(t, r.manifests(), once)

	listed := h.listed(ref)
	assert.Equal(t, "pulled", listed.Kind)
	assert.Equal(t, []string{"box"}, listed.UsedBy)
	h.do("image", "prune", "--all", "--dry-run")
	assert.Equal(t, listed.ID, h.listed(ref).ID)
	h.do("session", "rm", "box")
}

type listedImage struct {
	Image  string   `json:"image"`
	ID     string   `json:"id"`
	Kind   string   `json:"kind"`
	State  string   `json:"state"`
	UsedBy []string `json:"used_by"`
}

// listed returns the line of an image in image list.
func (h *home) listed(ref string) listedImage {
	h.t.Helper()
	var all struct{ Images []listedImage }
	require.NoError(h.t, json.Unmarshal([]byte(h.do("image", "list", "--json")), &all))
	for _, i := range all.Images {
		if strings.Contains(" "+i.Image+" ", " "+ref+" ") {
			return i
		}
	}
	require.Fail(h.t, "not listed", "%s in %v", ref, all)
	return listedImage{}
}

// refusing returns an address without a listener until the test ends. The address of a closed server could be reused.
func refusing(t *testing.T) (addr string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := unix.Getsockname(fd)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
}

func TestAPullsErrorsSayWhatToDo(t *testing.T) {
	h := newHome(t)
	r, secure := newRegistry(t, false), newRegistry(t, true)
	ref, other, locked := r.push("tiny:1", runtime.GOARCH), r.push("other:1", "s390x"), secure.push("tiny:1", runtime.GOARCH)
	silent := refusing(t)
	pull := func(args ...string) string { return h.fail(append([]string{"image", "pull"}, args...)...) }

	assert.Contains(t, pull(ref), "speaks HTTP without TLS; if you trust the network to it pull with `wisbox image pull --tls-verify=false`")
	assert.Contains(t, pull(locked), "the certificate of the registry "+secure.addr+" can't be verified")
	assert.Contains(t, pull("registry.invalid/x:1"), "there is no host registry.invalid")
	assert.Contains(t, pull("--tls-verify=false", silent+"/x:1"), "does not answer")
	assert.Contains(t, pull("--tls-verify=false", r.addr+"/tiny:2"), "has no such image or tag")
	assert.Contains(t, pull("--tls-verify=false", r.addr+"/none:1"), "has no such image or tag")
	assert.Contains(t, pull("--tls-verify=false", other), "it is for linux/s390x and this machine is linux/"+runtime.GOARCH)

	h.do("image", "pull", "--tls-verify=false", locked)
	assert.Equal(t, "pulled", h.listed(locked).Kind)

	r.failWith(func(w http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") {
			_, _ = w.Write([]byte("what nobody has asked for"))
			return true
		}
		return false
	})
	assert.Contains(t, pull("--tls-verify=false", ref), "image "+ref)
	requireNoImage(t, ref)
}

func TestAPullOfAPrivateImageNeedsALogin(t *testing.T) {
	h := newHome(t)
	r := newRegistry(t, false)
	ref := r.push("private:1", runtime.GOARCH)
	r.failWith(func(w http.ResponseWriter, req *http.Request) bool {
		if name, password, ok := req.BasicAuth(); ok && name == "me" && password == "secret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	assert.Contains(t, h.fail("image", "pull", "--tls-verify=false", ref), "log in with `podman login "+r.addr+"`")

	logIn(t, r.addr)
	h.do("image", "pull", "--tls-verify=false", ref)
}

// logIn writes the file of podman login for the user "me", where Podman looks first.
func logIn(t *testing.T, addr string) {
	t.Helper()
	if os.Getuid() == 0 { // otherwise the directory belongs to the tests' own user
		dir, err := os.MkdirTemp("", "run")
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
		t.Setenv("XDG_RUNTIME_DIR", dir)
	}
	login := toJSON(t, map[string]any{"auths": map[string]any{addr: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte("me:secret"))}}})
	path := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "containers", "auth.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, login, 0o600))
}

// hangs makes the registry never finish a layer. began is closed at the first request of a layer, and over when its
// client has gone.
func (r *registry) hangs() (began, over chan struct{}) {
	began, over = make(chan struct{}), make(chan struct{})
	r.failWith(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", "1000000")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		close(began)
		<-req.Context().Done()
		close(over)
		return true
	})
	return began, over
}

func TestAnInterruptEndsAPull(t *testing.T) {
	for name, args := range map[string][]string{
		"image pull": {"image", "pull", "--tls-verify=false"},
		"run":        {"run", "--image"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			r := newRegistry(t, false)
			ref := r.push("slow:1", runtime.GOARCH)
			trust(t, r)
			began, over := r.hangs()
			args := append(args, ref)
			if name == "run" {
				args = append(args, "--", "true")
			}
			cmd := h.command(args...)
			person := atTerminal(t, cmd, &pty.Winsize{Rows: 24, Cols: 80})
			wait(t, began, "the registry is never asked")
			require.Eventually(t, func() bool { return person.sees("pulling " + ref) }, time.Minute, 5*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
			wait(t, over, "Podman goes on with the pull")
			var ended interface{ ExitCode() int }
			require.ErrorAs(t, cmd.Wait(), &ended)
			assert.Equal(t, sandbox.ExitSignalBase+int(syscall.SIGINT), ended.ExitCode())
			requireNoImage(t, ref)
			assert.Empty(t, h.sessions())
		})
	}
}

func wait(t *testing.T, event <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(time.Minute):
		require.Fail(t, otherwise)
	}
}

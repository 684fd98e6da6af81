package serve

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// templateImages returns Podman's images of templates.
func templateImages(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("podman", "images", "--noheading", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "reference=localhost/wisbox-template").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// TestTemplatesAreBuilt by the SDK from npm; a deleted template leaves no image.
func TestTemplatesAreBuilt(t *testing.T) {
	w := newWorld(t)
	s := w.serve("--allow-builds")
	out := s.script("build.mjs")
	require.Contains(t, out, "done")
	id := strings.TrimSpace(out[strings.LastIndexByte(strings.TrimSpace(out), ' '):])
	assert.Contains(t, w.wisbox("template", "list"), id)
	assert.Contains(t, templateImages(t), id)
	other := w.wisbox("serve", "key", "create", "--name", "other")
	for _, path := range []string{"/templates/aliases/app", "/templates/aliases/" + id, "/templates/app/tags", "/templates/" + id + "/builds/" + id + "/status"} {
		assert.Equal(t, http.StatusOK, s.ask(w.key, "GET", path, "", nil), path)
		assert.Equal(t, http.StatusNotFound, s.ask(other, "GET", path, "", nil), path)
	}
	assert.Equal(t, http.StatusNotFound, s.ask(other, "POST", "/templates/tags", `{"target":"app:v1","tags":["mine"]}`, nil))
	assert.Equal(t, http.StatusNotFound, s.ask(other, "DELETE", "/templates/tags", `{"name":"app","tags":["v1"]}`, nil))
	assert.Equal(t, http.StatusNotFound, s.ask(other, "DELETE", "/templates/"+id, "", nil))
	assert.Equal(t, http.StatusNotFound, s.ask(other, "POST", "/sandboxes", `{"templateID":"`+id+`"}`, nil))
	assert.Equal(t, http.StatusNoContent, s.ask(w.key, "DELETE", "/templates/later", "", nil))
	w.wisbox("template", "rm", id)
	gone := func() bool { return !strings.Contains(templateImages(t), id) && len(w.sandboxes()) == 0 }
	if !assert.Eventually(t, gone, hangGuard, 100*time.Millisecond) {
		t.Logf("images of templates:\n%ssandboxes: %q\ntemplates:\n%s", templateImages(t), w.sandboxes(), w.wisbox("template", "list"))
	}
	log := s.stop()
	assert.NotContains(t, log, id)
	left, err := filepath.Glob(filepath.Join(w.cache, "serve", "builds", "*"))
	require.NoError(t, err)
	assert.Empty(t, left, "files that were sent")
}

// asked is a requested build.
type asked struct{ TemplateID, BuildID string }

func (s *server) askBuild(key, name string) asked {
	s.w.t.Helper()
	var a asked
	require.Equal(s.w.t, http.StatusAccepted, s.ask(key, "POST", "/v3/templates", `{"name":"`+name+`"}`, &a))
	return a
}

func (s *server) start(key string, a asked, body string) int {
	return s.ask(key, "POST", "/v2/templates/"+a.TemplateID+"/builds/"+a.BuildID, body, nil)
}

type buildState struct {
	Status     string
	LogEntries []struct{ Message string }
	Reason     struct{ Message, Step string }
}

func (s *server) state(key string, a asked) (b buildState) {
	s.w.t.Helper()
	require.Equal(s.w.t, http.StatusOK, s.ask(key, "GET", "/templates/"+a.TemplateID+"/builds/"+a.BuildID+"/status", "", &b))
	return b
}

// put uploads an archive to a URL, and returns the status.
func (s *server) put(url string, members ...tar.Header) int {
	t := s.w.t
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, hdr := range members {
		text := strings.Repeat("x", int(hdr.Size))
		require.NoError(t, w.WriteHeader(&hdr))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, &buf)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	return res.StatusCode
}

func (s *server) link(key string, a asked, hash string) string {
	s.w.t.Helper()
	var link struct {
		Present bool
		URL     string
	}
	require.Equal(s.w.t, http.StatusCreated, s.ask(key, "GET", "/templates/"+a.TemplateID+"/files/"+hash, "", &link))
	assert.False(s.w.t, link.Present)
	return link.URL
}

// TestBuildsOfOthersAreNotThere while they run. Builds end when they are deleted, and with the server.
func TestBuildsOfOthersAreNotThere(t *testing.T) {
	w := newWorld(t)
	s := w.serve("--allow-builds")
	other := w.wisbox("serve", "key", "create", "--name", "other")
	a := s.askBuild(w.key, "mine")
	hash := strings.Repeat("0a", 32)
	url := s.link(w.key, a, hash)
	assert.Equal(t, http.StatusNotFound, s.ask(other, "GET", "/templates/"+a.TemplateID+"/files/"+hash, "", nil))
	assert.Equal(t, http.StatusNotFound, s.start(other, a, `{}`))
	assert.Equal(t, http.StatusUnauthorized, s.put(url[:len(url)-1]), "a wrong token")
	assert.Equal(t, http.StatusUnauthorized, s.put(strings.Replace(url, a.TemplateID, s.askBuild(other, "mine").TemplateID, 1)), "the token of another build")
	assert.Equal(t, http.StatusBadRequest, s.put(url, tar.Header{Name: "../x", Size: 1}))
	assert.Equal(t, http.StatusBadRequest, s.put(url, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, tar.Header{Name: "l/passwd", Size: 1}))
	assert.Equal(t, http.StatusBadRequest, s.put(url, tar.Header{Name: "d", Typeflag: tar.TypeChar}))
	assert.Equal(t, http.StatusBadRequest, s.start(w.key, a, `{"steps":[{"type":"COPY","args":["x","/x","",""],"filesHash":"`+hash+`"}]}`), "nothing was sent")
	assert.Equal(t, http.StatusBadRequest, s.start(w.key, a, `{"steps":[{"type":"COPY","args":["x","/x","",""],"filesHash":"../../keys"}]}`))
	assert.Equal(t, http.StatusCreated, s.put(url, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc/hostname"}, tar.Header{Name: "x", Size: 1, Mode: 0o4755, Uid: 7}))

	slow := `{"steps":[{"type":"COPY","args":["l","/l","",""],"filesHash":"` + hash + `"}]}`
	require.Equal(t, http.StatusAccepted, s.start(w.key, a, slow))
	require.Eventually(t, func() bool { return s.state(w.key, a).Status == "error" }, 2*hangGuard, 50*time.Millisecond, "a link leads nowhere on the host")
	assert.Equal(t, http.StatusConflict, s.start(w.key, a, `{}`), "one that is over")

	marker := "31" + fmt.Sprint(time.Now().UnixNano()%1e6)
	b := s.askBuild(w.key, "slow")
	require.Equal(t, http.StatusAccepted, s.start(w.key, b, `{"steps":[{"type":"RUN","args":["echo begun; sleep `+marker+`"]}]}`))
	runs := func() bool { return exec.Command("pgrep", "-f", "^sleep "+marker).Run() == nil }
	require.Eventually(t, runs, 2*hangGuard, 50*time.Millisecond)
	c := s.askBuild(w.key, "next")
	require.Equal(t, http.StatusAccepted, s.start(w.key, c, `{"steps":[{"type":"RUN","args":["sleep `+marker+`"]}]}`))
	assert.Equal(t, "waiting", s.state(w.key, c).Status, "one builds at once")
	assert.Equal(t, http.StatusNotFound, s.ask(other, "DELETE", "/templates/"+b.TemplateID, "", nil))
	assert.True(t, runs())
	assert.Equal(t, http.StatusNoContent, s.ask(w.key, "DELETE", "/templates/"+b.TemplateID, "", nil))
	require.Eventually(t, func() bool { return s.state(w.key, c).Status == "building" && runs() }, 2*hangGuard, 50*time.Millisecond)
	s.stop()
	assert.False(t, runs(), "it ends with its server")
	assert.NotContains(t, templateImages(t), c.TemplateID)
	assert.Empty(t, w.sandboxes())

	s = w.serve()
	var refused struct{ Code int }
	assert.Equal(t, http.StatusNotFound, s.ask(w.key, "POST", "/v3/templates", `{"name":"x"}`, &refused), "only with --allow-builds")
	assert.Equal(t, http.StatusNotFound, refused.Code)
}

// cli runs E2B's CLI in a directory, with the server in its environment, and returns its output and exit code.
func (s *server) cli(dir, stdin string, args ...string) (string, int) {
	t := s.w.t
	t.Helper()
	packages := hosttest.NodePackages(t, "testdata/package.json")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(packages, "node/bin/node"), append([]string{filepath.Join(packages, "@e2b/cli/dist/index.js")}, args...)...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = dir, strings.NewReader(stdin), 5*time.Second
	cmd.Env = append(os.Environ(), "HOME="+dir, "E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url, "E2B_API_KEY="+s.w.key, "E2B_DOMAIN="+s.domain())
	out, err := cmd.CombinedOutput()
	require.True(t, err == nil || cmd.ProcessState != nil && cmd.ProcessState.ExitCode() >= 0, "%v: %s", err, out)
	return string(out), cmd.ProcessState.ExitCode()
}

// TestTheCLI of E2B from npm.
func TestTheCLI(t *testing.T) {
	w := newWorld(t)
	s := w.serve("--allow-builds")
	dir := t.TempDir()
	must := func(args ...string) string {
		t.Helper()
		out, code := s.cli(dir, "", args...)
		require.Zero(t, code, "%v: %s", args, out)
		return out
	}
	id := strings.TrimSpace(must("sandbox", "create", "base", "--detach"))
	require.Regexp(t, `^[a-z0-9]{20}$`, id)
	assert.Contains(t, must("sandbox", "list", "--format", "json"), id)
	assert.Contains(t, must("sandbox", "info", id), "State: running")
	out, code := s.cli(dir, "", "sandbox", "exec", id, "--", "sh", "-c", "echo hi; exit 3")
	assert.Contains(t, out, "hi")
	assert.Equal(t, 3, code)
	assert.Contains(t, must("sandbox", "pause", id), "paused")
	assert.Contains(t, must("sandbox", "resume", id), "resumed")
	assert.Contains(t, must("sandbox", "metrics", id), "Metrics for sandbox "+id)
	assert.Contains(t, must("sandbox", "logs", id), "Logs for sandbox "+id)
	assert.Contains(t, must("sandbox", "snapshot", "create", id), "Created snapshot")
	assert.Contains(t, must("sandbox", "snapshot", "list"), "SNAPSHOT ID")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "e2b.Dockerfile"), []byte("FROM e2bdev/base\nRUN echo built > /home/user/f\nCOPY x /opt/x\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), []byte("copied"), 0o600))
	assert.Contains(t, must("template", "create", "cli-made"), "cli-made finished")
	assert.Contains(t, must("template", "list", "--format", "json"), `"cli-made"`)
	second := strings.TrimSpace(must("sandbox", "create", "cli-made", "--detach"))
	assert.Contains(t, must("sandbox", "exec", second, "--", "cat", "/home/user/f"), "built")
	out, code = s.cli(dir, "", "template", "publish", "--yes", "cli-made")
	assert.NotZero(t, code)
	assert.Contains(t, out, "its key alone")
	assert.Contains(t, must("sandbox", "kill", id, second), "killed")
	must("template", "delete", "--yes", "cli-made")
	assert.NotContains(t, must("template", "list"), "cli-made")
}

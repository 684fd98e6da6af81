package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/doctor"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// broken is a machine in a separate mount namespace with some of its files replaced.
type broken struct {
	t     *testing.T
	place string
	mount map[string]string // path of the machine -> its replacement
	// ownPodman lets wisbox find and start Podman as usual; otherwise there is no Podman.
	ownPodman bool
}

// nobodysUID is a user that no machine has; the test provides everything for it.
const nobodysUID = "61234"

func newBroken(t *testing.T) *broken {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("it takes root to break a machine")
	}
	b := &broken{t: t, place: rootlessPlace(t), mount: map[string]string{}}
	b.put("/etc/subuid", nobodysUID+":100000:65536\n")
	b.put("/etc/subgid", nobodysUID+":100000:65536\n")
	b.put("/proc/sys/user/max_user_namespaces", "1000\n")
	return b
}

// put replaces the content of a file of the machine.
func (b *broken) put(path, content string) {
	b.t.Helper()
	instead := filepath.Join(b.place, strings.ReplaceAll(strings.Trim(path, "/"), "/", "_"))
	require.NoError(b.t, os.WriteFile(instead, []byte(content), 0o644))
	b.mount[path] = instead
}

// examine runs doctor on it, as that user or as root.
func (b *broken) examine(as string, env []string, args ...string) map[string]doctor.Line {
	b.t.Helper()
	script := []string{"set -e", "mount --make-rprivate /"}
	for path, instead := range b.mount {
		script = append(script, "mount --bind "+instead+" "+path)
	}
	script = append(script, `exec setpriv --reuid `+as+` --regid `+as+` --clear-groups "$@"`)
	bin := filepath.Join(b.place, "wisbox")
	if _, err := os.Stat(bin); err != nil {
		copyFile(b.t, binary(b.t), bin, 0o755)
	}
	home, err := os.MkdirTemp(b.place, "h")
	require.NoError(b.t, err)
	require.NoError(b.t, exec.Command("chown", as, home).Run())
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", strings.Join(script, "\n"), "sh", bin, "doctor", "--json"}, args...)...)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "WISBOX_CACHE=" + home + "/c"}, env...)
	if !b.ownPodman {
		cmd.Env = append(cmd.Env, "CONTAINER_HOST=unix://"+home+"/no.sock")
	}
	out, err := cmd.Output()
	var report doctor.Report
	require.NoError(b.t, json.Unmarshal(out, &report), "%s %v", out, err)
	lines := map[string]doctor.Line{}
	for _, l := range report.Lines {
		lines[l.Name] = l
	}
	return lines
}

// TestDoctorNamesEachBrokenPrerequisite breaks the prerequisites of rootless Podman one by one, and requires that only
// the line of each reports it.
func TestDoctorNamesEachBrokenPrerequisite(t *testing.T) {
	need(t)
	prerequisites := []string{"newuidmap", "subuid", "subgid", "user namespaces"}
	for _, c := range []struct {
		name, line, says string
		spoil            func(*broken)
	}{
		{"nothing", "", "", func(*broken) {}},
		{"no newuidmap", "newuidmap", "newuidmap is not there", func(b *broken) { b.mount["/usr/bin/newuidmap"] = "/dev/null" }},
		{"no newgidmap", "newuidmap", "newgidmap is not there", func(b *broken) { b.mount["/usr/bin/newgidmap"] = "/dev/null" }},
		{"no user ids", "subuid", "no range", func(b *broken) { b.put("/etc/subuid", "other:100000:65536\n") }},
		{"few user ids", "subuid", "a range of 10 ids", func(b *broken) { b.put("/etc/subuid", nobodysUID+":100000:10\n") }},
		{"no group ids", "subgid", "no range", func(b *broken) { b.put("/etc/subgid", "") }},
		{"no user namespaces", "user namespaces", "max_user_namespaces is 0", func(b *broken) { b.put("/proc/sys/user/max_user_namespaces", "0\n") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroken(t)
			c.spoil(b)
			lines := b.examine(nobodysUID, nil)
			assert.Equal(t, doctor.Broken, lines["podman"].Status, "there is no service, and that is reported too")
			for _, name := range prerequisites {
				want := doctor.OK
				if name == c.line {
					want = doctor.Broken
					assert.Contains(t, lines[name].Detail, c.says)
					assert.NotEmpty(t, lines[name].Fix)
				}
				assert.Equal(t, want, lines[name].Status, "%+v", lines[name])
			}
		})
	}
}

func TestDoctorRepairsWhatAUserLacks(t *testing.T) {
	need(t)
	b := newBroken(t)
	b.put("/etc/subuid", "other:100000:65536\n")
	b.put("/etc/subgid", "")
	b.put("/proc/sys/user/max_user_namespaces", "0\n")
	conf := filepath.Join(b.place, "sysctl.d")
	require.NoError(t, os.Mkdir(conf, 0o755))
	b.mount["/etc/sysctl.d"] = conf

	lines := b.examine(nobodysUID, nil, "--fix")
	assert.Equal(t, doctor.Broken, lines["subuid"].Status)
	assert.Contains(t, lines["subuid"].Detail, "needs root: sudo wisbox doctor --fix")

	lines = b.examine("0", []string{"SUDO_USER=nobody"}, "--fix")
	for _, name := range []string{"subuid", "subgid", "user namespaces"} {
		assert.Equal(t, doctor.OK, lines[name].Status, "%+v", lines[name])
		assert.Contains(t, lines[name].Detail, "repaired: ")
	}
	given, err := os.ReadFile(b.mount["/etc/subuid"])
	require.NoError(t, err)
	assert.Equal(t, "other:100000:65536\nnobody:165536:65536\n", string(given))
	assert.FileExists(t, filepath.Join(conf, "60-wisbox-max_user_namespaces.conf"))
}

// privateStore starts a Podman service with its own empty store.
func privateStore(t *testing.T, driver string) (url string) {
	t.Helper()
	place := rootlessPlace(t)
	socket := filepath.Join(place, "s")
	cmd := exec.Command("podman", "--root", filepath.Join(place, "root"), "--runroot", filepath.Join(place, "run"), "--tmpdir", filepath.Join(place, "tmp"), "--storage-driver", driver,
		"system", "service", "--time", "0", "unix://"+socket)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = exec.Command("umount", filepath.Join(place, "root", driver)).Run() // Podman mounts it onto itself
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond, "Podman's service does not start")
	return "unix://" + socket
}

func TestDoctorSaysThatTheImageIsMissing(t *testing.T) {
	need(t)
	lines, code := examine(t, "--podman", privateStore(t, "overlay"))
	assert.Equal(t, 1, code)
	assert.Equal(t, doctor.OK, lines["podman"].Status)
	assert.Equal(t, doctor.OK, lines["storage"].Status)
	assert.Equal(t, doctor.Broken, lines["image"].Status)
	assert.Regexp(t, `^localhost/wisbox:\w+ is not there$`, lines["image"].Detail)
	assert.Contains(t, lines["image"].Fix, "wisbox image build")
	assert.Equal(t, doctor.Skipped, lines["sessions"].Status)
}

func TestDoctorSaysThatTheStorageDriverCopiesEveryFile(t *testing.T) {
	need(t)
	lines, _ := examine(t, "--podman", privateStore(t, "vfs"))
	assert.Equal(t, doctor.NotEnforced, lines["storage"].Status)
	assert.Contains(t, lines["storage"].Detail, "driver vfs")
}

// TestDoctorSaysThatThereIsNoRuntime: Podman is installed without an OCI runtime.
func TestDoctorSaysThatThereIsNoRuntime(t *testing.T) {
	need(t)
	b := newBroken(t)
	b.ownPodman = true
	for _, name := range []string{"runc", "crun", "runsc", "kata-runtime", "youki"} {
		for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"} {
			if path, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
				b.mount[path] = "/dev/null"
			}
		}
	}
	store := filepath.Join(b.place, "storage.conf")
	require.NoError(t, os.WriteFile(store, fmt.Appendf(nil, "[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n",
		filepath.Join(b.place, "root"), filepath.Join(b.place, "run")), 0o600))
	lines := b.examine("0", []string{"CONTAINERS_STORAGE_CONF=" + store})
	assert.Equal(t, doctor.Broken, lines["podman"].Status)
	assert.Contains(t, lines["podman"].Detail, "finds no OCI runtime: install runc or crun")
	assert.NotEmpty(t, lines["podman"].Fix)
	assert.Equal(t, doctor.Skipped, lines["sessions"].Status)
}

// saying forwards requests to this run's Podman, and changes its answers about the host: one machine can't have both
// cgroup versions.
func saying(t *testing.T, change func(host map[string]any)) (url string) {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "d" },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialPodman(ctx, env.manager)
		}},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasSuffix(r.Request.URL.Path, "/libpod/info") {
				return nil
			}
			var info map[string]any
			if err := json.NewDecoder(r.Body).Decode(&info); err != nil {
				return err
			}
			change(info["host"].(map[string]any))
			raw, err := json.Marshal(info)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
			r.Header.Set("Content-Length", strconv.Itoa(len(raw)))
			return err
		},
	}
	socket := filepath.Join(rootlessPlace(t), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(socket, 0o666))
	server := &http.Server{Handler: proxy}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return "unix://" + socket
}

func TestDoctorSaysWhatIsNotDelegated(t *testing.T) {
	need(t)
	for has, missing := range map[string]string{"cpuset cpu io memory pids": "", "cpuset memory": "cpu, pids", "": "cpu, memory, pids"} {
		b := newBroken(t)
		url := saying(t, func(host map[string]any) {
			host["cgroupVersion"] = "v2"
			host["security"].(map[string]any)["rootless"] = true
		})
		groups := filepath.Join(b.place, "cgroup")
		slice := filepath.Join(groups, "user.slice/user-"+nobodysUID+".slice/user@"+nobodysUID+".service")
		require.NoError(t, os.MkdirAll(slice, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(slice, "cgroup.controllers"), []byte(has+"\n"), 0o644))
		b.mount["/sys/fs/cgroup"] = groups
		l := b.examine(nobodysUID, nil, "--podman", url)["cgroup"]
		if missing == "" {
			assert.Equal(t, doctor.OK, l.Status, "%+v", l)
			continue
		}
		assert.Equal(t, doctor.NotEnforced, l.Status, "%+v", l)
		assert.Contains(t, l.Detail, "not delegated to you: "+missing)
		assert.Contains(t, l.Fix, "Delegate=")
	}
}

func TestDoctorRefusesAnOldRuntimeWhenItIsToBeStrict(t *testing.T) {
	hosttest.Slow(t)
	need(t)
	for version, whole := range map[string]bool{"runc version 1.1.5\ncommit: x": false, "runc version 1.4.3": true} {
		url := saying(t, func(host map[string]any) {
			runtime := host["ociRuntime"].(map[string]any)
			runtime["version"], runtime["package"] = version, "Unknown"
		})
		lines, code := examine(t, "--strict", "--podman", url)
		if whole {
			assert.Equal(t, doctor.OK, lines["runtime"].Status, "%+v", lines)
			continue
		}
		assert.Equal(t, doctor.NotEnforced, lines["runtime"].Status, "%+v", lines)
		assert.Contains(t, lines["runtime"].Detail, "known way out of containers, CVE-2024-21626")
		assert.Equal(t, 1, code)
	}
}

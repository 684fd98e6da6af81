package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/doctor"
)

// broken is a machine in a mount namespace of its own, where files stand in the
// place of the machine's.
type broken struct {
	t     *testing.T
	place string
	mount map[string]string // path of the machine -> what is there instead
	path  string            // PATH
}

// nobodysUID is a user that no machine has: what it needs is what the test says.
const nobodysUID = "61234"

func newBroken(t *testing.T) *broken {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("it takes root to break a machine")
	}
	b := &broken{t: t, place: rootlessPlace(t), mount: map[string]string{}, path: "/nonexistent"}
	b.put("/etc/subuid", nobodysUID+":100000:65536\n")
	b.put("/etc/subgid", nobodysUID+":100000:65536\n")
	b.put("/proc/sys/user/max_user_namespaces", "1000\n")
	return b
}

// put has a file of the machine hold something else.
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
	cmd.Env = append(cmd.Env, "CONTAINER_HOST=unix://"+home+"/no.sock")
	out, err := cmd.Output()
	var report doctor.Report
	require.NoError(b.t, json.Unmarshal(out, &report), "%s %v", out, err)
	lines := map[string]doctor.Line{}
	for _, l := range report.Lines {
		lines[l.Name] = l
	}
	return lines
}

// TestDoctorNamesEachBrokenPrerequisite breaks one thing after another that
// rootless Podman needs, and nothing but its line says so.
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
			assert.Equal(t, doctor.Broken, lines["podman"].Status, "there is no service, and that is said too")
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

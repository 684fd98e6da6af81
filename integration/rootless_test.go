package integration

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/conformance"
)

const rootlessUser = "wisbox-it"

// rootlessCases leaves out the conformance cases that don't depend on who runs
// Podman and take minutes: races and floods.
const rootlessCases = `^(files|shell|process|mounts|python|lisp|own\.(edit|write|version|rbw|grep|glob|names|modes|sparse)|hostile\.(read|write|edit|rm|ls|glob|grep|shell|eval))\.`

// TestRootless runs every other test of this package again, as a user without
// any right, whom it makes: with a home, a runtime directory and a clean
// environment of its own, and the image handed over as an archive.
func TestRootless(t *testing.T) {
	need(t)
	if os.Getuid() != 0 {
		t.Skip("these tests run as a user without rights already")
	}
	place := rootlessPlace(t)
	u := makeUser(t)
	archive := filepath.Join(place, "image.tar")
	saveImage(t, archive)
	testBinary := filepath.Join(place, "integration.test")
	copyFile(t, "/proc/self/exe", testBinary, 0o755)
	wisbox := filepath.Join(place, "bin", "wisbox")
	require.NoError(t, os.Mkdir(filepath.Dir(wisbox), 0o755))
	copyFile(t, binary(t), wisbox, 0o755)
	tests := filepath.Join(place, "integration")
	require.NoError(t, os.CopyFS(filepath.Join(tests, "testdata"), os.DirFS("testdata")))
	require.NoError(t, os.CopyFS(filepath.Join(place, "examples"), os.DirFS("../examples")))
	copyFile(t, "../README.md", filepath.Join(place, "README.md"), 0o644)
	runtimeDir := filepath.Join(place, "run")
	require.NoError(t, os.Mkdir(runtimeDir, 0o700))
	require.NoError(t, os.Chown(runtimeDir, u.uid, u.gid))

	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testBinary, "-test.v", "-test.skip=^TestRootless$", "-test.timeout=14m")
	if pattern := os.Getenv("WISBOX_ROOTLESS_RUN"); pattern != "" {
		cmd.Args = append(cmd.Args, "-test.run="+pattern)
	}
	cmd.Dir = tests
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}, Setsid: true}
	cmd.Env = []string{
		"HOME=" + u.home, "USER=" + rootlessUser, "XDG_RUNTIME_DIR=" + runtimeDir, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"LANG=C.UTF-8", "WISBOX_TEST_IMAGE=" + archive, "WISBOX_REQUIRE_PODMAN=" + os.Getenv("WISBOX_REQUIRE_PODMAN"),
		"WISBOX_CONFORMANCE=" + sharedCopy(t, place), "TMPDIR=" + place,
		"WISBOX_ISOLATION=" + string(env.isolation), "WISBOX_RUNSC=" + runscCopy(t, place),
		"WISBOX_BIN=" + wisbox, "WISBOX_CASES=" + cmp.Or(os.Getenv("WISBOX_CASES"), rootlessCases),
	}
	out, err := cmd.CombinedOutput()
	t.Logf("as %s:\n%s", rootlessUser, out)
	require.NoError(t, err, "the tests fail as a user without rights")
	require.Contains(t, string(out), "--- PASS: TestTheMainJob")
}

// runscCopy is gVisor's runtime where the user can reach it; "" where none is named.
func runscCopy(t *testing.T, place string) string {
	t.Helper()
	runsc := os.Getenv("WISBOX_RUNSC")
	if runsc == "" {
		return ""
	}
	to := filepath.Join(place, "bin", "runsc")
	copyFile(t, runsc, to, 0o755)
	return to
}

// rootlessPlace is a directory that another user can reach: a test's own
// temporary directory isn't.
func rootlessPlace(t *testing.T) string {
	t.Helper()
	place, err := os.MkdirTemp("/var/tmp", "wb-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(place, 0o777|os.ModeSticky))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(place)) })
	return place
}

type account struct {
	uid, gid int
	home     string
}

// makeUser makes the user with ranges of subordinate ids, and removes it with
// everything that it left running.
func makeUser(t *testing.T) account {
	t.Helper()
	if _, err := user.Lookup(rootlessUser); err != nil {
		out, err := exec.Command("useradd", "--create-home", "--shell", "/bin/bash", rootlessUser).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	u, err := user.Lookup(rootlessUser)
	require.NoError(t, err)
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	ensureSubIDs(t, "/etc/subuid")
	ensureSubIDs(t, "/etc/subgid")
	t.Cleanup(func() {
		endProcessesOf(t, uid)
		out, err := exec.Command("userdel", "--force", "--remove", rootlessUser).CombinedOutput()
		if err != nil {
			t.Logf("userdel: %s", out)
		}
	})
	return account{uid, gid, u.HomeDir}
}

func ensureSubIDs(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil && strings.Contains("\n"+string(raw), "\n"+rootlessUser+":") {
		return
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s:400000:65536\n", rootlessUser)
	require.NoError(t, err)
}

// endProcessesOf ends what the test user left: Podman's pause process and the
// private service, which would end by itself after a minute.
func endProcessesOf(t *testing.T, uid int) {
	t.Helper()
	assert.Eventually(t, func() bool {
		left := 0
		for _, dir := range processDirs() {
			info, err := os.Stat(dir)
			if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != uid {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				left++
			}
		}
		return left == 0
	}, 10*time.Second, 20*time.Millisecond, "processes of %s are left", rootlessUser)
}

func processDirs() []string {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	return dirs
}

func saveImage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, env.backend.SaveImage(t.Context(), images.Default, f))
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, mode)
	require.NoError(t, err)
	defer out.Close()
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Chmod(mode))
}

// sharedCopy puts the conformance set where the user can read it.
func sharedCopy(t *testing.T, place string) string {
	t.Helper()
	to := filepath.Join(place, "conformance")
	if from, missing := conformance.SharedDir(); missing == "" {
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		require.NoError(t, exec.Command("chmod", "-R", "a+rX", to).Run())
	}
	return to
}

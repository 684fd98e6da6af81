package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/sandbox"
)

const rootlessUser = "wisbox-it"

// rootlessCases excludes slow conformance cases that don't depend on Podman's user: races and floods.
const rootlessCases = `^(files|shell|process|mounts|python|lisp|own\.(edit|write|version|rbw|grep|glob|names|modes|sparse)|hostile\.(read|write|edit|rm|ls|glob|grep|shell|eval))\.`

// rootlessNightly matches tests that work the same for every user of Podman once its containers run; only make nightly
// runs them as the user too: interpreters, the docs' commands, egress beyond its basics, builds, other machines.
const rootlessNightly = `TestTheDocsCommandsWork|TestBench.*|TestAnAgentWorks.*|TestFreshEvaluations.*|TestRestricted|TestIPython.*|.*Lisp.*|` +
	`TestAThousandFresh.*|TestEvaluationsEnd.*|TestNothingOfAFresh.*|TestAKeptInterpreter.*|TestAnEvaluation.*|TestAReaderWhoStalls.*|TestEvalPrints.*|` +
	`TestACancelledEvaluation.*|TestRepl.*|TestTop.*|TestWhatADigest.*|TestThePicture.*|TestPythonsPackages.*|TestAPreset.*|TestAPrivate.*|TestSSH.*|` +
	`TestEgress(Threats|OfAProgramThatFloods|AndPorts.*|ServesRealTools|ReachesPublicHosts|IsRecorded|Keeps.*|DenialsTeach|VariablesOf.*)|TestInstallPackages.*|` +
	`TestAFar.*|TestAPortOfAFar.*|TestARemote.*|TestKeysOf.*|TestAKeysBounds.*`

// What `make test` runs as the user: that each part of a session works, and that nothing gets out.
const (
	rootlessQuick      = `^(TestTheMainJob|TestProbes|TestThereIsNoNetwork|TestNothingOfTheHosts|TestBothSides|TestProgramsOfOne|TestAKeptSession|TestAContainerThatIs|TestConformance|TestFault_F(09|10|13|14|18|37)|TestDisk|TestEgressOfOne|TestContainersOfEight)`
	rootlessQuickCases = `^(files|shell|process|python|mounts)\.`
)

// TestRootless runs the other tests of this package again as a new user without privileges, with its own home, runtime
// directory and clean environment. It passes the image as an archive.
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
	require.NoError(t, os.CopyFS(filepath.Join(place, "docs"), os.DirFS("../docs")))
	runtimeDir := filepath.Join(place, "run")
	require.NoError(t, os.Mkdir(runtimeDir, 0o700))
	require.NoError(t, os.Chown(runtimeDir, u.uid, u.gid))

	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testBinary, "-test.v=test2json", "-test.timeout=39m")
	skip := "TestRootless"
	if os.Getenv("WISBOX_NIGHTLY") == "" {
		skip += "|" + rootlessNightly
	}
	cmd.Args = append(cmd.Args, "-test.skip=^("+skip+")")
	quick, pattern, chosen := os.Getenv("WISBOX_QUICK") != "", os.Getenv("WISBOX_ROOTLESS_RUN"), rootlessCases
	if quick {
		pattern, chosen = cmp.Or(pattern, rootlessQuick), rootlessQuickCases
	}
	if pattern != "" {
		cmd.Args = append(cmd.Args, "-test.run="+pattern)
	}
	cmd.Dir = tests
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}, Setsid: true}
	cmd.Env = []string{
		"HOME=" + u.home, "USER=" + rootlessUser, "XDG_RUNTIME_DIR=" + runtimeDir, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"LANG=C.UTF-8", "WISBOX_TEST_ARCHIVE=" + archive, "WISBOX_REQUIRE_PODMAN=" + os.Getenv("WISBOX_REQUIRE_PODMAN"),
		"WISBOX_QUICK=" + os.Getenv("WISBOX_QUICK"), "WISBOX_CONFORMANCE=" + casesCopy(t, place), "TMPDIR=" + place,
		"WISBOX_ISOLATION=" + string(env.isolation), "WISBOX_RUNSC=" + runscCopy(t, place),
		"WISBOX_BIN=" + wisbox, "WISBOX_CASES=" + cmp.Or(os.Getenv("WISBOX_CASES"), chosen),
	}
	require.Contains(t, passed(t, cmd), "TestTheMainJob")
	if env.isolation != sandbox.IsolationGVisor && !quick {
		backendSuite(t, cmd, place, archive)
	}
}

// backendSuite also runs the suite of the backends as the user, on our image and on others. as has the user and the
// environment.
func backendSuite(t *testing.T, as *exec.Cmd, place, archive string) {
	t.Helper()
	_, tags, _ := strings.Cut(os.Getenv("GOFLAGS"), "-tags=")
	tags, _, _ = strings.Cut(tags, " ")
	suite := filepath.Join(place, "podman.test")
	out, err := exec.Command("go", "test", "-c", "-tags="+tags+",integration", "-o", suite, "../podman").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Chmod(suite, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, suite, "-test.v=test2json", "-test.timeout=9m",
		"-test.run=^(TestPodmanPassesTheSuite|TestImagesWithoutPythonPassTheSuite|TestAnImageWithoutAShell|TestProgramsHaveTheImagesEnvironment)$")
	cmd.Dir, cmd.SysProcAttr = as.Dir, as.SysProcAttr
	cmd.Env = append(slices.Clip(as.Env), "WISBOX_TEST_IMAGE="+images.Default)
	require.Contains(t, passed(t, cmd), "TestImagesWithoutPythonPassTheSuite")
}

// passed runs a test binary, which has -test.v=test2json, and returns the tests that
// passed. It logs only the output of failed tests.
func passed(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	raw, ran := cmd.CombinedOutput()
	convert := exec.Command("go", "tool", "test2json")
	convert.Stdin = bytes.NewReader(raw)
	events, err := convert.Output()
	require.NoError(t, err)
	said, ended := map[string]string{}, map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(events)); decoder.More(); {
		var event struct{ Action, Test, Output string }
		require.NoError(t, decoder.Decode(&event))
		said[event.Test] += event.Output
		if event.Action == "pass" || event.Action == "skip" || event.Action == "fail" {
			ended[event.Test] = event.Action
		}
	}
	var passed []string
	for _, test := range slices.Sorted(maps.Keys(said)) {
		switch how := cmp.Or(ended[test], "cut"); {
		case how == "pass":
			passed = append(passed, test)
		case how != "skip" && (test != "" || ran != nil):
			t.Logf("as %s: %s: %s\n%s", rootlessUser, how, cmp.Or(test, "the run"), said[test])
		}
	}
	require.NoError(t, ran, "tests fail as a user without rights")
	return passed
}

// runscCopy copies gVisor's runtime to a place that the user can reach; "" if the environment names none.
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

// rootlessPlace returns a directory that another user can reach, unlike a test's temporary directory.
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

// makeUser creates the user with ranges of subordinate IDs. The test's end removes it and its processes.
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

// endProcessesOf ends the test user's remaining processes: Podman's pause process, and the private service, which would
// end by itself after a minute.
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
	}, 30*time.Second, 20*time.Millisecond, "processes of %s are left", rootlessUser)
}

func processDirs() []string {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	return dirs
}

func saveImage(t *testing.T, path string) {
	t.Helper()
	out, err := exec.Command("podman", "save", "--quiet", "--output", path, images.Default).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Chmod(path, 0o644))
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

// casesCopy returns a directory of conformance cases that the user can read; the tests' own one is already readable.
func casesCopy(t *testing.T, place string) string {
	t.Helper()
	if os.Getenv("WISBOX_CONFORMANCE") == "" {
		return ""
	}
	to := filepath.Join(place, "cases")
	require.NoError(t, os.CopyFS(to, os.DirFS(cases)))
	require.NoError(t, exec.Command("chmod", "-R", "a+rX", to).Run())
	return to
}

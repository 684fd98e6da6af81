package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// olderVersion is a version with which every later one must be compatible.
const olderVersion = "a0f7877"

// commands runs a binary of wisbox on a state root.
type commands struct{ bin, cache string }

func (c commands) try(args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(c.bin, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "WISBOX_CACHE="+c.cache), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func (c commands) run(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, err := c.try(args...)
	require.NoError(t, err, "%v: %s%s", args, out, errs)
	return out
}

// TestStateOfOlderVersionsIsOpened opens each fixture in testdata/state, and checks that nothing of an older version is
// lost.
func TestStateOfOlderVersionsIsOpened(t *testing.T) {
	need(t)
	asRootAlone(t)
	fixtures, err := filepath.Glob("testdata/state/*.tar.gz")
	require.NoError(t, err)
	require.NotEmpty(t, fixtures)
	for _, fixture := range fixtures {
		t.Run(strings.TrimSuffix(filepath.Base(fixture), ".tar.gz"), func(t *testing.T) {
			w := commands{binary(t), unpack(t, fixture)}
			t.Cleanup(func() { w.run(t, "session", "rm", "kept", "files") })
			session := filepath.Join(w.cache, "sessions", "kept")
			before := ownerIn(t, session)

			verified := w.run(t, "log", "verify", "kept")
			assert.Contains(t, verified, "the log is intact: no record was changed or removed\n5 records;")
			assert.Contains(t, w.run(t, "session", "list"), "files")

			assert.Contains(t, w.run(t, "call", "files", "read_file", `{"file_path":"a/b.txt"}`), `"content":"b\n"`)
			assert.Contains(t, w.run(t, "call", "kept", "read_file", `{"file_path":"notes.txt"}`), `"content":"second\n"`)
			seen := w.run(t, "exec", "kept", "--", "sh", "-c", `cat src/main.py; readlink link; stat -c '%a %u' src/main.py; cat by*te | wc -c; wc -c </run/secrets/TOKEN`)
			assert.Equal(t, "print(1)\nsrc/main.py\n755 1000\n5\n24\n", seen)
			assert.Contains(t, w.run(t, "call", "kept", "evaluate-lisp", `{"code":"(twice 21)"}`), `"42"`)

			w.run(t, "undo", "kept")
			assert.Contains(t, w.run(t, "call", "kept", "read_file", `{"file_path":"notes.txt"}`), `"content":"first\n"`)
			first := regexp.MustCompile(`[0-9A-Za-z]{26}`).FindString(w.run(t, "log", "kept"))
			w.run(t, "undo", "kept", first)
			assert.NotContains(t, w.run(t, "call", "kept", "ls", "{}"), "notes.txt")
			w.run(t, "call", "kept", "snapshot_restore", `{"snapshot_id":"`+snapshotWith(t, w, "before")+`"}`)
			assert.Contains(t, w.run(t, "call", "kept", "read_file", `{"file_path":"notes.txt"}`), `"content":"first\n"`)

			assert.Equal(t, before, ownerIn(t, session), "whose the session is")
			assert.Contains(t, w.run(t, "log", "verify", "kept"), "the log is intact: no record was changed or removed")
		})
	}
}

// unpack extracts a fixture as a state root, with a file for its secret.
func unpack(t *testing.T, fixture string) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("tar", "--extract", "--sparse", "--file", fixture, "--directory", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("a secret of the fixture\n"), 0o600))
	record := filepath.Join(dir, "state", "sessions", "kept", "session.json")
	raw, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(record, bytes.ReplaceAll(raw, []byte("@SECRET@"), []byte(secret)), 0o600))
	return filepath.Join(dir, "state")
}

// ownerIn returns the owner in a session's record: the user of its programs, and its creation time.
func ownerIn(t *testing.T, session string) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(session, "session.json"))
	require.NoError(t, err)
	var record struct {
		User    map[string]any `json:"user"`
		Created map[string]any `json:"created"`
	}
	require.NoError(t, json.Unmarshal(raw, &record))
	require.NotEmpty(t, record.User)
	return map[string]any{"user": record.User, "created": record.Created}
}

func snapshotWith(t *testing.T, w commands, label string) string {
	t.Helper()
	var list struct {
		Snapshots []struct {
			ID    string `json:"snapshot_id"`
			Label string `json:"label"`
		} `json:"snapshots"`
	}
	require.NoError(t, json.Unmarshal([]byte(w.run(t, "call", "kept", "snapshot_list", "{}")), &list))
	for _, s := range list.Snapshots {
		if s.Label == label {
			return s.ID
		}
	}
	require.Fail(t, "no snapshot "+label)
	return ""
}

// TestAHolderOfAnOlderVersionIsNoObstacle runs an older version's holder and container: the holder answers, or explains
// why it can't. Without it, the session has its files, in the old container or a new one.
func TestAHolderOfAnOlderVersionIsNoObstacle(t *testing.T) {
	need(t)
	asRootAlone(t)
	cache := t.TempDir()
	older, today := commands{buildOlder(t), cache}, commands{binary(t), cache}
	older.run(t, "image", "build")
	older.run(t, "session", "create", "live", "--disk", "4m")
	t.Cleanup(func() { today.run(t, "session", "rm", "live") })
	older.run(t, "exec", "live", "--", "sh", "-c", "echo old >f")

	out, errs, err := today.try("exec", "live", "--", "cat", "f")
	if err == nil {
		assert.Equal(t, "old\n", out)
	} else {
		assert.Regexp(t, `^wisbox: \w+: .{20,}`, errs)
	}
	assert.Len(t, holders(t, "live", &home{t: t, cache: cache}), 1, "the older one, which listens elsewhere, has ended")
	endHolder(t, cache, "live")
	assert.Equal(t, "old\n", today.run(t, "exec", "live", "--", "cat", "f"))
	endHolder(t, cache, "live")
	removeContainersOf(t, cache)
	assert.Equal(t, "old\nnew\n", today.run(t, "exec", "live", "--", "sh", "-c", "echo new >>f; cat f"))
	assert.Contains(t, today.run(t, "log", "verify", "live"), "the log is intact: no record was changed or removed")
}

// buildOlder builds the older version from the repository's history.
func buildOlder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	archive := exec.Command("sh", "-c", "git -C .. archive "+olderVersion+" | tar -x -C "+dir)
	if exec.Command("git", "-C", "..", "cat-file", "-e", olderVersion+"^{commit}").Run() != nil {
		hosttest.Lacks(t, "the commit %s is not in this clone's history: git fetch --unshallow", olderVersion)
	}
	out, err := archive.CombinedOutput()
	require.NoError(t, err, "%s", out)
	bin := filepath.Join(dir, "bin", "wisbox")
	out, err = exec.Command("make", "-C", dir, "build").CombinedOutput() // its Makefile has the build tags
	require.NoError(t, err, "%s", out)
	return bin
}

// endHolder kills the process that holds a session, and waits for its end.
func endHolder(t *testing.T, cache, session string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(cache, "sessions", session, "held"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return isZombie(filepath.Join("/proc", strconv.Itoa(pid))) }, 30*time.Second, 10*time.Millisecond)
}

func removeContainersOf(t *testing.T, cache string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(cache, "root.json"))
	require.NoError(t, err)
	var root struct{ ID string }
	require.NoError(t, json.Unmarshal(raw, &root))
	out, err := exec.Command("podman", "ps", "-aq", "--filter", "label=wisbox.root="+root.ID).Output()
	require.NoError(t, err)
	ids := strings.Fields(string(out))
	require.Len(t, ids, 1)
	out, err = exec.Command("podman", "rm", "--force", "--time", "0", ids[0]).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// asRootAlone skips a test unless root runs it: only root's sessions have disk images.
func asRootAlone(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root mounts a session's image; root's run of this test does")
	}
}

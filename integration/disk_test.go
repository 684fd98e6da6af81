package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const diskLimit = 64 << 20

// flood is four programs that write as fast as they can, whatever the errors.
const flood = `for i in 1 2 3 4; do (for j in 1 2 3 4 5 6 7 8; do head -c 100000000 /dev/zero > flood$i.$j; done) & done; wait; ls | wc -l`

func bounded(t *testing.T, limits sandbox.Limits) *wisbox.Session {
	t.Helper()
	limits.Disk = diskLimit
	return open(t, &wisbox.SessionOptions{Limits: limits})
}

// limitsOf returns the limits of a session, by inspect.
func limitsOf(t *testing.T, s *wisbox.Session) map[string]sandbox.LimitState {
	t.Helper()
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	out := map[string]sandbox.LimitState{}
	for _, l := range in.Limits {
		out[l.Name] = l
	}
	return out
}

// watched reports whether ending programs enforces the limit, rather than the kernel.
func watched(t *testing.T, s *wisbox.Session) bool {
	t.Helper()
	return strings.Contains(limitsOf(t, s)["disk"].By, "watcher")
}

func TestDiskLimitsAreSaidByInspect(t *testing.T) {
	s := bounded(t, sandbox.Limits{Inodes: 5000})
	for _, when := range []string{"before", "after"} {
		l := limitsOf(t, s)
		assert.Equal(t, "64MiB", l["disk"].Asked, when)
		assert.Equal(t, "5000", l["inodes"].Asked, when)
		assert.True(t, l["disk"].Enforced && l["inodes"].Enforced, when)
		output(t, s, "true")
	}
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	for _, l := range in.Sandbox.Limits {
		assert.True(t, l.Enforced || l.Name != "disk" && l.Name != "inodes", "%v", l)
	}
}

func TestDiskFloodEndsAtTheLimitAndTheOtherSessionGoesOn(t *testing.T) {
	s, other := bounded(t, sandbox.Limits{}), bounded(t, sandbox.Limits{})
	output(t, other, "echo mine > mine")
	sleeper := make(chan answer, 1)
	go func() {
		b, err := try(t, other, "shell_execute", args{"script": "sleep 5; cat mine", "timeout": 60})
		assert.NoError(t, err)
		sleeper <- b
	}()
	a := script(t, s, flood)
	if watched(t, s) {
		assert.Equal(t, "disk_limit", a.str("status"), "%v", a) // the amount depends on the machine's speed
	} else {
		assert.Contains(t, a.str("stderr")+a.str("stdout"), "No space left", "%v", a)
		assert.LessOrEqual(t, taken(t, s.WorkspacePath()), int64(diskLimit))
	}
	b := <-sleeper
	assert.Equal(t, "exited", b.str("status"), "%v", b)
	assert.Equal(t, "mine\n", b.str("stdout"))
}

func TestDiskThatIsFullTakesNoMoreUntilFilesAreDeleted(t *testing.T) {
	s := bounded(t, sandbox.Limits{})
	script(t, s, "head -c 60000000 /dev/zero > a; head -c 60000000 /dev/zero > b; head -c 60000000 /dev/zero > c; true")
	if watched(t, s) {
		require.Eventually(t, func() bool {
			_, err := try(t, s, "shell_execute", args{"script": "true"})
			return kind(err) == tool.NoSpace
		}, 30*time.Second, 20*time.Millisecond)
	}
	_, err := try(t, s, "write_file", args{"file_path": "more", "content": strings.Repeat("x", 40_000)})
	assert.Equal(t, tool.NoSpace, kind(err), "%v", err)
	call(t, s, "rm", args{"path": "a"})
	call(t, s, "write_file", args{"file_path": "more", "content": "x"})
	assert.Equal(t, "x", output(t, s, "cat more; rm -f b c"))
}

func TestDiskOfManyFilesEndsAtTheLimitOfInodes(t *testing.T) {
	s := bounded(t, sandbox.Limits{Inodes: 2000})
	a := call(t, s, "shell_execute", args{"commands": []string{"python3", "-c", `
import sys, time
try:
    for i in range(20000):
        open(str(i), "w").close()
except OSError as e:
    print(e); sys.exit(3)
time.sleep(30)`}, "timeout": 60})
	if watched(t, s) {
		assert.Equal(t, "disk_limit", a.str("status"), "%v", a)
	} else {
		assert.Contains(t, a.str("stdout"), "No space left", "%v", a)
		entries, err := os.ReadDir(s.WorkspacePath())
		require.NoError(t, err)
		assert.Less(t, len(entries), 2100)
	}
}

func TestDiskFilesWithoutANameCountToo(t *testing.T) {
	s := bounded(t, sandbox.Limits{})
	a := call(t, s, "shell_execute", args{"commands": []string{"python3", "-c", `
import os, sys, time
keep, block = [], bytes(1 << 20)
try:
    for i in range(500):
        f = open("x", "wb", buffering=0); os.unlink("x"); keep.append(f)
        f.write(block); time.sleep(0.005)
except OSError as e:
    print(e); sys.exit(3)
time.sleep(30)`}, "timeout": 60})
	if watched(t, s) {
		assert.Equal(t, "disk_limit", a.str("status"), "%v", a)
	} else {
		assert.Contains(t, a.str("stdout"), "No space left", "%v", a)
	}
}

func TestDiskIsGoneWithTheSession(t *testing.T) {
	need(t)
	s, err := env.manager.Open(t.Context(), &wisbox.SessionOptions{Limits: sandbox.Limits{Disk: diskLimit}})
	require.NoError(t, err)
	output(t, s, "echo x > x")
	mounted := func() bool {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		require.NoError(t, err)
		return strings.Contains(string(mounts), s.ID())
	}
	if !watched(t, s) {
		assert.True(t, mounted(), "what holds the disk limit is seen here")
		assert.True(t, hosttest.HasLoop(s.ID()), "what holds the disk limit is seen here")
	}
	require.NoError(t, s.Close(t.Context()))
	assert.False(t, mounted(), "a mount is left")
	hosttest.AwaitNoLoop(t, s.ID())
}

func taken(t *testing.T, dir string) (sum int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) == nil {
			sum += st.Blocks * 512
		}
		return nil
	}))
	return sum
}

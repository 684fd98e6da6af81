package integration

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
)

// TestSnapshotsAndClonesOfARunningSession shares one session, because each container takes almost a second.
func TestSnapshotsAndClonesOfARunningSession(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{AutoSnapshot: true})
	output(t, s, "echo 1 >f")
	output(t, s, "echo 2 >f; mkdir d")
	_, err := s.Undo(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, "1\n", output(t, s, "cat f; ls -d d 2>/dev/null || :"))

	// A program that writes all the time is paused for a snapshot, and continues after it.
	call(t, s, "process_start", args{"commands": []string{"python3", "-c", `
f = open("busy", "r+b" if __import__("os").path.exists("busy") else "w+b", 0)
n = 0
while True:
    n += 1
    f.seek(0); f.write(b"%d\n" % n * 60000)
`}})
	output(t, s, "until test -s busy; do sleep 0.01; done")
	paused := call(t, s, "snapshot_create", args{"quiesce": true})
	if os.Getuid() == 0 { // a rootless service on cgroup v1 can't pause
		assert.Empty(t, paused["unstable"], "no file changed while it was read")
	}
	output(t, s, "a=$(head -c 20 busy); until test \"$(head -c 20 busy)\" != \"$a\"; do sleep 0.01; done")

	call(t, s, "evaluate-lisp", args{"code": "(defun twice (x) (* 2 x))"})
	c, err := s.Clone(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	assert.NotEqual(t, container(t, s), container(t, c), "it has its own container")
	assert.Contains(t, call(t, c, "evaluate-lisp", args{"code": "(twice 21)"})["values"], "42")
	output(t, c, "echo clone >f")
	assert.Equal(t, "1\n", output(t, s, "cat f"))

	require.NoError(t, s.Reset(t.Context()))
	assert.Equal(t, "", output(t, s, "ls -A"))
	assert.Equal(t, "clone\n", output(t, c, "cat f"))
}

// TestARestoreOfALargeTreeFindsWhatAProgramWrites: for a large tree, wisbox asks the kernel whether a program ran
// before it scans again.
func TestARestoreOfALargeTreeFindsWhatAProgramWrites(t *testing.T) {
	s := open(t, nil)
	output(t, s, "for d in $(seq 50); do mkdir $d; (cd $d; seq 100 | xargs touch); done; echo old >f")
	id := call(t, s, "snapshot_create", nil).str("snapshot_id")

	output(t, s, "echo new >f")
	r := call(t, s, "snapshot_restore", args{"snapshot_id": id})
	assert.Empty(t, r["conflicts"], "nothing runs")
	assert.Equal(t, "old\n", output(t, s, "cat f"))

	call(t, s, "process_start", args{"commands": []string{"sh", "-c", "while :; do date +%N >7/busy; done"}})
	output(t, s, "until test -s 7/busy; do sleep 0.01; done; echo new >f")
	for range 50 { // it may get no processor between the restore's change and the second scan
		r = call(t, s, "snapshot_restore", args{"snapshot_id": id})
		if r["conflicts"] != nil {
			break
		}
	}
	assert.Equal(t, []any{"7/busy"}, r["conflicts"])
	assert.Equal(t, "old\n", output(t, s, "cat f"))
}

// TestForksOfAHeldSession: each fork has its own holder.
func TestForksOfAHeldSession(t *testing.T) {
	need(t)
	host := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(host, "given"), []byte("host\n"), 0o644))
	cache := filepath.Join(t.TempDir(), "c")
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: cache, Holder: []string{binary(t), "__hold", "--cache", cache}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	s, err := m.Open(t.Context(), isolated(&wisbox.SessionOptions{
		Name: "source", Kept: true, Mounts: []hostmount.Mount{{HostPath: host, MountPath: "in"}}, AllowedRoots: []string{host},
	}))
	require.NoError(t, err)
	end := func(s *wisbox.Session) {
		t.Cleanup(func() {
			assert.NoError(t, s.Close(context.Background()))
			assert.NoError(t, m.Remove(context.Background(), s.ID()))
		})
	}
	end(s)
	output(t, s, "echo changed >in/given; echo mine >own; mkfifo pipe; ln -s own link")

	forks, err := s.Fork(t.Context(), 2, &wisbox.CloneOptions{Name: "fork", Kept: true, Remount: true})
	require.NoError(t, err)
	const seen = "cat in/given own; readlink link"
	for _, f := range forks {
		end(f)
		assert.Equal(t, "host\nmine\nown\n", output(t, f, seen), "the mounts are copied again, the rest is the source's")
		output(t, f, "echo "+f.ID()+" >own")
	}
	assert.Equal(t, []string{"fork-1", "fork-2"}, []string{forks[0].ID(), forks[1].ID()})
	assert.Equal(t, "fork-1\n", output(t, forks[0], "cat own"))
	assert.Equal(t, "changed\nmine\nown\n", output(t, s, seen))

	require.NoError(t, forks[1].Reset(t.Context()))
	assert.Equal(t, "in\n", output(t, forks[1], "ls -A"), "a reset copies the mounts again")
	assert.Equal(t, "fork-1\n", output(t, forks[0], "cat own"))
}

// container returns the container of a session's programs.
func container(t *testing.T, s *wisbox.Session) string {
	t.Helper()
	output(t, s, "true")
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	return in.Sandbox.Object
}

// TestAHolderStaysSmall: a program fills the workspace up to its maximum with names, which take no disk space.
func TestAHolderStaysSmall(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "python3", "-c", `
import os
os.mkdir("many")
for first in "ab":
    open(first, "w").close()
    for i in range(50_000):
        os.link(first, "many/" + "n" * 200 + first + str(i))
`)
	require.Contains(t, h.fail("snapshot", "create", "box"), "held in memory")
	h.do("undo", "box")
	assert.Empty(t, h.do("exec", "box", "--", "ls"))
	pids := holders(t, "box", h)
	require.Len(t, pids, 1)
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pids[0]), "status"))
	require.NoError(t, err)
	most := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, most)
	kib, err := strconv.Atoi(string(most[1]))
	require.NoError(t, err)
	t.Logf("%d KiB at most", kib)
	assert.LessOrEqual(t, kib, 128<<10, "KiB")
}

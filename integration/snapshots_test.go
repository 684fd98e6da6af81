package integration

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
)

// TestSnapshotsAndClonesOfARunningSession shares one session, because each
// container costs most of a second.
func TestSnapshotsAndClonesOfARunningSession(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{AutoSnapshot: true})
	output(t, s, "echo 1 >f")
	output(t, s, "echo 2 >f; mkdir d")
	_, err := s.Undo(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, "1\n", output(t, s, "cat f; ls -d d 2>/dev/null || :"))

	// A program that writes without a pause stands still for a snapshot, and goes
	// on after it.
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
	const processes = "readlink /proc/self/ns/pid"
	assert.NotEqual(t, output(t, s, processes), output(t, c, processes), "it has its own container")
	assert.Contains(t, call(t, c, "evaluate-lisp", args{"code": "(twice 21)"})["values"], "42")
	output(t, c, "echo clone >f")
	assert.Equal(t, "1\n", output(t, s, "cat f"))

	require.NoError(t, s.Reset(t.Context()))
	assert.Equal(t, "", output(t, s, "ls -A"))
	assert.Equal(t, "clone\n", output(t, c, "cat f"))
}

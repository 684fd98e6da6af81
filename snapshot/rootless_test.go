package snapshot

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const nobody = 65534

// Rights of root hide what a mode forbids: this goes through the same as a user
// without any.
func TestAUserWithoutRightsKeepsAndRestoresForbiddenModes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root; TestForbiddenModesAreNoObstacle does the same as this one")
	}
	dir, err := os.MkdirTemp("/dev/shm", "wisbox-rootless-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "test"), program, 0o755))
	require.NoError(t, os.Chown(dir, nobody, nobody))
	cmd := exec.Command(filepath.Join(dir, "test"), "-test.run", "^(TestForbiddenModes|TestARestore|TestAnySnapshot|TestWhatIsWritten)")
	cmd.Env, cmd.Dir = []string{"TMPDIR=" + dir}, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, string(out))
}

func TestAClosedStoreSaysSo(t *testing.T) {
	b := newBench(t)
	s, err := New(options(t, b.dir))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = s.Create(context.Background(), nil)
	assert.ErrorContains(t, err, "closed")
	_, err = s.List(context.Background())
	assert.ErrorContains(t, err, "closed")
}

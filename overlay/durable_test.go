package overlay

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/syscalltest"
)

const durableEnv = "WISBOX_TEST_DURABLE"

func init() {
	if root := os.Getenv(durableEnv); root != "" {
		if err := changeState(root); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
}

func changeState(root string) error {
	s, err := OpenStore(root)
	if err != nil {
		return err
	}
	d, err := s.Open(context.Background(), "box")
	if err != nil {
		return err
	}
	return errors.Join(d.SetState(StateReady), os.Chdir("/"))
}

// TestFault_F35_ARecordReachesTheDiskBeforeItsName: the same order as for files.
func TestFault_F35_ARecordReachesTheDiskBeforeItsName(t *testing.T) {
	s := newStore(t)
	require.NoError(t, create(t, s, &CreateOptions{ID: "box", Kept: true}).Close())
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), durableEnv+"="+s.path)
	cmd.Stderr = os.Stderr
	calls := syscalltest.Below(s.path, syscalltest.Order(t, cmd))
	assert.Equal(t, []string{"fsync sessions/box/session.json.new", "rename", "fsync sessions/box"}, calls)
}

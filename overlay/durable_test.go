package overlay

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/syscalltest"
)

func init() { syscalltest.Child(changeState) }

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

// TestFault_F35_ARecordReachesTheDiskBeforeItsName, in the same order as for files.
func TestFault_F35_ARecordReachesTheDiskBeforeItsName(t *testing.T) {
	s := newStore(t)
	require.NoError(t, create(t, s, &CreateOptions{ID: "box", Kept: true}).Close())
	assert.Equal(t, []string{"fsync sessions/box/session.json.new", "rename", "fsync sessions/box"}, syscalltest.Order(t, s.path))
}

// TestTheRecordOfAnEphemeralSessionIsWholeAfterACrash: its content is on disk before its name, but nobody waits for the
// name.
func TestTheRecordOfAnEphemeralSessionIsWholeAfterACrash(t *testing.T) {
	s := newStore(t)
	require.NoError(t, create(t, s, &CreateOptions{ID: "box"}).Close())
	assert.Equal(t, []string{"fsync sessions/box/session.json.new", "rename"}, syscalltest.Order(t, s.path))
}

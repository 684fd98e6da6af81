package hosttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAContextEndsOnceAFileIsThere(t *testing.T) {
	begun := filepath.Join(t.TempDir(), "begun")
	ctx := OnceThere(t, begun)
	assert.NoError(t, ctx.Err())
	require.NoError(t, os.WriteFile(begun, nil, 0o600))
	<-ctx.Done()
}

func TestAContextOfAFileThatNeverComesLeavesNothing(t *testing.T) {
	assert.NoError(t, OnceThere(t, filepath.Join(t.TempDir(), "never")).Err())
}

func TestThereIsNoLoopOfAFileThatIsNone(t *testing.T) {
	part := filepath.Join(t.TempDir(), "image")
	assert.False(t, HasLoop(part))
	AwaitNoLoop(t, part)
}

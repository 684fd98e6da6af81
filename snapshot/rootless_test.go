package snapshot

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// Root ignores permissions: this test does the same as a user without rights.
func TestAUserWithoutRightsKeepsAndRestoresForbiddenModes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root; TestForbiddenModesAreNoObstacle does the same as this one")
	}
	cmd := hosttest.CommandOfNobody(t, "-test.v", "-test.run", "^(TestForbiddenModes|TestARestore|TestALargeMissing|TestAnySnapshot|TestWhatIsWritten)")
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, string(out))
	assert.Contains(t, string(out), "--- PASS: TestForbiddenModesAreNoObstacle")
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

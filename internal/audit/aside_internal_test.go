package audit

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAFileThatAnotherWriterTookIsNotUsed: a writer that is opened between the creation of such a
// file and its lock takes the file for that of a dead writer. Records that went into it were lost.
func TestAFileThatAnotherWriterTookIsNotUsed(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	l, err := Open(root, "log", nil)
	require.NoError(t, err)
	defer l.Close()
	const aside = "log" + asideSuffix + "X"
	f, err := root.Create(aside)
	require.NoError(t, err)
	defer f.Close()

	taking, err := root.Open(aside)
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(taking.Fd()), unix.LOCK_EX))
	assert.ErrorIs(t, l.claim(f), errTaken, "the other one has its lock")
	require.NoError(t, taking.Close())

	other, err := Open(root, "log", nil)
	require.NoError(t, err)
	require.NoError(t, other.Append("x"))
	require.NoError(t, other.Close())
	assert.NoFileExists(t, root.Name()+"/"+aside)
	assert.ErrorIs(t, l.claim(f), errTaken, "the other one has removed it")

	again, err := root.Create(aside)
	require.NoError(t, err)
	defer again.Close()
	assert.ErrorIs(t, l.claim(f), errTaken, "another file has its name")
	assert.NoError(t, l.claim(again))
}

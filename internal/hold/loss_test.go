package hold

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// heldBy makes a session's directory that this process has open, with the mark of a holder.
func heldBy(t *testing.T, holder int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	life, err := os.Create(filepath.Join(dir, lifeName))
	require.NoError(t, err)
	t.Cleanup(func() { _ = life.Close() })
	require.NoError(t, syscall.Flock(int(life.Fd()), syscall.LOCK_SH))
	require.NoError(t, os.WriteFile(filepath.Join(dir, MarkName), []byte(strconv.Itoa(holder)), 0o600))
	return dir
}

func TestAHolderIsAloneWithoutClients(t *testing.T) {
	var l Locks
	alone, others := heldBy(t, os.Getpid()), heldBy(t, os.Getpid()+1)
	assert.True(t, l.Alone(alone))
	assert.False(t, l.Alone(others), "another process has it open")
	assert.False(t, l.Alone(t.TempDir()))
}

// TestAListOfSessionsReadsFewLocks however many the programs of sessions have.
func TestAListOfSessionsReadsFewLocks(t *testing.T) {
	dir := heldBy(t, os.Getpid())
	for i := range 20 {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		require.NoError(t, err)
		defer f.Close()
		for k := range 2000 {
			require.NoError(t, syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: int64(2 * k), Len: 1}))
		}
	}
	bytes := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := bytes()
	var l Locks
	for range 20 {
		l.Alone(dir)
	}
	assert.Less(t, bytes()-before, uint64(16<<20))
}

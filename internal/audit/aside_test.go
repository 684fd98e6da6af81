package audit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/audit"
)

// hold holds the log like a writer that was stopped during its write.
func (b bench) hold() (release func()) {
	b.t.Helper()
	f, err := os.OpenFile(b.path+".head", os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(b.t, err)
	require.NoError(b.t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return func() { _ = f.Close() }
}

func (b bench) open(opts *audit.Options) *audit.Log {
	b.t.Helper()
	l, err := audit.Open(b.root, name, opts)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = l.Close() })
	return l
}

// numbers returns the numbers of all records, in the order of Records.
func (b bench) numbers() (all []int) {
	b.t.Helper()
	require.NoError(b.t, audit.Records(b.root, name, func(line []byte) error {
		var record struct{ N int }
		require.NoError(b.t, json.Unmarshal(line, &record))
		all = append(all, record.N)
		return nil
	}))
	return all
}

func (b bench) asides() int {
	b.t.Helper()
	found, err := filepath.Glob(b.path + ".aside-*")
	require.NoError(b.t, err)
	return len(found)
}

// TestAStoppedWriterHoldsNoRecord measures only waits.
func TestAStoppedWriterHoldsNoRecord(t *testing.T) {
	synctest.Test(t, testAStoppedWriterHoldsNoRecord)
}

func testAStoppedWriterHoldsNoRecord(t *testing.T) {
	b := newBench(t)
	l := b.open(nil)
	require.NoError(t, l.Append(map[string]int{"n": 1}))
	release := b.hold()
	began := time.Now()
	for n := 2; n <= 100; n++ {
		require.NoError(t, l.Append(map[string]int{"n": n}))
	}
	assert.Equal(t, 20*time.Millisecond, time.Since(began), "one wait, not one a record")
	report, err := audit.Verify(b.root, name)
	require.NoError(t, err, "a reader doesn't need the log to be free")
	assert.Empty(t, report.Problems)
	assert.Equal(t, 1, report.Records)
	assert.Equal(t, 99, report.Waiting)
	assert.Len(t, b.numbers(), 100, "they are shown")

	release()
	require.NoError(t, l.Append(map[string]int{"n": 101}))
	report, err = audit.Verify(b.root, name)
	require.NoError(t, err)
	assert.Empty(t, report.Problems)
	assert.Equal(t, 101, report.Records)
	assert.Zero(t, report.Waiting)
	assert.Zero(t, b.asides())
	all := b.numbers()
	for i, n := range all {
		assert.Equal(t, i+1, n, "in the order of their calls")
	}
}

func TestWhatWaitsForTheLogIsTakenByTheNextWriter(t *testing.T) {
	b := newBench(t)
	release := b.hold()
	dead, live := b.open(nil), b.open(nil)
	require.NoError(t, dead.Append(map[string]int{"n": 1}))
	require.NoError(t, dead.Append(map[string]int{"n": 2}))
	require.NoError(t, dead.Close())
	require.NoError(t, live.Append(map[string]int{"n": 3}))
	assert.Equal(t, 2, b.asides())
	found, err := filepath.Glob(b.path + ".aside-*")
	require.NoError(t, err)
	f, err := os.OpenFile(found[0], os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"n":4`) // its writer was killed in that one
	require.NoError(t, err)
	require.NoError(t, f.Close())
	release()

	b.write(5, 5)
	assert.Empty(t, b.problems())
	assert.ElementsMatch(t, []int{1, 2, 3, 5}, b.numbers())
	assert.Equal(t, 1, b.asides(), "a live writer keeps its own")
	require.NoError(t, live.Close())
	assert.Zero(t, b.asides(), "until it ends")
	assert.Empty(t, b.problems())
	assert.Equal(t, []int{1, 2, 5, 3}, b.numbers())
}

func TestWhatWaitsForTheLogIsBoundedAndFillsFilesAsEver(t *testing.T) {
	b := newBench(t)
	release := b.hold()
	l := b.open(small)
	var err error
	n := 0
	for ; err == nil; n++ {
		err = l.Append(map[string]string{"text": strings.Repeat("x", 100)})
	}
	assert.ErrorContains(t, err, "another process holds the log")
	assert.Less(t, n, 20)
	release()
	require.NoError(t, l.Append(map[string]int{"n": 1}))
	assert.Empty(t, b.problems())
	assert.Contains(t, b.files(), name+".1")
}

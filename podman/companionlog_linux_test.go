package podman

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

const stamp = "2026-11-27T19:31:51.313400234+00:00 "

// conmon writes a log as conmon does: it replaces the file when it is full.
type conmon struct {
	t    *testing.T
	path string
	max  int
	f    *os.File
	size int
}

func newConmon(t *testing.T, max int) *conmon {
	t.Helper()
	c := &conmon{t: t, path: filepath.Join(t.TempDir(), "ctr.log"), max: max}
	return c
}

func (c *conmon) write(entry string) {
	c.t.Helper()
	line := stamp + entry + "\n"
	var err error
	switch {
	case c.f == nil:
		c.f, err = os.Create(c.path)
	case c.size+len(line) > c.max:
		require.NoError(c.t, c.f.Close())
		c.f, err = os.Create(c.path + ".tmp")
		require.NoError(c.t, os.Rename(c.path+".tmp", c.path))
		c.size = 0
	}
	require.NoError(c.t, err)
	n, err := c.f.WriteString(line)
	require.NoError(c.t, err)
	c.size += n
}

func textOf(lines []logLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.Write(l.text)
		if l.whole {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestTheEndOfALogIsCutAtItsLines(t *testing.T) {
	c := newConmon(t, 1<<20)
	for _, entry := range []string{"stdout F one", "stderr F two", "stdout P thr", "stderr P fo", "stdout F ee", "stderr F ur", "stdout F ", "stdout F a b  c", "stdout P end"} {
		c.write(entry)
	}
	_, err := c.f.WriteString(stamp + "stdout F not yet whol") // conmon is writing
	require.NoError(t, err)
	all, err := readLog(c.path)
	require.NoError(t, err)
	require.Len(t, all, 9)
	for lines, want := range map[int]string{
		1: "end", 2: "a b  c\nend", 3: "\na b  c\nend", 4: "ur\n\na b  c\nend", 5: "thrfoee\nur\n\na b  c\nend", 6: "two\nthrfoee\nur\n\na b  c\nend", 100: "one\ntwo\nthrfoee\nur\n\na b  c\nend",
	} {
		assert.Equal(t, want, textOf(newest(all, lines)), lines)
	}
}

// TestTheNewestOutputIsKept, although conmon begins its file again: with a line more than fits, it has that line.
func TestTheNewestOutputIsKept(t *testing.T) {
	c := newConmon(t, 200<<10)
	first, err := newLogKeeper(c.path)
	require.NoError(t, err)
	second, err := newLogKeeper(c.path) // of another process
	require.NoError(t, err)
	end := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { first.run(end) })
	all.Go(func() { second.run(end) })
	defer all.Wait()
	defer close(end)
	for i := range 19_000 {
		c.write(fmt.Sprintf("stdout F line %d", i))
		if c.size < 100 { // wait for the keepers, as a service that prints less in a second than conmon can write
			require.Eventually(t, func() bool {
				held, err := os.Lstat(c.path + heldLog)
				now, _ := os.Lstat(c.path)
				return err == nil && os.SameFile(held, now)
			}, 30*time.Second, time.Millisecond)
		}
		if i%1000 == 999 {
			got, err := readLog(c.path)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, len(got), min(i+1, (200<<10)/70), "at least a whole file")
			assert.Equal(t, fmt.Sprintf("line %d", i), string(got[len(got)-1].text))
			for j, l := range got {
				require.Equal(t, fmt.Sprintf("line %d", i+1-len(got)+j), string(l.text), "without a gap")
			}
		}
	}
}

// TestAGapIsNotHidden: where conmon was faster, what is left is the newest without a hole in it.
func TestAGapIsNotHidden(t *testing.T) {
	c := newConmon(t, 10_000)
	k, err := newLogKeeper(c.path)
	require.NoError(t, err)
	defer k.events.Close()
	catchUp := func() {
		buf := make([]byte, 64<<10)
		n, err := k.events.Read(buf)
		require.NoError(t, err)
		require.True(t, k.count(buf[:n]))
		require.NoError(t, k.look())
	}
	write := func(n int) {
		for range n {
			c.write("stdout F x")
		}
	}
	write(1)
	catchUp()
	write(250) // one replacement
	catchUp()
	_, err = os.Stat(c.path + formerLog)
	require.NoError(t, err)
	write(700) // several
	catchUp()
	_, err = os.Stat(c.path + formerLog)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.RemoveAll(filepath.Dir(c.path)))
	done := make(chan struct{})
	go func() { k.run(make(chan struct{})); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a keeper stays after its directory is gone")
	}
}

func TestWhatIsKeptOfALogIsBounded(t *testing.T) {
	var all []logLine
	for range sandbox.CompanionLines + 10 {
		all = append(all, logLine{text: nil, whole: true})
	}
	assert.Len(t, newest(all, sandbox.CompanionLines), sandbox.CompanionLines)
	all = nil
	for range 200 {
		all = append(all, logLine{text: make([]byte, 8191)})
	}
	assert.Len(t, newest(all, 1), sandbox.CompanionOutput/8192)
	assert.Less(t, sandbox.CompanionOutput+sandbox.CompanionLines*64, logFileSize/2, "a file has it, with what conmon adds")
}

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// TestProcessesOutliveAKilledHolder: the next holder has them under their IDs with their output meanwhile, and can
// write to them, signal and end them.
func TestProcessesOutliveAKilledHolder(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	reader := h.detached("-i", "box", "--", "sh", "-c", "echo two >&2; echo one; while read x; do echo got $x; done; exit 7")
	sleeper := h.detached("box", "--", "sh", "-c", "trap 'echo bye; exit 4' USR1; echo up; while :; do sleep 0.01; done")
	ends := h.detached("box", "--", "sh", "-c", "while [ ! -e end ]; do sleep 0.01; done; echo last words; exit 5")
	h.awaitLog(sleeper, "up")
	h.awaitLog(reader, "one")
	first := h.process(sleeper).PID
	killHolder(t, "box", h)
	require.NoError(t, os.WriteFile(filepath.Join(h.cache, "sessions/box/workspace/end"), nil, 0o644))

	list := h.do("ps", "box")
	for _, id := range []string{reader, sleeper, ends} {
		assert.Contains(t, list, id)
	}
	assert.Equal(t, first, h.process(sleeper).PID, "it is the same program")
	assert.Equal(t, 5, h.awaitExit(ends))
	if words := h.do("logs", "box", ends); env.isolation == sandbox.IsolationGVisor && !strings.Contains(words, "last words\n") {
		// The relay of the killed holder ends after it, and may have read the bytes.
		assert.EqualValues(t, len("last words\n"), h.process(ends).DroppedBytes, words)
	} else {
		h.awaitLog(ends, "last words\n") // the next holder may still read it
	}

	assert.EqualValues(t, len("one\ntwo\n"), h.process(reader).DroppedBytes, "offsets go on")
	h.do("call", "box", "process_write", fmt.Sprintf(`{"process_id":%q,"data":"input\n","eof":true}`, reader))
	assert.Equal(t, 7, h.awaitExit(reader))
	assert.Equal(t, "got input\n", h.do("logs", "box", reader))

	killHolder(t, "box", h) // and once more
	h.do("kill", "-s", "USR1", "box", sleeper)
	assert.Equal(t, 4, h.awaitExit(sleeper))
	assert.Contains(t, h.do("logs", "box", sleeper), "bye\n")
	for _, id := range []string{reader, sleeper, ends} { // it is listed as ended first
		require.Eventually(t, func() bool { return ended(h.do("log", "box", "--json"), id) > 0 }, time.Minute, 20*time.Millisecond)
	}
	record := h.do("log", "box", "--json")
	for _, id := range []string{reader, sleeper, ends} {
		assert.Equal(t, 1, ended(record, id), "the end of %s is reported once", id)
	}
	h.do("session", "rm", "box")
	h.requireNothing()
}

// TestManyWhoComeAfterAKilledHolderFindOne new holder, which took over all processes once.
func TestManyWhoComeAfterAKilledHolderFindOne(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	id := h.detached("box", "--", "sh", "-c", "while :; do echo x; sleep 0.01; done")
	for range 3 {
		killHolder(t, "box", h)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				out, err := h.command("ps", "box").Output()
				assert.NoError(t, err)
				assert.Equal(t, 1, strings.Count(string(out), id), string(out))
			})
		}
		all.Wait()
		holderOf(t, "box", h)
	}
	assert.Contains(t, h.do("exec", "box", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'do echo [x]'"), "1\n")
	h.do("kill", "box", id)
	assert.Equal(t, 1, ended(h.do("log", "box", "--json"), id))
	h.do("session", "rm", "box")
	h.requireNothing()
}

// TestWhatACallRanEndsWithAKilledHolder, while processes continue.
func TestWhatACallRanEndsWithAKilledHolder(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	id := h.detached("box", "--", "sh", "-c", "echo up; exec sleep 4721")
	h.awaitLog(id, "up")
	call := h.start("exec", "box", "--", "sh", "-c", "echo > began; exec sleep 4722")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(h.cache, "sessions/box/workspace/began"))
		return err == nil
	}, time.Minute, time.Millisecond)
	follows := h.command("attach", "--no-stdin", "-n", "1", "box", id)
	said, err := follows.StdoutPipe()
	require.NoError(t, err)
	h.begin(follows)
	_, err = io.ReadFull(said, make([]byte, 3)) // it is there
	require.NoError(t, err)
	killHolder(t, "box", h)
	_ = call.Wait()
	assert.NotZero(t, call.ProcessState.ExitCode())
	_ = follows.Wait()
	assert.NotZero(t, follows.ProcessState.ExitCode(), "who is attached hears of it")
	left := h.do("exec", "box", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
	assert.Contains(t, left, "sleep 4721")
	assert.NotContains(t, left, "sleep 4722")
	h.do("session", "rm", "box")
	h.requireNothing()
}

// process returns a process of the session box from ps.
func (h *home) process(id string) wisbox.ProcessInfo {
	h.t.Helper()
	var list struct{ Processes []wisbox.ProcessInfo }
	require.NoError(h.t, json.Unmarshal([]byte(h.do("ps", "box", "--json")), &list))
	for _, p := range list.Processes {
		if p.ProcessID == id {
			return p
		}
	}
	require.Fail(h.t, "no process "+id)
	return wisbox.ProcessInfo{}
}

func (h *home) awaitLog(id, text string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return strings.Contains(h.do("logs", "box", id), text) }, time.Minute, time.Millisecond)
}

func (h *home) awaitExit(id string) int {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return h.process(id).ExitCode != nil }, time.Minute, time.Millisecond)
	return *h.process(id).ExitCode
}

// ended returns the number of records of a process's end.
func ended(record, id string) (n int) {
	for line := range strings.Lines(record) {
		if strings.Contains(line, `"process_end"`) && strings.Contains(line, id) {
			n++
		}
	}
	return n
}

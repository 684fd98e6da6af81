package vfs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

// lawful are the kinds of errors that a call may return while its path is swapped.
var lawful = []tool.Kind{
	"", tool.Escape, tool.NotRegular, tool.NotFound, tool.Permission, tool.NotDir, tool.IsDir, tool.Exists, tool.Conflict, tool.Ambiguous,
}

// races calls a tool while a directory, or a file, is exchanged with something
// that leads out; nothing of the outside may show, and nothing may change there.
func TestRacesNeverLeaveTheWorkspace(t *testing.T) {
	for _, c := range []struct {
		name, tool, args string
		a, b             string
		rounds           int
	}{
		{"read file", "read_file", `{"file_path":"rc/f"}`, "rc/f", "rc/leak", 3000},
		{"read dir", "read_file", `{"file_path":"rc/dir/leak.txt"}`, "rc/dir", "rc/out", 3000},
		{"read fifo", "read_file", `{"file_path":"rc/f"}`, "rc/f", "rc/p", 2000},
		{"write dir", "write_file", `{"file_path":"rc/dir/new-%d","content":"x"}`, "rc/dir", "rc/out", 2000},
		{"write parents", "write_file", `{"file_path":"rc/dir/a%d/b/c/f","content":"x"}`, "rc/dir", "rc/out", 1000},
		{"overwrite", "write_file", `{"file_path":"rc/f","content":"inside","mode":"overwrite"}`, "rc/f", "rc/leak", 2000},
		{"overwrite in dir", "write_file", `{"file_path":"rc/dir/leak.txt","content":"inside","mode":"overwrite"}`, "rc/dir", "rc/out", 2000},
		{"append", "write_file", `{"file_path":"rc/f","content":"","mode":"append"}`, "rc/f", "rc/leak", 2000},
		{"edit", "edit_file", `{"file_path":"rc/dir/leak.txt","old_string":"side","new_string":"side!"}`, "rc/dir", "rc/out", 1000},
		{"ls", "ls", `{"path":"rc/dir"}`, "rc/dir", "rc/out", 2000},
		{"grep", "grep", `{"pattern":"CANARY","path":"rc"}`, "rc/dir", "rc/out", 500},
		{"glob", "glob", `{"pattern":"**/only*"}`, "rc/dir", "rc/out", 500},
		{"rm in dir", "rm", `{"path":"rc/dir/leak.txt"}`, "rc/dir", "rc/out", 1000},
		{"rm dir", "rm", `{"path":"rc/dir"}`, "rc/dir", "rc/out", 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.file("rc/dir/leak.txt", "inside")
			w.file("rc/f", "inside")
			w.link(w.outside, "rc/out")
			w.link(w.outside+"/leak.txt", "rc/leak")
			w.fifo("rc/p")
			stop := w.swapping(c.a, c.b)
			for i := range c.rounds {
				args := c.args
				if strings.Contains(args, "%d") {
					args = fmt.Sprintf(args, i)
				}
				res, err := w.call(c.tool, args)
				require.Contains(t, lawful, tool.KindOf(err), "%v", err)
				if err == nil {
					require.NotContains(t, res.Text, "CANARY-")
				}
			}
			stop()
			w.untouched()
		})
	}
}

func TestConcurrentRewritesAreNotLost(t *testing.T) {
	w := newWorld(t)
	w.file("f", "a")
	w.file("g", "b")
	stop := w.swapping("f", "g")
	for range 500 {
		_, err := w.call("edit_file", edit("f", "a", "a!", false))
		require.Contains(t, []tool.Kind{"", tool.NoMatch, tool.Conflict}, tool.KindOf(err))
	}
	stop()
	plain := func(name string) string { return strings.TrimRight(w.content(name), "!") }
	assert.ElementsMatch(t, []string{"a", "b"}, []string{plain("f"), plain("g")}, "an edit never replaces what it has not read")
}

func TestForbiddenModes(t *testing.T) {
	if hosttest.AsNobody(t) {
		return
	}
	w := newWorld(t)
	w.file("secret", "x")
	w.file("shut/f", "x")
	w.file("listed/f", "x")
	w.file("fixed/f", "x")
	w.file("ok", "x")
	for name, mode := range map[string]os.FileMode{"secret": 0, "shut": 0, "listed": 0o400, "fixed": 0o555} {
		require.NoError(t, os.Chmod(w.at(name), mode))
	}
	w.refused(tool.Permission, "read_file", `{"file_path":"secret"}`)
	w.refused(tool.Permission, "edit_file", edit("secret", "x", "y", false))
	w.refused(tool.Permission, "ls", `{"path":"shut"}`)
	w.refused(tool.Permission, "read_file", `{"file_path":"shut/f"}`)
	w.refused(tool.Permission, "write_file", `{"file_path":"fixed/g","content":"x"}`)
	w.refused(tool.Permission, "write_file", `{"file_path":"fixed/d/g","content":"x"}`)
	assert.Equal(t, []any{"f"}, w.ok("ls", `{"path":"listed"}`).each("entries", "name"))
	a := w.ok("grep", `{"pattern":"x"}`)
	assert.Equal(t, []any{"fixed/f", "ok"}, a.each("matches", "path"))
	assert.Equal(t, 3.0, a["files_skipped"], "the unreadable file and the directories that can't be entered")
	assert.NotEmpty(t, w.ok("glob", `{"pattern":"**"}`)["matches"])
	for _, name := range []string{"secret", "shut", "listed", "fixed"} {
		w.ok("rm", `{"path":"`+name+`"}`)
	}
	w.file("t/a/b/c", "x")
	for _, name := range []string{"t/a/b", "t/a", "t"} {
		require.NoError(t, os.Chmod(w.at(name), 0))
	}
	assert.Equal(t, 4.0, w.ok("rm", `{"path":"t"}`)["deleted"])
}

func TestOddTimesAreShown(t *testing.T) {
	w := newWorld(t)
	w.file("f", "x")
	for _, year := range []int{-500, 1, 20_000} {
		when := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		if os.Chtimes(w.at("f"), when, when) != nil {
			continue // the file system holds no such time
		}
		w.ok("ls", `{}`)
		w.ok("glob", `{"pattern":"f"}`)
	}
}

func TestAFileThatGrowsWhileItIsRead(t *testing.T) {
	w := newWorld(t)
	w.file("f", "start\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		file, err := os.OpenFile(w.at("f"), os.O_APPEND|os.O_WRONLY, 0)
		if !assert.NoError(t, err) {
			return
		}
		defer file.Close()
		for i := range 2_000 {
			_, _ = file.WriteString(strings.Repeat("more\n", 50))
			if i%100 == 99 {
				_ = file.Truncate(0)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for _, call := range []string{"read_file", "edit_file", "write_file", "grep"} {
			_, err := w.call(call, map[string]string{
				"read_file": `{"file_path":"f"}`, "edit_file": edit("f", "start", "begun", false),
				"write_file": `{"file_path":"f","content":"x\n","mode":"append"}`, "grep": `{"pattern":"more","path":"f"}`,
			}[call])
			require.Contains(t, []tool.Kind{"", tool.NoMatch, tool.Conflict}, tool.KindOf(err), "%s: %v", call, err)
		}
	}
}

func TestStaleStagedFilesAreSwept(t *testing.T) {
	w := newWorld(t)
	tmp := w.opts.Tmp
	f, err := tmp.Create("wisbox-tmp-left-by-a-killed-process")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w.ok("write_file", `{"file_path":"f","content":"x"}`)
	entries, err := os.ReadDir(w.at("../tmp"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

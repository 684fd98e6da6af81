package vfs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func (w *world) version(name string) float64 {
	w.Helper()
	return w.ok("read_file", args(map[string]any{"file_path": name}))["version"].(float64)
}

func TestLookingChangesNoVersion(t *testing.T) {
	w := newWorld(t)
	assert.Equal(t, 1.0, w.ok("write_file", `{"file_path":"v","content":"a"}`)["version"])
	assert.Equal(t, 1.0, w.version("v"))
	w.ok("ls", `{}`)
	assert.Equal(t, 1.0, w.version("v"))
}

func TestEveryChangeCounts(t *testing.T) {
	w := newWorld(t)
	w.ok("write_file", `{"file_path":"d/v","content":"a"}`)
	assert.Equal(t, 2.0, w.ok("edit_file", edit("d/v", "a", "b", false))["version"])
	w.file("d/v", "a program was here")
	assert.Equal(t, 3.0, w.version("d/v"))
	w.file("d/v", "twice")
	assert.Equal(t, []any{4.0}, w.ok("ls", `{"path":"d"}`).each("entries", "version"))
	assert.Equal(t, 5.0, w.ok("write_file", `{"file_path":"d/v","content":"x","mode":"append"}`)["version"])
	w.ok("rm", `{"path":"d"}`)
	assert.Equal(t, 6.0, w.ok("write_file", `{"file_path":"d/v","content":"again"}`)["version"], "a number never means two contents")
}

func TestCreationTimeStaysAndUpdateTimeMoves(t *testing.T) {
	w := newWorld(t)
	w.ok("write_file", `{"file_path":"f","content":"a"}`)
	first, err := w.fs.Stat(t.Context(), "f")
	require.NoError(t, err)
	w.ok("write_file", `{"file_path":"f","content":"b","mode":"append"}`)
	require.NoError(t, os.Chtimes(w.at("f"), first.UpdatedAt, first.UpdatedAt.Add(1e9)))
	second, err := w.fs.Stat(t.Context(), "f")
	require.NoError(t, err)
	assert.Equal(t, first.CreatedAt, second.CreatedAt)
	assert.True(t, second.UpdatedAt.After(first.UpdatedAt))
}

func TestReadBeforeWrite(t *testing.T) {
	w := newWorld(t, func(o *vfs.Options) { o.ReadBeforeWrite = true })
	over := `{"file_path":"f","content":"x","mode":"overwrite"}`
	w.file("f", "1")
	w.refused(tool.Conflict, "edit_file", edit("f", "1", "2", false))
	w.refused(tool.Conflict, "write_file", over)
	w.refused(tool.Conflict, "write_file", `{"file_path":"f","content":"x","mode":"append"}`)
	assert.Equal(t, "1", w.content("f"))
	w.ok("read_file", `{"file_path":"f"}`)
	w.ok("edit_file", edit("/workspace/f", "1", "2", false))
	w.ok("edit_file", edit("f", "2", "3", false))
	w.file("f", "theirs")
	e := w.refused(tool.Conflict, "write_file", over)
	assert.Equal(t, "file_path", e.Field)
	w.ok("ls", `{}`)
	w.refused(tool.Conflict, "write_file", over)
	_, _, err := w.fs.ReadWhole(t.Context(), "f", 0)
	require.NoError(t, err)
	w.ok("write_file", over)
	w.ok("write_file", `{"file_path":"new","content":"x"}`)
	w.ok("write_file", `{"file_path":"new","content":"y","mode":"overwrite"}`)
}

// TestReadBeforeWriteIsOfEachClient: what another client changed since isn't overwritten. Commands are one client.
func TestReadBeforeWriteIsOfEachClient(t *testing.T) {
	file := filepath.Join(t.TempDir(), "versions.jsonl")
	w := newWorld(t, func(o *vfs.Options) { o.ReadBeforeWrite, o.VersionsFile = true, file })
	as := func(who, name, args string) tool.Kind {
		ctx := tool.WithCaller(t.Context(), "agent 1.0")
		if strings.HasPrefix(who, "wisbox") {
			ctx = tool.WithCaller(ctx, who)
		} else {
			ctx = tool.WithClient(ctx, who)
		}
		_, err := w.tools[name].Call(ctx, json.RawMessage(args))
		return tool.KindOf(err)
	}
	const read, over, appended = `{"file_path":"f"}`, `{"file_path":"f","content":"x","mode":"overwrite"}`, `{"file_path":"f","content":"y","mode":"append"}`
	w.file("f", "1")
	for _, who := range []string{"a", "b", "wisbox[1]"} {
		require.Empty(t, as(who, "read_file", read), who)
	}
	require.Empty(t, as("b", "write_file", over))
	require.Empty(t, as("b", "edit_file", edit("f", "x", "xx", false)), "it knows its own change")
	for _, who := range []string{"a", "wisbox[2]"} {
		for name, args := range map[string]string{"write_file": over, "edit_file": edit("f", "xx", "z", false)} {
			assert.Equal(t, tool.Conflict, as(who, name, args), "%s %s", who, name)
		}
		assert.Equal(t, tool.Conflict, as(who, "write_file", appended), who)
	}
	assert.Equal(t, "xx", w.content("f"))
	w.reopen()
	assert.Equal(t, tool.Conflict, as("a", "write_file", over), "in the next process too")
	require.Empty(t, as("a", "read_file", read))
	require.Empty(t, as("a", "write_file", over))
	require.Empty(t, as("wisbox[3]", "read_file", read))
	require.Empty(t, as("wisbox[4]", "write_file", over), "the next command of the same client")
	assert.Equal(t, tool.Conflict, as("a", "write_file", over))
}

func TestAFailedReadUnlocksNothing(t *testing.T) {
	w := newWorld(t, func(o *vfs.Options) { o.ReadBeforeWrite = true })
	w.file("f", "\xff")
	w.refused(tool.NotText, "read_file", `{"file_path":"f"}`)
	w.refused(tool.Conflict, "write_file", `{"file_path":"f","content":"x","mode":"overwrite"}`)
	w.ok("read_file", `{"file_path":"f","encoding":"base64"}`)
	w.ok("write_file", `{"file_path":"f","content":"x","mode":"overwrite"}`)
}

func TestVersionsGoOnInTheNextProcess(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "versions.jsonl")
	w := newWorld(t, func(o *vfs.Options) { o.VersionsFile, o.ReadBeforeWrite = journal, true })
	w.ok("write_file", `{"file_path":"f","content":"a"}`)
	w.ok("edit_file", edit("f", "a", "b", false))
	w.file("read", "x")
	w.ok("read_file", `{"file_path":"read"}`)
	w.reopen()
	assert.Equal(t, 3.0, w.ok("edit_file", edit("f", "b", "c", false))["version"])
	w.ok("write_file", `{"file_path":"read","content":"y","mode":"overwrite"}`)
	w.file("f", "changed between processes")
	w.reopen()
	w.refused(tool.Conflict, "write_file", `{"file_path":"f","content":"y","mode":"overwrite"}`)
	assert.Equal(t, 4.0, w.version("f"))
}

func TestProcessesOfASessionShareVersions(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "versions.jsonl")
	w := newWorld(t, func(o *vfs.Options) { o.VersionsFile, o.ReadBeforeWrite = journal, true })
	other, err := vfs.New(&w.opts)
	require.NoError(t, err)
	defer other.Close()
	w.file("f", "x")
	w.ok("read_file", `{"file_path":"f"}`)
	done, err := other.Apply(t.Context(), []vfs.Write{{Path: "f", Content: []byte("y"), Mode: vfs.Overwrite}})
	require.NoError(t, err)
	assert.EqualValues(t, 2, done[0].Version)
	assert.Equal(t, 2.0, w.version("f"))
}

func TestACorruptJournalLosesItsBadLinesOnly(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "versions.jsonl")
	w := newWorld(t, func(o *vfs.Options) { o.VersionsFile = journal })
	w.ok("write_file", `{"file_path":"f","content":"a"}`)
	data, err := os.ReadFile(journal)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(journal, append([]byte("garbage\n{\"p\":7}\n"), append(data, `{"p":"f","v":9`...)...), 0o600))
	w.reopen()
	assert.Equal(t, 1.0, w.version("f"))
}

func TestTheJournalIsCompacted(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "versions.jsonl")
	w := newWorld(t, func(o *vfs.Options) { o.VersionsFile = journal })
	w.ok("write_file", `{"file_path":"f","content":"a"}`)
	data, err := os.ReadFile(journal)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(journal, []byte(strings.Repeat(string(data), 12_000)), 0o600))
	w.reopen()
	w.ok("write_file", `{"file_path":"g","content":"a"}`)
	info, err := os.Stat(journal)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(1_000))
	w.reopen()
	assert.Equal(t, 1.0, w.version("f"))
}

// TestTheJournalStaysShortWhereNothingButReadingIsDone has a program that changes files between two
// reads.
func TestTheJournalStaysShortWhereNothingButReadingIsDone(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "versions.jsonl")
	w := newWorldIn(t, hosttest.InMemory(t), func(o *vfs.Options) { o.VersionsFile = journal })
	w.many("d", 2_000)
	for i := range 30 {
		for f := range 2_000 {
			at := time.Unix(int64(i), 0)
			require.NoError(t, os.Chtimes(w.at(fmt.Sprintf("d/f%06d", f)), at, at))
		}
		w.ok("ls", `{"path":"d"}`)
	}
	info, err := os.Stat(journal)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(3<<20))
	w.reopen()
	assert.Equal(t, 30.0, w.ok("ls", `{"path":"d"}`).each("entries", "version")[0], "numbers stay")
}

func TestACopyOfAWorkspaceCarriesVersionsAndTimes(t *testing.T) {
	w := newWorld(t, func(o *vfs.Options) { o.ReadBeforeWrite = true })
	w.ok("write_file", `{"file_path":"d/f","content":"1"}`)
	w.ok("write_file", `{"file_path":"d/f","content":"2","mode":"overwrite"}`)
	w.ok("write_file", `{"file_path":"changed","content":"1"}`)
	w.ok("write_file", `{"file_path":"gone","content":"1"}`)
	w.ok("rm", `{"path":"gone"}`)
	first := w.ok("read_file", `{"file_path":"d/f"}`)
	carried, err := w.fs.Carried(t.Context())
	require.NoError(t, err)

	journal := filepath.Join(t.TempDir(), "versions.jsonl")
	hostile := "{\"p\":\"huge\",\"v\":9223372036854775807,\"f\":[0,1,1,0],\"c\":9223372036854775807}\n"
	require.NoError(t, os.WriteFile(journal, append([]byte(hostile), carried...), 0o600))
	c := newWorld(t, func(o *vfs.Options) { o.VersionsFile, o.ReadBeforeWrite = journal, true })
	for _, name := range []string{"d/f", "changed"} {
		c.file(name, w.content(name))
		info, err := os.Stat(w.at(name))
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(c.at(name), info.ModTime(), info.ModTime()))
	}
	c.file("changed", "by a program")
	c.file("gone", "again")
	c.file("huge", "x")
	c.refused(tool.Conflict, "edit_file", edit("d/f", "2", "3", false))
	copied := c.ok("read_file", `{"file_path":"d/f"}`)
	assert.Equal(t, 2.0, copied["version"])
	assert.Equal(t, first["created_at"], copied["created_at"])
	assert.NotEmpty(t, copied["created_at"])
	assert.Equal(t, 2.0, c.version("changed"))
	assert.Equal(t, 2.0, c.version("gone"))
	assert.Equal(t, 1.0, c.version("huge"))
	assert.Equal(t, 3.0, c.ok("edit_file", edit("d/f", "2", "3", false))["version"])
	c.reopen()
	assert.Equal(t, 3.0, c.version("d/f"))
}

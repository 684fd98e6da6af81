package vfs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestReadGivesTheExactTextOfLines(t *testing.T) {
	w := newWorld(t)
	w.file("five", "a\nb\nc\nd\ne\n")
	w.file("empty", "")
	w.file("notail", "a\r\nb")
	w.file("bom", "\ufeffa")
	w.file("big", numbers(1, 2500))
	for _, c := range []struct {
		args         string
		content      string
		limit, total float64
		truncated    bool
		textHas      string
	}{
		{`"five","limit":10`, "a\nb\nc\nd\ne\n", 5, 5, false, "   1 | a\n"},
		{`"five","offset":1,"limit":2`, "b\nc\n", 2, 5, true, "   2 | b\n   3 | c\n"},
		{`"five","offset":9`, "", 0, 5, false, "no lines"},
		{`"five","offset":5`, "", 0, 5, false, "no lines"},
		{`"empty"`, "", 0, 0, false, "no lines"},
		{`"notail"`, "a\r\nb", 2, 2, false, "   2 | b\n"},
		{`"notail","offset":1`, "b", 1, 2, false, "   2 | b\n"},
		{`"bom"`, "\ufeffa", 1, 1, false, ""},
		{`"big","offset":2499`, "2500\n", 1, 2500, false, "2500 | 2500"},
		{`"big","limit":99999`, numbers(1, 2000), 2000, 2500, true, "offset 2000"},
		{`"big"`, numbers(1, 2000), 2000, 2500, true, "2000 | 2000"},
	} {
		a := w.ok("read_file", `{"file_path":`+c.args+`}`)
		assert.Equal(t, c.content, a["content"], c.args)
		assert.Equal(t, c.limit, a["limit"], c.args)
		assert.Equal(t, c.total, a["total_lines"], c.args)
		assert.Equal(t, c.truncated, a["truncated"], c.args)
		assert.Contains(t, a["text"], c.textHas, c.args)
	}
}

func TestTheNumberColumnGrows(t *testing.T) {
	w := newWorld(t)
	w.file("big", numbers(1, 10_001))
	a := w.ok("read_file", `{"file_path":"big","offset":9998,"limit":2}`)
	assert.Contains(t, a["text"], "9999 | 9999\n10000 | 10000")
}

func TestLongLinesAreCutInTheRenderingOnly(t *testing.T) {
	w := newWorld(t)
	w.file("l", strings.Repeat("a", 5000)+"\n")
	a := w.ok("read_file", `{"file_path":"l"}`)
	assert.Len(t, a["content"], 5001)
	assert.Less(t, len(a["text"].(string)), 2100)
}

func TestAnAnswerHoldsAtMost256KiB(t *testing.T) {
	w := newWorld(t)
	line := strings.Repeat("x", 999) + "\n"
	w.file("lines", strings.Repeat(line, 1000))
	a := w.ok("read_file", `{"file_path":"lines"}`)
	assert.Equal(t, strings.Repeat(line, 262), a["content"])
	assert.Equal(t, 262.0, a["limit"])
	assert.Equal(t, 1000.0, a["total_lines"])
	assert.Equal(t, true, a["truncated"])
	w.file("one", strings.Repeat("é", 200_000))
	a = w.ok("read_file", `{"file_path":"one"}`)
	assert.Equal(t, strings.Repeat("é", 131_072), a["content"])
	assert.Equal(t, 1.0, a["limit"])
	assert.Equal(t, true, a["truncated"])
}

func TestCharactersAcrossBlocksAreWhole(t *testing.T) {
	w := newWorld(t)
	for shift := range 4 {
		text := strings.Repeat("a", shift) + strings.Repeat("😀\n", 120_000)
		w.file("f", text)
		a := w.ok("read_file", `{"file_path":"f","offset":119999}`)
		assert.Equal(t, "😀\n", a["content"])
		assert.Equal(t, 120_000.0, a["total_lines"])
	}
}

func TestBytesThatAreNoTextNeedBase64(t *testing.T) {
	w := newWorld(t)
	w.file("b", "\xff\xfe\x00\x01")
	w.file("late", strings.Repeat("a\n", 300_000)+"\xff")
	w.file("cut", "ok\xe2\x82")
	for _, name := range []string{"b", "late", "cut"} {
		assert.Equal(t, "file_path", w.refused(tool.NotText, "read_file", `{"file_path":"`+name+`"}`).Field)
	}
	a := w.ok("read_file", `{"file_path":"b","encoding":"base64"}`)
	assert.Equal(t, "//4AAQ==", a["content"])
	assert.Equal(t, 4.0, a["limit"])
	assert.Equal(t, 4.0, a["size_bytes"])
	a = w.ok("read_file", `{"file_path":"b","encoding":"base64","offset":1,"limit":2}`)
	assert.Equal(t, "/gA=", a["content"])
	assert.Equal(t, true, a["truncated"])
	a = w.ok("read_file", `{"file_path":"late","encoding":"base64"}`)
	assert.Equal(t, 48_000.0, a["limit"])
}

func TestReadRefuses(t *testing.T) {
	w := newWorld(t)
	w.file("ok.txt", "hello\n")
	w.dir("d")
	w.fifo("p")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: w.at("s")}))
	for args, kind := range map[string]tool.Kind{
		`"file_path":"nothere"`: tool.NotFound, `"file_path":"d"`: tool.IsDir, `"file_path":"p"`: tool.NotRegular, `"file_path":"s"`: tool.NotRegular,
		`"file_path":"ok.txt","offset":-1`: tool.Invalid, `"file_path":"ok.txt","limit":0`: tool.Invalid, `"file_path":"ok.txt","encoding":"utf-17"`: tool.Invalid,
		`"file_path":"ok.txt/x"`: tool.NotDir, `"file_path":"proc/self/root/etc/passwd"`: tool.NotFound,
	} {
		within(t, func() { w.refused(kind, "read_file", `{`+args+`}`) })
	}
}

func TestReadFollowsLinksInsideOnly(t *testing.T) {
	w := newWorld(t)
	w.file("b/t", "in\n")
	w.link("../b", "a/l")
	w.link("/workspace/b/t", "abs")
	w.link(w.outside+"/leak.txt", "out")
	w.link("../../../../../../../../.."+w.outside+"/leak.txt", "climb")
	w.link(w.outside, "d")
	w.link("out", "chain")
	w.link(w.path+"-evil/x", "sibling")
	w.link("/proc/self/environ", "environ")
	w.link("/dev/zero", "zero")
	w.link("loop", "loop")
	w.link("nothere", "dangling")
	for _, name := range []string{"a/l/t", "abs", "/workspace/a/l/t"} {
		assert.Equal(t, "in\n", w.ok("read_file", `{"file_path":"`+name+`"}`)["content"])
	}
	for _, name := range []string{"out", "climb", "d/", "d//leak.txt", "chain", "sibling", "environ", "zero"} {
		within(t, func() { w.refused(tool.Escape, "read_file", `{"file_path":"`+name+`"}`) })
	}
	w.refused(tool.NotRegular, "read_file", `{"file_path":"loop"}`)
	w.refused(tool.NotFound, "read_file", `{"file_path":"dangling"}`)
}

func TestSparseFilesAreRefusedBySize(t *testing.T) {
	w := newWorld(t)
	w.file("big", "")
	require.NoError(t, os.Truncate(w.at("big"), 1<<40))
	within(t, func() {
		w.refused(tool.TooLarge, "read_file", `{"file_path":"big"}`)
		w.refused(tool.TooLarge, "edit_file", `{"file_path":"big","old_string":"a","new_string":"b"}`)
		w.refused(tool.TooLarge, "write_file", `{"file_path":"big","content":"a","mode":"append"}`)
		a := w.ok("read_file", `{"file_path":"big","encoding":"base64","offset":1000000000000,"limit":3}`)
		assert.Equal(t, "AAAA", a["content"])
		assert.Equal(t, 0.0, w.ok("grep", `{"pattern":"x"}`)["files_searched"])
		_, _, err := w.fs.ReadWhole(t.Context(), "big", 0)
		assert.Equal(t, tool.TooLarge, tool.KindOf(err))
	})
}

func TestEncodingsThatAgentsKnow(t *testing.T) {
	w := newWorld(t)
	w.file("l", "caf\xe9\r\n\xff\n")
	w.file("big", strings.Repeat("\xe9\n", 200_000))
	for _, name := range []string{"latin-1", "latin1", "ISO-8859-1"} {
		a := w.ok("read_file", args(map[string]any{"file_path": "l", "encoding": name}))
		assert.Equal(t, []any{"café\r\nÿ\n", "latin-1", 2.0, 8.0}, []any{a["content"], a["encoding"], a["total_lines"], a["size_bytes"]})
	}
	assert.Equal(t, 200_000.0, w.ok("read_file", `{"file_path":"big","encoding":"latin-1"}`)["total_lines"])
	for _, name := range []string{"binary", "bytes", "raw"} {
		a := w.ok("read_file", args(map[string]any{"file_path": "l", "encoding": name, "limit": 4}))
		assert.Equal(t, []any{"Y2Fm6Q==", "base64"}, []any{a["content"], a["encoding"]})
		assert.Contains(t, a["notice"], "base64")
		assert.Contains(t, a["text"], "base64")
	}
	assert.Equal(t, "", w.ok("read_file", `{"file_path":"l","encoding":"base64","offset":9223372036854775807}`)["content"])
	for name, want := range map[string]string{"UTF8": "é", "utf-8": "é", "ascii": "é", "latin-1": "\xe9"} {
		w.ok("write_file", args(map[string]any{"file_path": "w-" + name, "content": "é", "encoding": name}))
		assert.Equal(t, want, w.content("w-"+name))
	}
	w.ok("write_file", `{"file_path":"b","content":"/w==","encoding":"binary"}`)
	assert.Equal(t, "\xff", w.content("b"))
	assert.Equal(t, "content", w.refused(tool.Invalid, "write_file", `{"file_path":"x","content":"€","encoding":"latin-1"}`).Field)
	assert.Contains(t, w.refused(tool.Invalid, "write_file", `{"file_path":"x","content":"no base64!","encoding":"binary"}`).Message, "base64")
	assert.Equal(t, "encoding", w.refused(tool.Invalid, "read_file", `{"file_path":"l","encoding":"klingon"}`).Field)
}

func TestAFileIsReadInTheEncodingThatItWasWrittenIn(t *testing.T) {
	w := newWorld(t)
	read := func(name string) []any {
		a := w.ok("read_file", args(map[string]any{"file_path": name}))
		return []any{a["content"], a["encoding"]}
	}
	w.ok("write_file", `{"file_path":"l","content":"café\n","encoding":"latin-1"}`)
	assert.Equal(t, "caf\xe9\n", w.content("l"))
	assert.Equal(t, []any{"café\n", "latin-1"}, read("l"))

	// Appends and edits keep it.
	w.ok("write_file", `{"file_path":"l","content":"ü\n","mode":"append"}`)
	assert.Equal(t, "caf\xe9\n\xfc\n", w.content("l"))
	w.ok("edit_file", `{"file_path":"l","old_string":"café","new_string":"thé"}`)
	assert.Equal(t, "th\xe9\n\xfc\n", w.content("l"))
	assert.Equal(t, []any{"thé\nü\n", "latin-1"}, read("l"))
	assert.Equal(t, "new_string", w.refused(tool.Invalid, "edit_file", `{"file_path":"l","old_string":"thé","new_string":"€"}`).Field)
	w.ok("move_file", `{"path":"l","to":"m"}`)
	assert.Equal(t, []any{"thé\nü\n", "latin-1"}, read("m"))

	// An explicit encoding counts more, and so does a new content.
	assert.Equal(t, tool.NotText, w.refused(tool.NotText, "read_file", `{"file_path":"m","encoding":"utf-8"}`).Kind)
	w.ok("write_file", `{"file_path":"m","content":"é","mode":"overwrite"}`)
	assert.Equal(t, []any{"é", "utf-8"}, read("m"))
	w.ok("write_file", `{"file_path":"b","content":"6Q==","encoding":"base64"}`)
	w.refused(tool.NotText, "read_file", `{"file_path":"b"}`)

	// A program's content is UTF-8 until somebody says otherwise.
	w.ok("write_file", `{"file_path":"p","content":"é","encoding":"latin-1"}`)
	w.file("p", "é!")
	assert.Equal(t, []any{"é!", "utf-8"}, read("p"))
}

func TestPathIsTakenForFilePath(t *testing.T) {
	w := newWorld(t)
	w.ok("write_file", `{"path":"f","content":"a"}`)
	w.ok("edit_file", `{"path":"f","old_string":"a","new_string":"b"}`)
	assert.Equal(t, "b", w.ok("read_file", `{"path":"f","file_path":"f"}`)["content"])
	e := w.refused(tool.Invalid, "read_file", `{"path":"f","file_path":"g"}`)
	assert.Equal(t, "file_path", e.Field)
	assert.Equal(t, "file_path", w.refused(tool.NotFound, "read_file", `{"path":"nothere"}`).Field)
	w.refused(tool.Invalid, "read_file", `{}`)
	for _, name := range []string{"read_file", "write_file", "edit_file"} {
		assert.NotContains(t, w.tools[name].Input.Properties, "path", "the schema has one name")
	}
}

package wasm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	experimental "github.com/tetratelabs/wazero/experimental/sys"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/evaltool"
)

// module returns a program that runs a loop that many times. It has the required parts: the import, a memory, a stack
// pointer, data.
func module(loops byte) []byte {
	section := func(id byte, body ...byte) []byte { return append([]byte{id, byte(len(body))}, body...) }
	code := []byte{
		1, 1, 0x7f, // one local, i32
		opI32Const, loops, 0x21, 0, // local.set 0
		opLoop, 0x40,
		0x20, 0, opI32Const, 1, 0x6b, 0x22, 0, 0x0d, 0, // local.tee 0 of local.get 0 - 1, br_if 0
		opEnd, opEnd,
	}
	return bytes.Join([][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(0, append([]byte{4}, "noteX"...)...),
		section(1, 2, 0x60, 0, 1, 0x7f, 0x60, 0, 0),
		section(2, append(append(append([]byte{1, 22}, hookModule...), 11), append([]byte(hookName), 0, 0)...)...),
		section(3, 1, 1),
		section(5, 1, 0, 1),
		section(6, 1, 0x7f, 1, opI32Const, 42, opEnd),
		section(7, append(append([]byte{2, 6}, "_start"...), append([]byte{0, 1, 6}, append([]byte("memory"), 2, 0)...)...)...),
		section(10, append([]byte{1, byte(len(code))}, code...)...),
		section(11, 1, 0, opI32Const, 5, opEnd, 2, 'h', 'i'),
	}, nil)
}

// play runs a module from its data.
func play(t *testing.T, original []byte, fuel int64) *ran {
	t.Helper()
	r, err := rewrite(original)
	require.NoError(t, err)
	m, err := newMachine(context.Background(), r.module, nil)
	require.NoError(t, err)
	defer m.close()
	img, err := newImage(r.memory)
	require.NoError(t, err)
	defer img.close()
	memory, err := img.mapRegion(1 << 20)
	require.NoError(t, err)
	defer memory.unmap()
	out, err := m.run(context.Background(), &job{memory: memory, files: newFiles(0), stdout: io.Discard, stderr: io.Discard, fuel: fuel, timeout: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, "hi", string(out.memory[5:7]))
	out.memory = nil
	return out
}

// TestFuelIsOneAFunctionAndOneATurn: the entry, and each iteration of the loop.
func TestFuelIsOneAFunctionAndOneATurn(t *testing.T) {
	out := play(t, module(10), 1000)
	assert.NoError(t, out.stopped)
	assert.EqualValues(t, 11, out.used)
	assert.EqualValues(t, 42, out.stack)
	assert.NoError(t, play(t, module(10), 11).stopped)
	out = play(t, module(10), 10)
	assert.Equal(t, errFuel, out.stopped)
	assert.EqualValues(t, 11, out.used, "the unit that was not there")
}

func TestFuelOfManySlicesIsExact(t *testing.T) {
	out := play(t, module(0), 3*slice+7) // the counter wraps around: 2^32 iterations
	assert.Equal(t, errFuel, out.stopped)
	assert.EqualValues(t, 3*slice+8, out.used)
}

func TestDamagedModulesAreRefused(t *testing.T) {
	whole := module(3)
	for end := range whole {
		r, err := rewrite(whole[:end])
		if err == nil {
			m, err := newMachine(context.Background(), r.module, nil)
			if err == nil {
				m.close()
			}
		}
	}
	_, err := rewrite(append(whole, 8, 1, 0))
	assert.ErrorIs(t, err, errModule, "a start function would run before the memory is there")
}

func FuzzRewriteNeverPanics(f *testing.F) {
	f.Add(module(3))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = rewrite(data) })
}

func TestAStateFileIsWholeOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s := &started{entry: entry{Stack: 1, Object: 2, Slot: 3}, module: []byte("module\n"), memory: []byte("\nmemory")}
	require.NoError(t, s.save(path))
	got, err := loadStarted(path)
	require.NoError(t, err)
	assert.Equal(t, s, got)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range data {
		damaged := bytes.Clone(data)
		damaged[i] ^= 1
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		_, err = loadStarted(path)
		require.Error(t, err)
	}
}

// TestAFileInMemoryIsAFile compares one with a plain slice.
func TestAFileInMemoryIsAFile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		files := newFiles(100)
		var want []byte
		if rapid.Bool().Draw(rt, "given") {
			want = []byte("given")
			files.give("f", &node{text: "given"})
		}
		opened, errno := files.OpenFile("f", experimental.O_RDWR|experimental.O_CREAT, 0)
		require.Zero(rt, errno)
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			at, data := rapid.Int64Range(0, 60).Draw(rt, "at"), rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(rt, "data")
			switch rapid.IntRange(0, 1).Draw(rt, "op") {
			case 0:
				if _, errno := opened.Pwrite(data, at); errno == 0 && len(data) > 0 {
					end := int(at) + len(data)
					if end > len(want) {
						want = append(want, make([]byte, end-len(want))...)
					}
					copy(want[at:], data)
				}
			case 1:
				if opened.Truncate(at) == 0 {
					want = append(want[:min(int(at), len(want))], make([]byte, max(0, int(at)-len(want)))...)
				}
			}
			buf := make([]byte, 200)
			n, errno := opened.Pread(buf, 0)
			require.Zero(rt, errno)
			require.Equal(rt, string(want), string(buf[:n]))
			require.GreaterOrEqual(rt, files.left, int64(0))
		}
		require.Zero(rt, files.Unlink("f"))
		require.True(rt, files.left == int64(100-len(want)) || string(want) == "given", "an open file keeps its bytes")
		require.Zero(rt, opened.Close())
		require.EqualValues(rt, 100, files.left)
	})
}

func TestDirectoriesInMemory(t *testing.T) {
	f := newFiles(10, "workspace")
	assert.Zero(t, f.Mkdir("workspace/d", 0))
	assert.Equal(t, experimental.EEXIST, f.Mkdir("workspace/d", 0))
	assert.Equal(t, experimental.ENOENT, f.Mkdir("no/d", 0))
	f.give("workspace/d/x", &node{text: "1"})
	assert.Equal(t, experimental.ENOTEMPTY, f.Rmdir("workspace/d"))
	assert.Equal(t, experimental.EISDIR, f.Unlink("workspace/d"))
	assert.Equal(t, experimental.ENOTDIR, f.Rmdir("workspace/d/x"))
	assert.Zero(t, f.Rename("workspace/d/x", "workspace/y"))
	_, errno := f.Stat("workspace/d/x")
	assert.Equal(t, experimental.ENOENT, errno)
	_, errno = f.OpenFile("workspace/y/z", experimental.O_RDONLY, 0)
	assert.Equal(t, experimental.ENOTDIR, errno)
	dir, errno := f.OpenFile("/workspace", experimental.O_RDONLY, 0)
	require.Zero(t, errno)
	entries, errno := dir.Readdir(-1)
	require.Zero(t, errno)
	assert.Len(t, entries, 2)
	assert.Equal(t, []string{"d", "y"}, []string{entries[0].Name, entries[1].Name})
	for i := 0; ; i++ {
		require.Less(t, i, 2*maxNodes)
		if f.Mkdir("workspace/d/"+string(rune('a'+i%26))+string(rune(0x4e00+i)), 0) != 0 {
			break
		}
	}
}

func FuzzAnswersAreBoundedOrRefused(f *testing.F) {
	f.Add([]byte(`{"id":"x","status":"exited","globals":{"a":"1"},"writes":[{"path":"p","mode":"create","content":""}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a := parseAnswer(raw)
		if a == nil {
			return
		}
		var resp evaltool.Response
		a.Fill(&resp)
		for _, text := range resp.Globals {
			require.True(t, len(text) > 6 && text[:6] == "!repr:" || json.Valid([]byte(text)) || text == "!repr:")
		}
	})
}

func TestARunBeginsWithTheRoomThatIsFree(t *testing.T) {
	f := newFiles(10, "workspace")
	write := func(name string, n int) experimental.Errno {
		o, errno := f.OpenFile(name, experimental.O_WRONLY|experimental.O_CREAT, 0)
		require.Zero(t, errno)
		_, errno = o.Write(make([]byte, n))
		return errno // the file stays open, as when a program is stopped
	}
	require.Zero(t, write("workspace/kept", 4))
	require.Zero(t, write("tmp", 6))
	assert.NotZero(t, write("more", 1))
	f.remove("tmp")
	f.begin()
	assert.NotZero(t, write("more", 7))
	assert.Zero(t, write("more", 6))
}

package rlm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

func openCache(t *testing.T, max int64) (*rlm.Cache, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	c, err := rlm.OpenCache(dir, max)
	require.NoError(t, err)
	return c, dir
}

func key(i int) string { return fmt.Sprintf("%064x", i) }

func TestCacheRoundTripIsByteExact(t *testing.T) {
	c, _ := openCache(t, 0)
	rapid.Check(t, func(t *rapid.T) {
		value := string(rapid.SliceOf(rapid.Byte()).Draw(t, "value"))
		k := key(rapid.IntRange(0, 50).Draw(t, "key"))
		require.NoError(t, c.Put(k, value))
		got, hit := c.Get(k)
		require.True(t, hit)
		require.Equal(t, value, got)
	})
}

func TestCacheTakesOnlyKeys(t *testing.T) {
	c, dir := openCache(t, 0)
	for _, k := range []string{"", "..", "../x", strings.Repeat("g", 64), strings.Repeat("A", 64), key(1) + "\n"} {
		require.Error(t, c.Put(k, "x"))
		_, hit := c.Get(k)
		assert.False(t, hit)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// taken returns the disk space of a directory's files, and their number.
func taken(t *testing.T, dir string) (bytes int64, files int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	return bytes, len(entries)
}

func TestCacheStaysWithinItsSize(t *testing.T) {
	const most = 400 << 10
	for name, size := range map[string]int{"small values": 1, "larger values": 20_000} {
		t.Run(name, func(t *testing.T) {
			c, dir := openCache(t, most)
			for i := range 300 {
				require.NoError(t, c.Put(key(i), strings.Repeat("x", size)))
				bytes, files := taken(t, dir)
				require.LessOrEqual(t, bytes, int64(most))
				require.LessOrEqual(t, files, most/4096)
			}
			_, hit := c.Get(key(299))
			assert.True(t, hit, "the newest stays")
			require.NoError(t, c.Put(key(1000), strings.Repeat("x", most/8)), "what is too large is not kept")
			_, hit = c.Get(key(1000))
			assert.False(t, hit)
		})
	}
}

// TestManySessionsShareOneBound: each session opens the cache, and writes to it.
func TestManySessionsShareOneBound(t *testing.T) {
	const most = 400 << 10
	c, dir := openCache(t, most)
	for i := range 300 {
		again, err := rlm.OpenCache(dir, most)
		require.NoError(t, err)
		require.Same(t, c, again)
		require.NoError(t, again.Put(key(i), strings.Repeat("x", 20_000)))
	}
	bytes, _ := taken(t, dir)
	assert.LessOrEqual(t, bytes, int64(most))
}

// TestWhatAnotherProcessAddsIsCounted writes files as one would.
func TestWhatAnotherProcessAddsIsCounted(t *testing.T) {
	const most = 800 << 10
	c, dir := openCache(t, most)
	for i := range 100 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, key(1000+i)), make([]byte, 20_000), 0o600))
		require.NoError(t, c.Put(key(i), strings.Repeat("x", 20_000)))
		bytes, _ := taken(t, dir)
		require.LessOrEqual(t, bytes, int64(most+2*most/16+2*24_576))
	}
}

func TestWhatIsUsedStaysLongest(t *testing.T) {
	c, _ := openCache(t, 400<<10)
	require.NoError(t, c.Put(key(0), "kept"))
	for i := range 300 {
		require.NoError(t, c.Put(key(i+1), "x"))
		_, hit := c.Get(key(0))
		require.True(t, hit, i)
	}
}

func TestACacheOfSomebodyElseIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), dir))
	_, err := rlm.OpenCache(dir, 0)
	assert.Error(t, err)
	if os.Getuid() != 0 {
		return // only root can change a directory's owner
	}
	theirs := t.TempDir()
	require.NoError(t, os.Chown(theirs, 12345, 12345))
	_, err = rlm.OpenCache(theirs, 0)
	assert.ErrorContains(t, err, "not a directory of user")
}

func TestADamagedValueIsAMiss(t *testing.T) {
	c, dir := openCache(t, 0)
	require.NoError(t, c.Put(key(1), "value"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, key(1)), []byte("short"), 0o600))
	_, hit := c.Get(key(1))
	assert.False(t, hit)
	require.NoError(t, os.WriteFile(filepath.Join(dir, key(1)), []byte(strings.Repeat("x", 99)), 0o600))
	_, hit = c.Get(key(1))
	assert.False(t, hit)
	assert.NoFileExists(t, filepath.Join(dir, key(1)))
}

// fakeEval answers with its arguments and counts calls.
type fakeEval struct {
	runs    atomic.Int64
	version string
	failure string
}

func (e *fakeEval) Eval(_ context.Context, code string, inputs map[string]string) (string, string, error) {
	e.runs.Add(1)
	return code + fmt.Sprint(inputs), e.failure, nil
}

func (e *fakeEval) Version() string { return e.version }

func do(t *testing.T, ops *rlm.Ops, op, args string) rlm.Outcome {
	t.Helper()
	out, err := ops.Do(context.Background(), op, json.RawMessage(args))
	require.NoError(t, err)
	return out
}

func bind(t *testing.T, ops *rlm.Ops, name, text string) {
	t.Helper()
	_, err := ops.Bind(name, text)
	require.NoError(t, err)
}

// TestKeysAreDeterministicAndDistinct detects the parts of the key by hits and misses.
func TestKeysAreDeterministicAndDistinct(t *testing.T) {
	cache, _ := openCache(t, 0)
	eval := &fakeEval{version: "1"}
	ops := newOps(t, &rlm.Options{Cache: cache, Eval: eval})
	bind(t, ops, "a", "1")
	bind(t, ops, "b", "2")
	cached := func(op, args string) bool { return do(t, ops, op, args).Cached }
	assert.False(t, cached("count", `{"input":"a"}`))
	assert.True(t, cached("count", `{"input":"a","mode":"lines"}`), "a default is the same as the value")
	assert.True(t, cached("count", `{"mode":"lines", "input":"a"}`), "whatever the order")
	assert.False(t, cached("count", `{"input":"b"}`), "another text")
	assert.False(t, cached("count", `{"input":"a","mode":"chars"}`))
	assert.False(t, cached("combine", `{"inputs":["a","b"],"strategy":"sum"}`))
	assert.False(t, cached("combine", `{"inputs":["b","a"],"strategy":"sum"}`), "another order")
	bind(t, ops, "b", "5")
	out := do(t, ops, "combine", `{"inputs":["a","b"],"strategy":"sum"}`)
	assert.Equal(t, rlm.Outcome{Result: "6"}, out, "a changed input")
	assert.False(t, cached("eval", `{"code":"x","inputs":["a"]}`))
	assert.True(t, cached("eval", `{"code":"x","inputs":["a","a"]}`))
	assert.False(t, cached("eval", `{"code":"x","inputs":["b"]}`))
	bind(t, ops, "a", "9")
	assert.False(t, cached("eval", `{"code":"x","inputs":["a"]}`), "a changed input of eval")
	eval.version = "2"
	assert.False(t, cached("eval", `{"code":"x","inputs":["a"]}`), "another engine")
	eval.version = ""
	assert.False(t, cached("eval", `{"code":"x","inputs":["a"]}`))
	assert.False(t, cached("eval", `{"code":"x","inputs":["a"]}`), "an engine that is not deterministic")
	eval.version, eval.failure = "3", "ValueError"
	assert.False(t, cached("eval", `{"code":"y","inputs":[]}`))
	assert.False(t, cached("eval", `{"code":"y","inputs":[]}`), "failures are not kept")
}

func TestEvalSeesItsInputsAndNoOthers(t *testing.T) {
	ops := newOps(t, &rlm.Options{Eval: &fakeEval{version: "1"}})
	bind(t, ops, "a", "1")
	assert.Equal(t, "map[a:1 context:]", do(t, ops, "eval", `{"code":""}`).Result)
	assert.Equal(t, "map[a:1]", do(t, ops, "eval", `{"code":"","inputs":["a"]}`).Result)
	assert.Equal(t, "map[]", do(t, ops, "eval", `{"code":"","inputs":[]}`).Result)
}

func TestEvalBindsAnyNameAndSaysWhatItHides(t *testing.T) {
	cache, _ := openCache(t, 0)
	ops := newOps(t, &rlm.Options{Eval: &fakeEval{version: "1"}, Cache: cache})
	for name, note := range map[string]string{
		"print": "hides", "list": "hides", "reads": "hides", "result": "the answer unless", "a-b": `reads["a-b"]`, "1a": "not an identifier", "a.b": "not an identifier",
		"__name__": "", "plain": "",
	} {
		bind(t, ops, name, "x")
		for _, cached := range []bool{false, true} {
			out := do(t, ops, "eval", `{"code":"1","inputs":["`+name+`"]}`)
			assert.Equal(t, "1map["+name+":x]", out.Result)
			assert.Equal(t, cached, out.Cached)
			if note == "" {
				assert.Empty(t, out.Notes)
				continue
			}
			require.Len(t, out.Notes, 1, name)
			assert.Contains(t, out.Notes[0], note)
			assert.Contains(t, out.Notes[0], name)
		}
	}
	res, err := tool.NewSet(ops.Tools()...).Call(t.Context(), "context_op", json.RawMessage(`{"op":"eval","args":{"code":"1","inputs":["list"]}}`))
	require.NoError(t, err)
	assert.Contains(t, res.Text, "note: list is a binding, which hides")
}

func TestAWordOfPythonsOwnIsNoInput(t *testing.T) {
	ops := newOps(t, &rlm.Options{Eval: &fakeEval{version: "1"}})
	for _, name := range []string{"class", "None", "__builtins__"} {
		bind(t, ops, name, "x")
		_, err := ops.Do(t.Context(), "eval", json.RawMessage(`{"code":"1","inputs":["`+name+`"]}`))
		assert.Equal(t, tool.Invalid, tool.KindOf(err), name)
		assert.ErrorContains(t, err, name)
	}
	out := do(t, ops, "eval", `{"code":"1"}`)
	assert.Equal(t, "1map[context:]", out.Result, "of all bindings they are left out")
	assert.Len(t, out.Notes, 3)
	_, err := ops.Do(t.Context(), "eval", json.RawMessage(`{"code":"1","inputs":["nothere"]}`))
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	assert.ErrorContains(t, err, "nothere")
}

func large() string {
	return strings.Repeat("2026-11-21T12:00:00Z host app[123]: a line of some log with numbers 12345 and words, é\n", 100<<20/88)
}

func BenchmarkOperationsOn100MB(b *testing.B) {
	text := large()
	for _, c := range []struct{ name, op, args string }{
		{"slice", "slice", `{"start":1000,"end":-1000}`}, {"grep literal", "grep", `{"pattern":"host.*nothing"}`},
		{"grep class", "grep", `{"pattern":"[0-9]{7}"}`}, {"grep all", "grep", `{"pattern":"app"}`},
		{"count", "count", `{}`}, {"chars", "count", `{"mode":"chars"}`}, {"split", "split", `{}`}, {"chunk", "chunk", `{"n":10}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, err := rlm.Apply(context.Background(), c.op, json.RawMessage(c.args), bound("context", text))
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkACacheHit(b *testing.B) {
	cache, err := rlm.OpenCache(b.TempDir(), 0)
	require.NoError(b, err)
	ops, err := rlm.New(&rlm.Options{Cache: cache})
	require.NoError(b, err)
	_, err = ops.Bind("context", strings.Repeat("a line\n", 1<<20))
	require.NoError(b, err)
	for b.Loop() {
		_, err := ops.Do(context.Background(), "grep", json.RawMessage(`{"pattern":"nothing"}`))
		require.NoError(b, err)
	}
}

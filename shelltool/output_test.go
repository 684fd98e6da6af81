package shelltool_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

func (b *bench) readAll(id, stream string, limit int) string {
	b.t.Helper()
	var all strings.Builder
	var offset int64
	for {
		r, err := b.shell.ReadOutput(context.Background(), shelltool.ReadOutputParams{OutputID: id, Stream: stream, Offset: offset, Limit: limit})
		require.NoError(b.t, err)
		all.WriteString(r.Content)
		if offset = r.NextOffset; !r.Truncated {
			return all.String()
		}
	}
}

func TestWhatWasCutCanBeReadWhole(t *testing.T) {
	b := newBench(t)
	r, _ := b.script("seq 1 20000; echo short >&2")
	var want strings.Builder
	for i := range 20_000 {
		fmt.Fprintln(&want, i+1)
	}
	assert.Equal(t, want.String(), b.readAll(r.OutputID, "stdout", 0))
	assert.Equal(t, want.String(), b.readAll(r.OutputID, "stdout", 1000))
	assert.Equal(t, "short\n", b.readAll(r.OutputID, "stderr", 0), "the stream that fitted is there too")
	part, res := must[shelltool.ReadOutputResult](b, "read_output", fmt.Sprintf(`{"output_id":%q,"offset":2,"limit":4}`, r.OutputID))
	assert.Equal(t, "2\n3\n", part.Content)
	assert.Equal(t, int64(6), part.NextOffset)
	assert.Equal(t, int64(want.Len()), part.TotalBytes)
	assert.True(t, part.Truncated)
	assert.Contains(t, res.Text, "continue with offset 6")
}

func TestPagesDoNotSplitCharacters(t *testing.T) {
	b := newBench(t)
	r, _ := b.script(`printf 'é€%.0s' $(seq 10000)`)
	want := strings.Repeat("é€", 10_000)
	for _, limit := range []int{1, 3, 1000, 1001} {
		if limit > 10 {
			assert.Equal(t, want, b.readAll(r.OutputID, "stdout", limit))
		}
		part, err := b.shell.ReadOutput(context.Background(), shelltool.ReadOutputParams{OutputID: r.OutputID, Limit: limit})
		require.NoError(t, err)
		assert.NotEmpty(t, part.Content)
		assert.NotContains(t, part.Content, "\uFFFD")
	}
}

func TestTheFirstEightMiBAreKeptAndTheRestIsCounted(t *testing.T) {
	b := newBench(t)
	r, _ := b.script("head -c 9000000 /dev/zero | tr '\\0' a; echo end")
	assert.True(t, strings.HasSuffix(r.Stdout, "aend\n"))
	assert.Equal(t, int64(9_000_004-32<<10), r.StdoutDropped)
	part, err := b.shell.ReadOutput(context.Background(), shelltool.ReadOutputParams{OutputID: r.OutputID, Offset: 8<<20 - 3})
	require.NoError(t, err)
	assert.Equal(t, "aaa", part.Content)
	assert.False(t, part.Truncated)
	assert.Equal(t, int64(8<<20), part.KeptBytes)
	assert.Equal(t, int64(9_000_004), part.TotalBytes)
	assert.Contains(t, part.Notices[0], "8388608")
	part, err = b.shell.ReadOutput(context.Background(), shelltool.ReadOutputParams{OutputID: r.OutputID, Offset: 9_000_000})
	require.NoError(t, err)
	assert.Empty(t, part.Content)
	assert.False(t, part.Truncated)
}

func TestBadReadsOfOutputAreRefused(t *testing.T) {
	b := newBench(t)
	r, _ := b.script("seq 1 20000")
	for name, c := range map[string]struct {
		args string
		kind tool.Kind
	}{
		"unknown":         {`{"output_id":"nothere"}`, tool.NotFound},
		"path":            {`{"output_id":"../../etc/passwd"}`, tool.NotFound},
		"well formed":     {`{"output_id":"01h00000000000000000000000"}`, tool.NotFound},
		"missing":         {`{}`, tool.Invalid},
		"stream":          {`{"output_id":"` + r.OutputID + `","stream":"both"}`, tool.Invalid},
		"negative offset": {`{"output_id":"` + r.OutputID + `","offset":-1}`, tool.Invalid},
		"no limit":        {`{"output_id":"` + r.OutputID + `","limit":0}`, tool.Invalid},
	} {
		_, err := b.call("read_output", c.args)
		assert.Equal(t, c.kind, tool.KindOf(err), name)
	}
	_, res := must[shelltool.ReadOutputResult](b, "read_output", `{"output_id":"`+r.OutputID+`","limit":1000000000}`)
	assert.Contains(t, res.Text, "lowered to 32768")
}

func TestOnlyTheNewestOutputsAreKept(t *testing.T) {
	b := newBench(t, func(o *shelltool.Options) {
		o.Runner = func(context.Context) (sandbox.Runner, error) { return flood(33_000), nil }
	})
	var ids []string
	for range 66 {
		r, _ := b.execute(`{"commands":["flood"]}`)
		ids = append(ids, r.OutputID)
	}
	for i, id := range ids {
		_, err := b.shell.ReadOutput(context.Background(), shelltool.ReadOutputParams{OutputID: id})
		if i < 2 {
			assert.Equal(t, tool.NotFound, tool.KindOf(err))
		} else {
			assert.NoError(t, err)
		}
	}
	entries, err := os.ReadDir(b.output)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(entries), 3*64)
}

func TestTheOldestOutputsGoWhenTheirSizeIsTooMuch(t *testing.T) {
	b := newBench(t, func(o *shelltool.Options) {
		o.Runner = func(context.Context) (sandbox.Runner, error) { return flood(8 << 20), nil }
	})
	for range 36 {
		b.execute(`{"commands":["flood"]}`)
	}
	entries, err := os.ReadDir(b.output)
	require.NoError(t, err)
	var bytes int64
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		bytes += info.Size()
	}
	assert.LessOrEqual(t, bytes, int64(256<<20))
	assert.Greater(t, bytes, int64(240<<20))
}

func TestOutputsOutliveTheShell(t *testing.T) {
	b := newBench(t)
	r, _ := b.script("seq 1 20000")
	other := newBench(t, func(o *shelltool.Options) { o.Output = b.root(b.output) })
	part, err := other.shell.ReadOutput(context.Background(), shelltool.ReadOutputParams{OutputID: r.OutputID, Limit: 4})
	require.NoError(t, err)
	assert.Equal(t, "1\n2\n", part.Content)
}

func TestWithoutAPlaceForOutputTheResultIsCutAllTheSame(t *testing.T) {
	b := newBench(t, func(o *shelltool.Options) { o.Output = nil })
	r, _ := b.script("seq 1 100000")
	assert.Regexp(t, `99999\n100000\n$`, r.Stdout)
	assert.Greater(t, r.StdoutDropped, int64(500_000))
	assert.Empty(t, r.OutputID)
}

func TestAPlaceThatIsGoneCostsOnlyTheRest(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.RemoveAll(b.output))
	r, res := b.script("seq 1 100000")
	assert.Regexp(t, `99999\n100000\n$`, r.Stdout)
	assert.Empty(t, r.OutputID)
	assert.Contains(t, res.Text, "could not be stored")
}

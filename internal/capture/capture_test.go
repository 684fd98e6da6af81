package capture_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/capture"
	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/sandbox"
)

type buffer struct {
	bytes.Buffer
	closed int
}

func (b *buffer) Close() error { b.closed++; return nil }

func (b *buffer) open() (io.WriteCloser, error) { return b, nil }

// through sends data like a sandbox that respects the stream's Source.
func through(opts *capture.Options, data []byte, chunk int) capture.Kept {
	s, src := capture.NewStream(opts), opts.Source()
	forward := data[:min(int64(len(data)), src.Forward)]
	rest := data[len(forward):]
	for len(forward) > 0 {
		n := min(chunk, len(forward))
		_, _ = s.Write(forward[:n])
		forward = forward[n:]
	}
	return s.Finish(sandbox.Stream{Bytes: int64(len(data)), Tail: rest[max(0, len(rest)-src.Tail):]})
}

func TestExactlyWhatFitsIsUntouched(t *testing.T) {
	file := &buffer{}
	k := through(&capture.Options{Open: file.open}, bytes.Repeat([]byte("a"), capture.DefaultKeep), 1000)
	assert.Equal(t, strings.Repeat("a", capture.DefaultKeep), k.Text)
	assert.Zero(t, k.Dropped)
	assert.Zero(t, file.Len())
	assert.Zero(t, file.closed)
}

func TestOneByteMoreIsCutAndSpilledWhole(t *testing.T) {
	file := &buffer{}
	data := bytes.Repeat([]byte("a"), capture.DefaultKeep+1)
	k := through(&capture.Options{Open: file.open}, data, 1000)
	assert.Equal(t, int64(1), k.Dropped)
	assert.Contains(t, k.Text, "\n[... 1 bytes are missing here ...]\n")
	assert.Equal(t, data, file.Bytes())
	assert.Equal(t, 1, file.closed)
}

func TestHeadAndTailStayWithALineBetween(t *testing.T) {
	var seq bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintln(&seq, i+1)
	}
	k := through(nil, seq.Bytes(), 4096)
	assert.True(t, strings.HasPrefix(k.Text, "1\n2\n"))
	assert.True(t, strings.HasSuffix(k.Text, "99999\n100000\n"))
	assert.Equal(t, int64(seq.Len()-capture.DefaultKeep), k.Dropped)
	assert.Contains(t, k.Text, strconv.FormatInt(k.Dropped, 10))
}

func TestCharactersAreNeverSplit(t *testing.T) {
	for shift := range 8 {
		for _, unit := range []string{"é", "€", "😀"} {
			k := through(nil, []byte(strings.Repeat("x", shift)+strings.Repeat(unit, 40_000)), 777)
			assert.NotContains(t, k.Text, "\uFFFD")
			assert.True(t, utf8.ValidString(k.Text))
		}
	}
}

func TestBytesThatAreNoTextAreReplacedOneByOne(t *testing.T) {
	assert.Equal(t, "a\uFFFD\uFFFDb\x1b[1m\x00", capture.Text([]byte("a\xff\xfeb\x1b[1m\x00")))
	assert.Equal(t, "end\uFFFD", through(nil, []byte("end\xc3"), 1).Text)
}

func TestWhatTheSandboxDroppedCounts(t *testing.T) {
	file := &buffer{}
	opts := &capture.Options{Keep: 100, Spill: 1000, Open: file.open}
	data := make([]byte, 5000)
	for i := range data {
		data[i] = 'a' + byte(i%26)
	}
	k := through(opts, data, 64)
	assert.Equal(t, int64(5000), k.Total)
	assert.Equal(t, int64(4900), k.Dropped)
	assert.Equal(t, int64(1000), k.Spilled)
	assert.Equal(t, data[:1000], file.Bytes())
	assert.True(t, strings.HasSuffix(k.Text, string(data[4950:])))
	assert.True(t, strings.HasPrefix(k.Text, string(data[:50])))
}

func TestAFullDiskEndsTheSpillAndNothingElse(t *testing.T) {
	for name, open := range map[string]func() (io.WriteCloser, error){
		"open":  func() (io.WriteCloser, error) { return nil, errors.New("no space") },
		"write": func() (io.WriteCloser, error) { return &full{}, nil },
	} {
		k := through(&capture.Options{Keep: 10, Spill: 1000, Open: open}, bytes.Repeat([]byte("a"), 500), 7)
		assert.Equal(t, int64(490), k.Dropped, name)
		assert.LessOrEqual(t, k.Spilled, int64(20), name)
	}
}

type full struct{ n int }

func (f *full) Close() error { return nil }

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), 20-f.n)
	f.n += n
	if n < len(p) {
		return n, errors.New("no space")
	}
	return n, nil
}

func TestAStreamThatFitsCanBeSpilledToo(t *testing.T) {
	file := &buffer{}
	s := capture.NewStream(&capture.Options{Open: file.open})
	_, _ = s.Write([]byte("short"))
	s.SpillAll()
	assert.Equal(t, "short", s.Finish(sandbox.Stream{Bytes: 5}).Text)
	assert.Equal(t, "short", file.String())
}

func TestMemoryDoesNotGrowWithOutput(t *testing.T) {
	s := capture.NewStream(&capture.Options{Open: func() (io.WriteCloser, error) { return &full{n: -1 << 40}, nil }})
	block := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 4096 {
		_, _ = s.Write(block)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	assert.Equal(t, int64(4096*len(block)-capture.DefaultKeep), s.Finish(sandbox.Stream{}).Dropped)
}

func TestAnyCutGivesTheSameAsCuttingTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(rapid.StringMatching(`[a-zé€\n]{0,300}`).Draw(t, "data"))
		keep := rapid.IntRange(2, 120).Draw(t, "keep")
		spill := rapid.Int64Range(1, 400).Draw(t, "spill")
		file := &buffer{}
		opts := &capture.Options{Keep: keep, Spill: spill, Open: file.open}
		k := through(opts, data, rapid.IntRange(1, 50).Draw(t, "chunk"))
		want := through(&capture.Options{Keep: keep, Spill: 1 << 20, Open: (&buffer{}).open}, data, 1000)
		require.Equal(t, want.Text, k.Text)
		require.Equal(t, want.Dropped, k.Dropped)
		require.True(t, utf8.ValidString(k.Text))
		require.NotContains(t, k.Text, "\uFFFD")
		if len(data) > keep {
			require.Equal(t, string(data[:min(int64(len(data)), spill)]), file.String())
			return
		}
		require.Equal(t, string(data), k.Text)
	})
}

func TestRingKeepsTheNewestUnderTheirOffsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 40).Draw(t, "size")
		ring := capture.NewRing(capture.Memory(size), size, 0)
		var all []byte
		for _, chunk := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 60)).Draw(t, "chunks") {
			_, _ = ring.Write(chunk)
			all = append(all, chunk...)
		}
		offset := rapid.Int64Range(0, int64(len(all))+5).Draw(t, "offset")
		limit := rapid.IntRange(0, 70).Draw(t, "limit")
		data, from, err := ring.Read(offset, limit)
		require.NoError(t, err)
		start := max(0, int64(len(all))-size)
		require.Equal(t, min(max(offset, start), int64(len(all))), from)
		require.Equal(t, string(all[from:min(from+int64(limit), int64(len(all)))]), string(data))
	})
}

func FuzzTextIsValidAndLosesNoCharacter(f *testing.F) {
	f.Add([]byte("a\xffé"))
	f.Fuzz(func(t *testing.T, b []byte) {
		text := capture.Text(b)
		require.True(t, utf8.ValidString(text))
		require.Equal(t, utf8.RuneCount(b), utf8.RuneCountInString(text))
		n := capture.WholePrefix(b)
		require.LessOrEqual(t, n, len(b))
		require.Greater(t, n, len(b)-utf8.UTFMax, "at most one character is left out")
	})
}

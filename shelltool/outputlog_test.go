package shelltool

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/capture"
	_ "github.com/wisbox/wisbox/internal/properties"
)

// TestALogGivesWhatCameLast: for any writes, the log returns the kept bytes, each with its stream
// and in order, and as many lines as requested.
func TestALogGivesWhatCameLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 40).Draw(t, "size")
		l := newOutputLog(capture.Memory(size), size, 0)
		var all []byte
		var of []stream
		for range rapid.IntRange(0, 30).Draw(t, "writes") {
			s := stream(rapid.Bool().Draw(t, "stream"))
			text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\n")), 1, 9, -1).Draw(t, "text")
			l.write(s, []byte(text))
			all = append(all, text...)
			for range text {
				of = append(of, s)
			}
		}
		start := max(0, len(all)-int(size))
		at := rapid.Int64Range(0, int64(len(all))).Draw(t, "from")
		got := []byte{}
		for n := max(start, int(at)); n < len(all); {
			data, from, s, err := l.next(int64(n), 7)
			require.NoError(t, err)
			require.Equal(t, int64(n), from)
			require.NotEmpty(t, data)
			for i := range data {
				require.Equal(t, of[n+i], s, "byte %d", n+i)
			}
			got = append(got, data...)
			n += len(data)
		}
		assert.Equal(t, string(all[max(start, int(at)):]), string(got))

		lines := rapid.IntRange(0, 12).Draw(t, "lines")
		from, err := l.tail(lines)
		require.NoError(t, err)
		kept := strings.SplitAfter(string(all[start:]), "\n")
		if kept[len(kept)-1] == "" {
			kept = kept[:len(kept)-1]
		}
		assert.Equal(t, strings.Join(kept[max(0, len(kept)-lines):], ""), string(all[from:]))
	})
}

// TestTheOrderOfTheStreamsIsBounded: streams that alternate byte by byte.
func TestTheOrderOfTheStreamsIsBounded(t *testing.T) {
	const size = 1 << 20
	l := newOutputLog(capture.Memory(size), size, 0)
	for i := range 4 * maxMarks {
		l.write(stream(i%2 == 1), []byte{'x'})
		require.LessOrEqual(t, len(l.marks), maxMarks)
	}
	_, end := l.bounds()
	for at := end - maxMarks/2 + 1; at < end; at++ {
		_, _, s, err := l.next(at, 1)
		require.NoError(t, err)
		require.Equal(t, stream(at%2 == 1), s)
	}
}

func TestTheEndOfATerminalsInputEndsAnUnfinishedLineFirst(t *testing.T) {
	for _, c := range []struct {
		text     string
		terminal bool
		want     string
	}{
		{"text", true, "text\x04"}, {"text\n", true, "text\n"}, {"text\r", true, "text\r"}, {"text\x04", true, "text\x04"}, {"", true, ""},
		{"a\nb", true, "a\nb\x04"}, {"text", false, "text"},
	} {
		for _, first := range []string{"", c.text} {
			in := newInput(first, c.terminal)
			_, _ = in.add(c.text[len(first):], true)
			got, err := io.ReadAll(in)
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got), "%q after %q", c.text, first)
		}
	}
}

func TestALineThatATerminalCutsIsTold(t *testing.T) {
	for text, long := range map[string]bool{
		strings.Repeat("x", maxLine): false, strings.Repeat("x", maxLine+1): true, strings.Repeat(strings.Repeat("x", maxLine-1)+"\n", 3): false,
		strings.Repeat("x", maxLine+1) + "\n": true,
	} {
		in := newInput("", true)
		half := len(text) / 2
		_, _ = in.add(text[:half], false)
		_, _ = in.add(text[half:], false)
		assert.Equal(t, long, in.tooLong(), len(text))
		assert.False(t, in.tooLong(), "once")
	}
}

package evaltool

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reference renders with one regular expression over the whole text.
func reference(content string, values map[string]string) string {
	return regexp.MustCompile(`\{\{|\}\}|\{[a-z_](?:[^{}]|\{[^{}]*\})*\}`).ReplaceAllStringFunc(content, func(s string) string {
		if s == "{{" || s == "}}" {
			return s[:1]
		}
		return values[s[1:len(s)-1]]
	})
}

func TestTemplatesRenderAsTheReference(t *testing.T) {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"{{", "}}", "{a}", "{b_1}", "{_c}", "{a[0]}", "{a[x y]}", "{a!r}", "{a:>3}", "{a[0][k]!s:{b_1}.{a}}"}),
		rapid.StringOf(rapid.RuneFrom([]rune("ab{}.[]! é\n"))).Filter(func(s string) bool { return !strings.ContainsAny(s, "{}") }),
	)
	rapid.Check(t, func(t *rapid.T) {
		content := strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"), "")
		values := map[string]string{"a": rapid.String().Draw(t, "a"), "b_1": "{a}", "_c": "", "a[0]": "1", "a[x y]": "2", "a!r": "3", "a:>3": "4", "a[0][k]!s:{b_1}.{a}": "5"}
		parsed, err := parseTemplate(content)
		require.NoError(t, err)
		got, err := parsed.render(values, 1<<30)
		require.NoError(t, err)
		assert.Equal(t, reference(content, values), got)
	})
}

func FuzzTemplatesAreRefusedOrHavePlainNames(f *testing.F) {
	for _, seed := range []string{"", "{x}", "{{{x}}}", "{x.y}", "{", "}", "{}", "{x!r}", "{ x}", "{{}", "{x[0]:{y}}", "{x[}]}", "{x[0].y}", "{x:{y.z}}", "{x!r.y}", "{x:{y:{z}}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		parsed, err := parseTemplate(content)
		if err != nil {
			return
		}
		for _, field := range parsed.fields() {
			name := regexp.MustCompile(`^[^\[!:.{}\]]*`).FindString(field)
			require.True(t, isIdentifier(name), field)
			require.False(t, strings.HasPrefix(strings.TrimLeft(regexp.MustCompile(`\[[^\]]*\]`).ReplaceAllString(field[len(name):], ""), ""), "."), field)
		}
		_, err = parsed.render(nil, len(content))
		require.Equal(t, len(parsed.fields()) == 0, err == nil)
	})
}

func TestATextThatWouldBeTooLongIsNeverMade(t *testing.T) {
	parsed, err := parseTemplate(strings.Repeat("{a}", 16_000))
	require.NoError(t, err)
	values := map[string]string{"a": strings.Repeat("é", MaxWriteChars)}
	allocated := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			_, err := parsed.render(values, MaxWriteChars)
			require.ErrorIs(b, err, errTooLong)
		}
	}).AllocedBytesPerOp()
	assert.Less(t, allocated, int64(1<<20))
}

func TestStreamsKeepTheirHeadHoweverTheyArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"x", "é", "\U0001F600", "\xff"}).Draw(t, "unit")
		text := strings.Repeat(unit, rapid.IntRange(StreamChars-2, StreamChars+2).Draw(t, "count"))
		var s Stream
		for data := []byte(text); len(data) > 0; {
			n := rapid.IntRange(1, len(data)).Draw(t, "n")
			_, _ = s.Write(data[:n])
			data = data[n:]
		}
		assert.Equal(t, Clip(text, StreamChars), s.Text())
		assert.LessOrEqual(t, len([]rune(s.Text())), StreamChars)
	})
}

func TestANoteIsKeptWhole(t *testing.T) {
	for _, c := range []struct{ said, note, want string }{
		{"", "note", "note"},
		{"said", "note", "said\nnote"},
		{"said\n", "note", "said\nnote"},
		{"said\n", "", "said\n"},
		{strings.Repeat("x", 5000), "note", strings.Repeat("x", StreamChars-5-3) + "...\nnote"},
	} {
		var s Stream
		_, _ = s.Write([]byte(c.said))
		assert.Equal(t, c.want, s.TextWith(c.note))
	}
}

func FuzzJSONFaultNeverPanics(f *testing.F) {
	f.Add(`[{"a":"[\"["}]`)
	f.Fuzz(func(t *testing.T, text string) { _ = jsonFault(text) })
}

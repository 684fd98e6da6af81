package rlm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/rlm"
)

var texts = rapid.StringOf(rapid.OneOf(
	rapid.RuneFrom([]rune("ab1 \n\r\t\"\\,|é日😀\u2028\x00")), rapid.Rune(),
))

func apply(t *rapid.T, op string, args map[string]any, text string) string {
	raw, err := json.Marshal(args)
	require.NoError(t, err)
	got, err := rlm.Apply(context.Background(), op, raw, bound("context", text))
	require.NoError(t, err)
	return got
}

func list(t *rapid.T, text string) []string {
	var out []string
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}

func TestSliceIsASubstring(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := texts.Draw(t, "text")
		got := apply(t, "slice", map[string]any{"start": rapid.IntRange(-20, 20).Draw(t, "start"), "end": rapid.IntRange(-20, 20).Draw(t, "end")}, text)
		require.Contains(t, text, got)
	})
}

// TestSliceIsPythons compares with a slice of the list of code points, whose indices are resolved
// one rule at a time.
func TestSliceIsPythons(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := texts.Draw(t, "text")
		runes := []rune(text)
		start, end := rapid.IntRange(-20, 20).Draw(t, "start"), rapid.IntRange(-20, 20).Draw(t, "end")
		plain := func(i int) int {
			if i < 0 {
				i += len(runes)
			}
			return min(max(i, 0), len(runes))
		}
		want := ""
		if plain(start) < plain(end) {
			want = string(runes[plain(start):plain(end)])
		}
		require.Equal(t, want, apply(t, "slice", map[string]any{"start": start, "end": end}, text))
	})
}

func TestGrepKeepsExactlyTheLinesThatMatch(t *testing.T) {
	patterns := rapid.SampledFrom([]string{"a", "", "^a", "b$", `\s`, "[^a]", "(?i)A|é", `a.b`, `\d+`, "日?", `^$`, "a+b*", "(?s)a.", `\x00`, "(ab)+", "a{2}"})
	rapid.Check(t, func(t *rapid.T) {
		text, pattern := texts.Draw(t, "text"), patterns.Draw(t, "pattern")
		re := regexp.MustCompile(pattern)
		var want []string
		for line := range strings.SplitSeq(text, "\n") {
			if re.MatchString(line) {
				want = append(want, line)
			}
		}
		require.Equal(t, strings.Join(want, "\n"), apply(t, "grep", map[string]any{"pattern": pattern}, text))
	})
}

func TestCountIsNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := texts.Draw(t, "text")
		for _, mode := range []string{"lines", "chars"} {
			n, err := strconv.Atoi(apply(t, "count", map[string]any{"mode": mode}, text))
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, 0)
			require.LessOrEqual(t, n, utf8.RuneCountInString(text)+1)
		}
	})
}

func TestChunkKeepsAllLinesInAtMostNPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, n := texts.Draw(t, "text"), rapid.IntRange(1, 40).Draw(t, "n")
		pieces := list(t, apply(t, "chunk", map[string]any{"n": n}, text))
		require.LessOrEqual(t, len(pieces), n)
		require.NotEmpty(t, pieces)
		require.Equal(t, text, strings.Join(pieces, "\n"))
		for _, piece := range pieces[:len(pieces)-1] {
			require.Equal(t, strings.Count(pieces[0], "\n"), strings.Count(piece, "\n"))
		}
	})
}

func TestSplitThenJoinIsTheIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := texts.Draw(t, "text")
		delimiter := texts.Filter(func(s string) bool { return s != "" }).Draw(t, "delimiter")
		parts := list(t, apply(t, "split", map[string]any{"delimiter": delimiter}, text))
		require.Equal(t, text, strings.Join(parts, delimiter))
	})
}

func TestSplitThenConcatIsTheIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := texts.Draw(t, "text")
		parts := apply(t, "split", map[string]any{}, text)
		require.Equal(t, text, apply(t, "combine", map[string]any{"inputs": "context", "strategy": "concat"}, parts))
	})
}

func TestSumIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cents := rapid.SliceOf(rapid.Int64Range(-1_000_000, 1_000_000)).Draw(t, "cents")
		values, total := make([]string, len(cents)), new(big.Rat)
		for i, c := range cents {
			number := big.NewRat(c, 100)
			values[i] = number.FloatString(2)
			total.Add(total, number)
		}
		raw, err := json.Marshal(values)
		require.NoError(t, err)
		got, ok := new(big.Rat).SetString(apply(t, "combine", map[string]any{"inputs": "context", "strategy": "sum"}, string(raw)))
		require.True(t, ok)
		require.Zero(t, total.Cmp(got))
	})
}

func TestVoteIsOneOfTheMostFrequent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 1, 20).Draw(t, "values")
		raw, err := json.Marshal(values)
		require.NoError(t, err)
		got := apply(t, "combine", map[string]any{"inputs": "context", "strategy": "vote"}, string(raw))
		counts := map[string]int{}
		for _, v := range values {
			counts[v]++
		}
		for _, v := range values {
			require.LessOrEqual(t, counts[v], counts[got])
			if counts[v] == counts[got] {
				require.Equal(t, v, got, "ties go to the one seen first")
				break
			}
		}
	})
}

// TestOperationsArePure runs each operation twice over the same bindings.
func TestOperationsArePure(t *testing.T) {
	calls := map[string]string{
		"slice": `{"start":1,"end":-1}`, "grep": `{"pattern":"a"}`, "count": `{}`, "chunk": `{"n":3}`, "split": `{}`,
		"combine": `{"inputs":["context","other"],"strategy":"vote"}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		b := bound("context", texts.Draw(t, "text"), "other", texts.Draw(t, "other"))
		before := fmt.Sprint(b["context"], b["other"], len(b))
		for op, args := range calls {
			first, err1 := rlm.Apply(context.Background(), op, json.RawMessage(args), b)
			second, err2 := rlm.Apply(context.Background(), op, json.RawMessage(args), b)
			require.Equal(t, first, second, op)
			require.Equal(t, err1, err2, op)
		}
		require.Equal(t, before, fmt.Sprint(b["context"], b["other"], len(b)))
	})
}

func TestMovesSurviveTheRoundTrip(t *testing.T) {
	name := rapid.StringMatching(`[a-z_][a-z0-9_.-]{0,10}`)
	args := rapid.MapOf(rapid.StringMatching(`[a-z]{1,6}`), rapid.OneOf(rapid.Map(texts, func(s string) any { return s }), rapid.Map(rapid.Int(), func(i int) any { return i })))
	step := rapid.Custom(func(t *rapid.T) rlm.Step {
		return rlm.Step{Op: name.Draw(t, "op"), Args: args.Draw(t, "args"), Bind: name.Draw(t, "bind")}
	})
	rapid.Check(t, func(t *rapid.T) {
		move := rapid.OneOf(
			rapid.Map(step, func(s rlm.Step) rlm.Move { return rlm.Move{Mode: "explore", Step: s} }),
			rapid.Map(rapid.SliceOfN(step, 1, 4), func(s []rlm.Step) rlm.Move { return rlm.Move{Mode: "commit", Steps: s, Output: "out"} }),
			rapid.Map(texts, func(s string) rlm.Move { return rlm.Move{Mode: "final", Answer: s} }),
			rapid.Map(name, func(s string) rlm.Move { return rlm.Move{Mode: "final", Binding: s} }),
		).Draw(t, "move")
		message := rapid.SampledFrom([]string{"%s", "```json\n%s\n```", "I think { so.\n%s\nThat is it.", "  %s\n"}).Draw(t, "frame")
		got, err := rlm.ParseMove(fmt.Sprintf(message, rapid.SampledFrom([]func(rlm.Move) string{rlm.Move.String, nested}).Draw(t, "shape")(move)))
		require.NoError(t, err)
		require.Equal(t, move.String(), got.String())
	})
}

// nested returns a move in the other shape of the schema.
func nested(m rlm.Move) string {
	fields := map[string]any{"mode": m.Mode}
	switch m.Mode {
	case "explore":
		fields["operation"] = m.Step
	case "commit":
		fields["operations"], fields["output"] = m.Steps, m.Output
	default:
		return m.String()
	}
	raw, _ := json.Marshal(fields)
	return string(raw)
}

func TestBothShapesAreTheSameMove(t *testing.T) {
	for flat, other := range map[string]string{
		`{"mode":"explore","op":"grep","args":{"pattern":"x","end":null},"bind":"y"}`:                `{"mode":"explore","operation":{"op":"grep","args":{"pattern":"x","end":null},"bind":"y"}}`,
		`{"mode":"explore","op":"count"}`:                                                            `{"mode":"explore","operation":{"op":"count","args":null,"bind":null}}`,
		`{"mode":"commit","steps":[{"op":"count","args":{"mode":"chars"},"bind":"n"}],"output":"n"}`: `{"mode":"commit","operations":[{"op":"count","args":{"mode":"chars"},"bind":"n"}],"output":"n"}`,
	} {
		want, err := rlm.ParseMove(flat)
		require.NoError(t, err)
		for _, frame := range []string{"%s", "```json\n%s\n```", "```\n%s\n```", "So:\n%s\nDone."} {
			got, err := rlm.ParseMove(fmt.Sprintf(frame, other))
			require.NoError(t, err, other)
			require.Equal(t, want, got)
		}
	}
}

func TestGarbageIsNoMove(t *testing.T) {
	for _, message := range []string{
		"", "no", "{", "{}", "[]", `{"mode":"think"}`, `{"mode":"final"}`, `{"mode":"final","answer":"a","binding":"b"}`,
		`{"mode":"explore"}`, `{"mode":"explore","op":""}`, `{"mode":"explore","op":"count","output":"x"}`, `{"mode":"explore","op":"count","bind":"a b"}`,
		`{"mode":"commit","steps":[],"output":"x"}`, `{"mode":"commit","steps":[{"op":"count"}],"output":"x"}`,
		`{"mode":"commit","steps":[{"op":"count","bind":"x"}]}`, `{"mode":"final","answer":1}`, `{"mode":"final","answer":"x","more":1}`,
		`{"mode":"explore","operation":{"op":"count"},"op":"count"}`, `{"mode":"explore","operation":{"op":"count"},"bind":"x"}`, `{"mode":"explore","operation":{}}`,
		`{"mode":"explore","operation":{"op":"count","more":1}}`, `{"mode":"explore","operation":[{"op":"count"}]}`, `{"mode":"explore","operations":[{"op":"count"}]}`,
		`{"mode":"commit","operations":[{"op":"count","bind":"x"}],"steps":[{"op":"count","bind":"x"}],"output":"x"}`,
		`{"mode":"commit","operations":[{"op":"count","bind":"x"}]}`, `{"mode":"commit","operations":[],"output":"x"}`, `{"mode":"final","operation":{"op":"count"},"answer":"x"}`,
		strings.Repeat("{", 100_000), `{"mode":"final","answer":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		_, err := rlm.ParseMove(message)
		require.Error(t, err, "%.100s", message)
	}
}

func FuzzParseMoveTakesOnlyWhatItCanSayAgain(f *testing.F) {
	f.Add(`{"mode":"explore","op":"grep","args":{"pattern":"x","end":null},"bind":"y"}`)
	f.Add("```\n{\"mode\":\"final\",\"answer\":\"{}\"}\n```")
	f.Fuzz(func(t *testing.T, message string) {
		move, err := rlm.ParseMove(message)
		if err != nil {
			return
		}
		again, err := rlm.ParseMove(move.String())
		require.NoError(t, err)
		require.Equal(t, move.String(), again.String())
	})
}

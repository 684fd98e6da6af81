package rlm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/llm"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

// script answers with one message after the other, then repeats the last, and records the requests.
type script struct {
	says []string

	mu    sync.Mutex
	asked [][]llm.Message
}

func (s *script) Complete(_ context.Context, messages []llm.Message) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, append([]llm.Message{}, messages...))
	return s.says[min(len(s.asked), len(s.says))-1], nil
}

// reply returns the answer to the model's message number n, from 1.
func (s *script) reply(n int) string {
	messages := s.asked[n]
	return messages[len(messages)-1].Content
}

// answering is a model that computes its answer from the last message.
type answering func(last string) (string, error)

func (f answering) Complete(_ context.Context, messages []llm.Message) (string, error) {
	return f(messages[len(messages)-1].Content)
}

const (
	explore = `{"mode":"explore","op":"count","args":{"mode":"chars"},"bind":"n"}`
	final   = `{"mode":"final","answer":"42"}`
)

func commitOf(steps, output string) string {
	return fmt.Sprintf(`{"mode":"commit","steps":[%s],"output":%q}`, steps, output)
}

func TestARunExploresCommitsAndAnswers(t *testing.T) {
	m := &script{says: []string{
		"Let me look.\n```json\n" + `{"mode":"explore","op":"grep","args":{"pattern":"[0-9]","start":null}}` + "\n```",
		`{"mode":"explore","op":"grep","args":{"pattern":"[0-9]"}}`,
		commitOf(`{"op":"split","args":{"input":"step_2"},"bind":"parts"},{"op":"combine","args":{"inputs":"parts","strategy":"sum"},"bind":"total"}`, "total"),
		`{"mode":"explore","op":"count","args":{"input":"parts"}}`,
		`{"mode":"final","binding":"total"}`,
	}}
	var turns []rlm.Turn
	answer, err := rlm.Run(context.Background(), &rlm.RunOptions{
		Query: "the sum?", Context: "1\nx\n2\n", Model: m, OnTurn: func(turn rlm.Turn) { turns = append(turns, turn) },
	})
	require.NoError(t, err)
	assert.Equal(t, rlm.Answer{Text: "3", Turns: 5, Explored: 3, Commits: 1, Calls: 5}, answer)
	assert.Contains(t, m.asked[0][1].Content, "the sum?")
	assert.NotContains(t, m.asked[0][0].Content, "eval", "it is not there")
	assert.Contains(t, m.reply(2), "Bound to step_2, 3 characters:\n1\n2")
	assert.Contains(t, m.reply(3), "Bound to total, 1 characters:\n3")
	assert.Contains(t, m.reply(4), "not_found", "what a commit made on the way does not come back")
	require.Len(t, turns, 5)
	assert.Equal(t, "final", turns[4].Move.Mode)
}

func TestResultsAreShownCutAndBoundWhole(t *testing.T) {
	text := strings.Repeat("é", 9000)
	m := &script{says: []string{`{"mode":"explore","op":"slice","args":{},"bind":"all"}`, `{"mode":"final","binding":"all"}`}}
	answer, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Context: text, Model: m})
	require.NoError(t, err)
	assert.Equal(t, text, answer.Text)
	assert.Equal(t, 8000, strings.Count(m.reply(1), "é"))
	assert.Contains(t, m.reply(1), "9000 characters")
}

func TestThePromptNamesEvalWhereItIs(t *testing.T) {
	m := &script{says: []string{`{"mode":"explore","op":"eval","args":{"code":"1"},"bind":"e"}`, final}}
	_, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Model: m, Ops: rlm.Options{Eval: &fakeEval{failure: "ValueError: no"}}})
	require.NoError(t, err)
	assert.Contains(t, m.asked[0][0].Content, "- eval {code")
	assert.Contains(t, m.asked[0][0].Content, "prefer them if they suffice")
	assert.Contains(t, m.reply(1), "ValueError: no")
	assert.Contains(t, m.reply(1), "nothing was bound")
}

// countOf returns a commit whose output is the number of characters of a text.
func countOf(text string) string {
	return commitOf(fmt.Sprintf(`{"op":"slice","args":{"end":%d},"bind":"s"},{"op":"count","args":{"input":"s","mode":"chars"},"bind":"x"}`, len(text)), "x")
}

// TestLimitsEndARun: after the last explore step a run is committing, after the
// last commit it is done, with that commit's output.
func TestLimitsEndARun(t *testing.T) {
	failing := commitOf(`{"op":"count","args":{"input":"nothere"},"bind":"x"}`, "x")
	limits := rlm.Limits{Explore: 2, Commits: 3}
	for _, c := range []struct {
		name   string
		says   []string
		limits rlm.Limits
		want   rlm.Answer // without calls and turns, which are asked
		asked  int
	}{
		{"commits to the last", []string{explore, explore, countOf("a"), countOf("ab"), countOf("abc")}, limits, rlm.Answer{Text: "3", Explored: 2, Commits: 3, CutBy: "commits"}, 5},
		{"commits before it explored all", []string{countOf("a"), countOf("ab"), countOf("abc")}, limits, rlm.Answer{Text: "3", Commits: 3, CutBy: "commits"}, 3},
		{"the last commit fails", []string{countOf("a"), countOf("ab"), failing}, limits, rlm.Answer{Text: "2", Commits: 3, CutBy: "commits"}, 3},
		{"explores for ever", []string{countOf("abcd"), explore}, limits, rlm.Answer{Text: "4", Explored: 2, Commits: 1, CutBy: "commits"}, 5},
		{"answers at the last moment", []string{explore, explore, countOf("a"), countOf("a"), final}, limits, rlm.Answer{Text: "42", Explored: 2, Commits: 2}, 5},
		{"turns", []string{countOf("abcde"), explore}, rlm.Limits{Turns: 4}, rlm.Answer{Text: "5", Explored: 3, Commits: 1, CutBy: "turns"}, 4},
		{"calls", []string{countOf("abcde"), explore}, rlm.Limits{Calls: 4}, rlm.Answer{Text: "5", Explored: 3, Commits: 1, CutBy: "calls"}, 4},
		{"no commits at all", []string{explore, explore, final}, rlm.Limits{Explore: 2, Commits: -1}, rlm.Answer{Text: "42", Explored: 2}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &script{says: c.says}
			answer, err := rlm.Run(t.Context(), &rlm.RunOptions{Query: "q", Context: "some text", Model: m, Limits: c.limits})
			require.NoError(t, err)
			c.want.Turns, c.want.Calls = c.asked, c.asked
			assert.Equal(t, c.want, answer)
			assert.Len(t, m.asked, c.asked)
		})
	}
}

// TestALimitWithoutACommitIsAnError, because nothing could be the answer.
func TestALimitWithoutACommitIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		says   string
		limits rlm.Limits
		asked  int
		kind   tool.Kind
	}{
		"explores for ever":            {explore, rlm.Limits{}, 25, tool.Limit},
		"explores for ever, no commit": {explore, rlm.Limits{Explore: 2, Commits: -1}, 3, tool.Limit},
		"finals without a binding":     {`{"mode":"final","binding":"nothere"}`, rlm.Limits{}, 3, tool.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			m := &script{says: []string{c.says}}
			_, err := rlm.Run(t.Context(), &rlm.RunOptions{Query: "q", Model: m, Limits: c.limits})
			assert.Equal(t, c.kind, tool.KindOf(err))
			assert.Len(t, m.asked, c.asked)
		})
	}
}

func TestAModelIsToldThatItIsCommitting(t *testing.T) {
	m := &script{says: []string{explore, explore, countOf("a"), final}}
	_, err := rlm.Run(t.Context(), &rlm.RunOptions{Query: "q", Model: m, Limits: rlm.Limits{Explore: 1, Commits: 3}})
	require.NoError(t, err)
	assert.Contains(t, m.reply(1), "No explore steps are left: commit, or give the final answer. Left: 3 commits.")
	assert.Contains(t, m.reply(2), "no explore steps are left")
	assert.Contains(t, m.reply(3), "this is your last message")
}

func TestOperationsAreToldAsTheyEnd(t *testing.T) {
	cache, _ := openCache(t, 0)
	m := &script{says: []string{explore, explore, commitOf(`{"op":"rlm_call","args":{"query":"q"},"bind":"a"},{"op":"count","args":{"input":"nothere"},"bind":"b"}`, "b"), final}}
	var told []string
	_, err := rlm.Run(t.Context(), &rlm.RunOptions{
		Query: "q", Context: "abc", Model: m, Child: &script{says: []string{explore, final}}, Ops: rlm.Options{Cache: cache},
		OnOperation: func(o rlm.Operation) {
			told = append(told, fmt.Sprint(o.Depth, o.Turn, " ", o.Mode, " ", o.Step.Op, " ", o.Step.Bind, " ", o.Chars, o.Cached, o.Took > 0, o.Err != nil))
		},
	})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"0 1 explore count n 1 false true false", "0 2 explore count n 1 true true false",
		"1 1 explore count n 1 true true false", "0 3 commit rlm_call a 2 false true false", "0 3 commit count b 0 false true true",
	}, told)
}

func TestThreeBadMessagesInARowEndARun(t *testing.T) {
	m := &script{says: []string{"hm", "well", explore, "hm", "{}", "no"}}
	_, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Model: m})
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	assert.Len(t, m.asked, 6)
	assert.Contains(t, m.reply(1), "no JSON object")
}

func TestAFailedCommitBindsNothing(t *testing.T) {
	m := &script{says: []string{
		commitOf(`{"op":"count","args":{},"bind":"x"},{"op":"count","args":{"input":"nothere"},"bind":"y"}`, "x"),
		`{"mode":"final","binding":"x"}`, commitOf(`{"op":"count","args":{},"bind":"x"}`, "z"), final,
	}}
	_, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Model: m})
	require.NoError(t, err)
	assert.Contains(t, m.reply(1), "step 2")
	assert.Contains(t, m.reply(2), "not_found")
	assert.Contains(t, m.reply(3), "not_found")
}

// TestDepthIsBounded: the model below the first one has a conversation; the one below that is asked
// directly, with a shortened context.
func TestDepthIsBounded(t *testing.T) {
	long := strings.Repeat("é", 120_000)
	parent := &script{says: []string{commitOf(`{"op":"rlm_call","args":{"query":"inner"},"bind":"a"}`, "a"), `{"mode":"final","binding":"a"}`}}
	child := &script{says: []string{commitOf(`{"op":"rlm_call","args":{"query":"innermost"},"bind":"b"}`, "b"), "direct answer", `{"mode":"final","binding":"b"}`}}
	answer, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Context: long, Model: parent, Child: child})
	require.NoError(t, err)
	assert.Equal(t, "direct answer", answer.Text)
	assert.Equal(t, 5, answer.Calls)
	direct := child.asked[1]
	assert.Contains(t, direct[1].Content, "innermost")
	assert.Equal(t, 100_000, strings.Count(direct[1].Content, "é"))
}

func TestMapKeepsOrderAndRunsAFewAtOnce(t *testing.T) {
	var now, most atomic.Int64
	full := make(chan struct{})
	child := answering(func(last string) (string, error) {
		n := now.Add(1)
		defer now.Add(-1)
		if most.Store(max(most.Load(), n)); n == 4 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		<-full // nobody answers until four are running
		text, _, _ := strings.Cut(strings.TrimPrefix(last, "Text:\n"), "\n")
		return text + "!", nil
	})
	m := &script{says: []string{
		commitOf(`{"op":"split","args":{},"bind":"parts"},{"op":"map","args":{"query":"q","inputs":"parts"},"bind":"out"}`, "out"),
		`{"mode":"final","binding":"out"}`,
	}}
	answer, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Context: "a\nb\nc\nd\ne\nf", Model: m, Child: child, Limits: rlm.Limits{Depth: -1}})
	require.NoError(t, err)
	assert.Equal(t, `["a!","b!","c!","d!","e!","f!"]`, answer.Text)
	assert.EqualValues(t, 4, most.Load())
}

func TestAllModelsTogetherAreBounded(t *testing.T) {
	m := &script{says: []string{commitOf(`{"op":"rlm_call","args":{"query":"again"},"bind":"a"}`, "a")}}
	answer, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Model: m, Limits: rlm.Limits{Calls: 7, Depth: 3}})
	require.NoError(t, err)
	assert.Equal(t, "calls", answer.CutBy, "each conversation ends with what its last commit gave")
	assert.Len(t, m.asked, 7)
	m = &script{says: m.says}
	_, err = rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Model: m, Limits: rlm.Limits{Calls: 3, Depth: 3}})
	assert.Equal(t, tool.Limit, tool.KindOf(err), "nothing was asked directly: there is no output")
	assert.Len(t, m.asked, 3)
}

func TestAModelThatIsGoneEndsTheRun(t *testing.T) {
	gone := tool.Errorf(tool.Unavailable, "gone")
	m := &script{says: []string{commitOf(`{"op":"rlm_call","args":{"query":"x"},"bind":"a"}`, "a")}}
	_, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Model: m, Child: answering(func(string) (string, error) { return "", gone })})
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
}

// TestEveryRunEndsWithContextBound uses models with arbitrary messages.
func TestEveryRunEndsWithContextBound(t *testing.T) {
	moves := rapid.SliceOfN(rapid.SampledFrom([]string{
		"garbage", explore, commitOf(`{"op":"rlm_call","args":{"query":"q"},"bind":"a"}`, "a"),
		commitOf(`{"op":"map","args":{"query":"q","inputs":["context","context"]},"bind":"a"}`, "a"),
		`{"mode":"explore","op":"slice","args":{"end":1},"bind":"context"}`, `{"mode":"final","binding":"context"}`,
		`{"mode":"final","binding":"nothere"}`, `{"mode":"explore","op":"rlm_call","args":{"query":"q"}}`,
	}), 1, 12)
	rapid.Check(t, func(t *rapid.T) {
		says := moves.Draw(t, "moves")
		limits := rlm.Limits{Explore: 3, Commits: 2, Depth: rapid.SampledFrom([]int{-1, 1, 2}).Draw(t, "depth"), Turns: 8, Calls: 40}
		var calls atomic.Int64
		m := answering(func(string) (string, error) { return says[int(calls.Add(1)-1)%len(says)], nil })
		answer, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Context: "text", Model: m, Limits: limits, OnTurn: func(turn rlm.Turn) {
			if strings.Contains(turn.Reply, `no binding "context"`) {
				panic("context is not bound")
			}
			if turn.Depth > max(0, limits.Depth) || turn.Number > limits.Turns {
				panic("a limit does not hold")
			}
		}})
		require.LessOrEqual(t, calls.Load(), int64(limits.Calls))
		if err == nil {
			require.LessOrEqual(t, answer.Explored, 3)
			require.LessOrEqual(t, answer.Commits, 2)
			return
		}
		require.Contains(t, []tool.Kind{tool.Limit, tool.Invalid}, tool.KindOf(err))
	})
}

func TestARunNeedsAQuestionAndAModel(t *testing.T) {
	for _, opts := range []*rlm.RunOptions{{Query: "q"}, {Model: &script{}}} {
		_, err := rlm.Run(context.Background(), opts)
		assert.Equal(t, tool.Invalid, tool.KindOf(err))
	}
}

func TestTheToolsLoadOperateAndBind(t *testing.T) {
	set := tool.NewSet(newOps(t, nil).Tools()...)
	call := func(name, args string) (*tool.Result, error) {
		return set.Call(context.Background(), name, json.RawMessage(args))
	}
	res, err := call("context_load", `{"name":"t","text":"a\nb\n"}`)
	require.NoError(t, err)
	assert.Equal(t, 3, res.Value.(rlm.LoadResult).Lines)
	res, err = call("context_op", `{"op":"grep","args":{"input":"t","pattern":"a"},"bind":"u"}`)
	require.NoError(t, err)
	assert.Equal(t, rlm.OpResult{Result: "a", Bind: "u", Chars: 1}, res.Value)
	_, err = call("context_op", `{"op":"count","args":{"input":"u"}}`)
	require.NoError(t, err)
	for args, field := range map[string]string{
		`{"op":"chunk","args":{"input":"t","n":"2"}}`:        "args.n",
		`{"op":"count","args":{"input":"t"},"bind":"a b"}`:   "bind",
		`{"op":"sort","args":{}}`:                            "op",
		`{"op":"count","args":{"input":"t","mode":"words"}}`: "args.mode",
	} {
		_, err = call("context_op", args)
		assert.Equal(t, field, tool.AsError(err).Field, args)
	}
	for _, args := range []string{`{"name":"x"}`, `{"name":"x","text":"a","path":"b"}`, `{"name":"","text":""}`} {
		_, err = call("context_load", args)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), args)
	}
	_, err = call("context_load", `{"name":"x","path":"b"}`)
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
}

func TestARunOverHTTP(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		says := []string{explore, final}[n.Add(1)-1]
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": says}}}}))
	}))
	defer server.Close()
	e, err := llm.NewEndpoint(&llm.EndpointOptions{BaseURL: server.URL, Model: "m"})
	require.NoError(t, err)
	answer, err := rlm.Run(context.Background(), &rlm.RunOptions{Query: "q", Context: "c", Model: e})
	require.NoError(t, err)
	assert.Equal(t, "42", answer.Text)
}

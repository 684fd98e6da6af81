package mcptask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type whoKey struct{}

// as returns the context of a client's request.
func as(t *testing.T, who string) context.Context {
	return context.WithValue(t.Context(), whoKey{}, who)
}

// bench has tasks over tools that a test defines. Its clock is synctest's.
type bench struct {
	*Tasks
	t     *testing.T
	tools map[string]mcp.ToolHandler
}

func newBench(t *testing.T, opts Options) *bench {
	opts.Client = func(ctx context.Context) any { return ctx.Value(whoKey{}) }
	b := &bench{New(opts), t, map[string]mcp.ToolHandler{
		"quick": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("quick"), nil },
		"hour": func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			select {
			case <-time.After(time.Hour):
				return text("an hour later"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		"much": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-time.After(time.Minute)
			return text(strings.Repeat("x", 1000)), nil
		},
	}}
	t.Cleanup(func() { b.Close(context.Background()) })
	return b
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func capable() mcp.Meta {
	return mcp.Meta{
		mcp.MetaKeyProtocolVersion:    firstRevision,
		mcp.MetaKeyClientCapabilities: map[string]any{"extensions": map[string]any{Extension: map[string]any{}}},
	}
}

func (b *bench) callWith(ctx context.Context, tool string, meta mcp.Meta) (mcp.Result, error) {
	next := func(ctx context.Context, _ string, req mcp.Request) (mcp.Result, error) {
		call := req.(*mcp.CallToolRequest)
		res, err := b.tools[call.Params.Name](ctx, call)
		if err != nil {
			return nil, err
		}
		return res, nil
	}
	return b.Middleware(next)(ctx, "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: tool, Meta: meta}})
}

// begin makes a call that becomes a task.
func (b *bench) begin(who, tool string) string {
	b.t.Helper()
	res, err := b.callWith(as(b.t, who), tool, capable())
	require.NoError(b.t, err)
	require.IsType(b.t, &created{}, res)
	assert.Equal(b.t, "task", res.(*created).ResultType)
	return res.(*created).TaskID
}

func (b *bench) get(who, id string) (*detailed, error) {
	get := func(_ context.Context, k *task, _ *Params) (*detailed, error) { return k.detailed(), nil }
	return about(b.Tasks, get)(as(b.t, who), nil, &Params{ParamsBase: mcp.ParamsBase{Meta: capable()}, TaskID: id})
}

func (b *bench) mustGet(who, id string) *detailed {
	b.t.Helper()
	d, err := b.get(who, id)
	require.NoError(b.t, err)
	return d
}

func code(err error) int64 {
	if said, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return said.Code
	}
	return 0
}

func TestACallBecomesATaskWhenItHasTakenLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		res, err := b.callWith(as(t, "a"), "quick", capable())
		require.NoError(t, err)
		assert.IsType(t, &mcp.CallToolResult{}, res, "it ended before")

		start := time.Now()
		id := b.begin("a", "hour")
		assert.Equal(t, DefaultAfter, time.Since(start))
		d := b.mustGet("a", id)
		assert.Equal(t, working, d.Status)
		assert.Equal(t, (30 * time.Minute).Milliseconds(), d.TTL)
		assert.Nil(t, d.Result)

		pass(time.Hour)
		d = b.mustGet("a", id)
		assert.Equal(t, completed, d.Status)
		assert.Contains(t, string(d.Result), "an hour later")
		pass(30*time.Minute - 6*time.Second)
		b.mustGet("a", id)
		pass(6 * time.Second)
		_, err = b.get("a", id)
		assert.Equal(t, int64(jsonrpc.CodeInvalidParams), code(err))
		assert.ErrorContains(t, err, "kept for 30m0s")
		assert.Empty(t, b.clients, "nothing is left of a client without tasks")
	})
}

func TestOnlyClientsThatDeclareTasksGetThem(t *testing.T) {
	old := capable()
	old[mcp.MetaKeyProtocolVersion] = "2025-11-25"
	for name, meta := range map[string]mcp.Meta{
		"nothing": nil, "an older revision": old,
		"other capabilities": {mcp.MetaKeyProtocolVersion: firstRevision, mcp.MetaKeyClientCapabilities: map[string]any{"extensions": map[string]any{"x": 1}}},
		"garbage":            {mcp.MetaKeyProtocolVersion: firstRevision, mcp.MetaKeyClientCapabilities: []any{Extension}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, Options{})
				b.tools["needs"] = func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return nil, Begin(ctx)
				}
				res, err := b.callWith(as(t, "a"), "hour", meta)
				require.NoError(t, err)
				assert.IsType(t, &mcp.CallToolResult{}, res)
				_, err = b.callWith(as(t, "a"), "needs", meta)
				assert.Equal(t, int64(mcp.CodeMissingRequiredClientCapabilities), code(err))
				_, err = about(b.Tasks, func(context.Context, *task, *Params) (*detailed, error) { return nil, nil })(as(t, "a"), nil, &Params{ParamsBase: mcp.ParamsBase{Meta: meta}, TaskID: "x"})
				assert.Equal(t, int64(mcp.CodeMissingRequiredClientCapabilities), code(err))
			})
		})
	}
}

func TestATaskIsItsClientsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		id := b.begin("a", "hour")
		_, foreign := b.get("b", id)
		_, unknown := b.get("b", "x")
		assert.Equal(t, int64(jsonrpc.CodeInvalidParams), code(foreign))
		assert.Equal(t, unknown, foreign, "a foreign task looks like one that is not there")
		_, missing := b.get("a", "")
		assert.ErrorContains(t, missing, "taskId is missing")
		assert.Equal(t, working, b.mustGet("a", id).Status)
	})
}

func TestACancelledTaskHasEndedWhenItsCallHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		stopped := make(chan struct{})
		b.tools["slow to stop"] = func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			<-stopped
			res := text("what it had until then")
			res.IsError = true
			return res, nil
		}
		id := b.begin("a", "slow to stop")
		k, err := b.find(as(t, "a"), id)
		require.NoError(t, err)
		k.stop()
		synctest.Wait()
		d := b.mustGet("a", id)
		assert.Equal(t, working, d.Status)
		assert.Equal(t, "being cancelled", d.StatusMessage)
		k.stop() // again, which changes nothing
		close(stopped)
		synctest.Wait()
		d = b.mustGet("a", id)
		assert.Equal(t, cancelled, d.Status)
		assert.Nil(t, d.Result)
		k.stop()
		assert.Equal(t, cancelled, b.mustGet("a", id).Status)
	})
}

func TestATaskThatIsCancelledTooLateHasItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		id := b.begin("a", "much") // it ignores its context
		k, err := b.find(as(t, "a"), id)
		require.NoError(t, err)
		k.stop()
		pass(time.Minute)
		d := b.mustGet("a", id)
		assert.Equal(t, completed, d.Status)
		assert.Contains(t, string(d.Result), "xxx")
	})
}

// A client that goes takes its calls with it, and leaves its tasks.
func TestATaskGoesOnWithoutItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		ctx, cancel := context.WithCancel(as(t, "a"))
		res, err := b.callWith(ctx, "hour", capable())
		require.NoError(t, err)
		cancel()
		pass(time.Hour)
		assert.Equal(t, completed, b.mustGet("a", res.(*created).TaskID).Status)

		ctx, cancel = context.WithCancel(as(t, "a"))
		go func() {
			<-time.After(time.Second)
			cancel()
		}()
		_, err = b.callWith(ctx, "hour", capable())
		assert.ErrorIs(t, err, context.Canceled, "it was not a task yet")
	})
}

func TestErrorsOfTheProtocolFailATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		for name, err := range map[string]error{
			"as asked": &jsonrpc.Error{Code: -32000, Message: "as asked"}, "the call failed in the server": fmt.Errorf("open /root/secret"),
		} {
			b.tools["fail"] = func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				_ = Begin(ctx)
				return nil, err
			}
			id := b.begin("a", "fail")
			synctest.Wait()
			d := b.mustGet("a", id)
			assert.Equal(t, failed, d.Status)
			assert.Equal(t, name, d.Error.Message)
			assert.Nil(t, d.Result)
		}
	})
}

func TestMoreThanTheLimitsStayCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{MaxOpen: 2, MaxKept: 3, MaxBytes: 1800})
		one, two := b.begin("a", "much"), b.begin("a", "hour")
		res, err := b.callWith(as(t, "a"), "much", capable())
		require.NoError(t, err)
		assert.IsType(t, &mcp.CallToolResult{}, res, "two are open")
		b.begin("b", "hour") // of another client

		b.mustGet("a", one)
		three := b.begin("a", "much")
		pass(time.Minute)
		assert.Equal(t, completed, b.mustGet("a", three).Status, "one was fetched, and made room")
		_, err = b.get("a", one)
		assert.Error(t, err)

		four, five := b.begin("a", "much"), ""
		pass(time.Minute)
		five = b.begin("a", "much")
		pass(time.Minute)
		d := b.mustGet("a", five)
		assert.Equal(t, failed, d.Status, "nothing is forgotten that wasn't fetched")
		assert.Contains(t, d.Error.Message, "isn't kept")
		assert.Equal(t, completed, b.mustGet("a", four).Status)
		assert.Equal(t, working, b.mustGet("a", two).Status)
	})
}

// asking asks two questions, then another one with the same name.
func asking(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	_ = Begin(ctx)
	question := &mcp.ElicitParams{Message: "?", RequestedSchema: json.RawMessage(`{"type":"object"}`)}
	got := req.Params.InputResponses
	switch req.Params.RequestState {
	case "":
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"a": question, "b": question}, RequestState: "first"}, nil
	case "first":
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"a": question}, RequestState: got["a"].(*mcp.ElicitResult).Action + got["b"].(*mcp.ElicitResult).Action}, nil
	}
	return text(req.Params.RequestState + got["a"].(*mcp.ElicitResult).Action), nil
}

func TestATaskAsksItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.tools["ask"] = asking
		id := b.begin("a", "ask")
		k, err := b.find(as(t, "a"), id)
		require.NoError(t, err)
		synctest.Wait()
		d := b.mustGet("a", id)
		require.Equal(t, inputRequired, d.Status)
		assert.Len(t, d.InputRequests, 2)

		answer := func(key, action string) error {
			return k.answer(map[string]json.RawMessage{key: json.RawMessage(`{"action":"` + action + `"}`), "unknown": json.RawMessage(`{"x":1}`)})
		}
		err = k.answer(map[string]json.RawMessage{"a-1": json.RawMessage(`{"action":"accept"}`), "b-1": json.RawMessage(`7`)})
		assert.Equal(t, int64(jsonrpc.CodeInvalidParams), code(err))
		assert.Len(t, b.mustGet("a", id).InputRequests, 2, "a bad answer takes nothing")
		require.NoError(t, answer("a-1", "accept"))
		d = b.mustGet("a", id)
		assert.Equal(t, inputRequired, d.Status)
		assert.NotContains(t, d.InputRequests, "a-1")
		require.NoError(t, answer("a-1", "cancel"), "it is answered, and ignored")
		require.NoError(t, answer("b-1", "decline"))
		synctest.Wait()
		d = b.mustGet("a", id)
		require.Equal(t, inputRequired, d.Status)
		assert.Contains(t, d.InputRequests, "a-2", "a key is used once")
		require.NoError(t, answer("a-2", "cancel"))
		synctest.Wait()
		assert.Contains(t, string(b.mustGet("a", id).Result), "acceptdeclinecancel")
	})
}

func TestATaskThatNobodyAnswersEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.tools["ask"] = asking
		left, stopped := b.begin("a", "ask"), b.begin("a", "ask")
		synctest.Wait()
		k, err := b.find(as(t, "a"), stopped)
		require.NoError(t, err)
		k.stop()
		synctest.Wait()
		assert.Equal(t, cancelled, b.mustGet("a", stopped).Status)
		pass(30 * time.Minute)
		d := b.mustGet("a", left)
		assert.Equal(t, failed, d.Status)
		assert.Contains(t, d.StatusMessage, "none came within 30m0s")
		assert.Nil(t, d.InputRequests)
	})
}

func TestATaskSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.tools["tell"] = func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			Note(ctx, "early")
			assert.False(t, IsTask(ctx))
			<-Begun(ctx)
			assert.True(t, IsTask(ctx))
			<-time.After(time.Minute)
			Note(ctx, "late")
			<-time.After(time.Minute)
			return text(""), nil
		}
		id := b.begin("a", "tell")
		assert.Equal(t, "early", b.mustGet("a", id).StatusMessage)
		pass(time.Minute)
		assert.Equal(t, "late", b.mustGet("a", id).StatusMessage)
		pass(time.Minute)
		assert.Empty(t, b.mustGet("a", id).StatusMessage)
		Note(t.Context(), "of no call")
	})
}

func TestTheEndOfAClientEndsItsTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		gone, left := b.begin("a", "hour"), b.begin("b", "hour")
		b.End(t.Context(), "a")
		_, err := b.get("a", gone)
		assert.Error(t, err)
		assert.Equal(t, working, b.mustGet("b", left).Status)
		b.Close(t.Context())
		_, err = b.get("b", left)
		assert.Error(t, err)
		res, err := b.callWith(as(t, "b"), "hour", capable())
		require.NoError(t, err)
		assert.IsType(t, &mcp.CallToolResult{}, res, "none begins any more")

		stuck := newBench(t, Options{})
		release := make(chan struct{})
		stuck.tools["stuck"] = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-release
			return text(""), nil
		}
		stuck.begin("a", "stuck")
		k := stuck.clients["a"].only()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stuck.End(ctx, "a") // it doesn't wait any longer
		close(release)
		synctest.Wait()
		assert.True(t, k.hasEnded())
		assert.Nil(t, k.result, "nothing is kept for a client that has gone")
		assert.Nil(t, k.expiry)
		assert.Empty(t, k.of.tasks)
	})
}

func (c *client) only() *task {
	for _, k := range c.tasks {
		return k
	}
	return nil
}

// Nothing holds a forgotten task: neither its result nor its timer stays.
func TestAForgottenTaskHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{MaxKept: 1})
		one := b.begin("a", "much")
		pass(time.Minute)
		k := b.clients["a"].only()
		b.mustGet("a", one)
		res, err := b.callWith(as(t, "a"), "much", capable())
		require.NoError(t, err)
		assert.IsType(t, &mcp.CallToolResult{}, res, "one may not have reached its client yet")
		b.begin("a", "much")
		_, err = b.get("a", one)
		assert.Error(t, err)
		assert.Nil(t, k.result)
		assert.Nil(t, k.detailed())
		assert.False(t, k.expiry.Stop(), "its timer still runs")
	})
}

func TestATooLargeResultTakesNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{MaxBytes: 3000})
		b.tools["too much"] = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-time.After(time.Minute)
			return text(strings.Repeat("x", 3000)), nil
		}
		one := b.begin("a", "much")
		pass(time.Minute)
		b.mustGet("a", one)
		large := b.begin("a", "too much")
		pass(time.Minute)
		assert.Equal(t, failed, b.mustGet("a", large).Status)
		assert.Equal(t, completed, b.mustGet("a", one).Status)
	})
}

func TestAnAnswerToATaskThatIsBeingCancelledIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		id := b.begin("a", "much") // it ignores its context
		k, err := b.find(as(t, "a"), id)
		require.NoError(t, err)
		k.put(mcp.InputRequestMap{"a": &mcp.ElicitParams{Message: "?"}})
		k.stop()
		require.NoError(t, k.answer(map[string]json.RawMessage{"a-1": json.RawMessage(`{"action":"accept"}`)}))
		d := b.mustGet("a", id)
		assert.Equal(t, inputRequired, d.Status)
		assert.Equal(t, "being cancelled", d.StatusMessage)
	})
}

func TestAnAnswerThatComesTooLateIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{Keep: time.Second})
		id := b.begin("a", "much")
		k, err := b.find(as(t, "a"), id)
		require.NoError(t, err)
		_, err = k.ask(t.Context(), mcp.InputRequestMap{"a": &mcp.ElicitParams{Message: "?"}})
		assert.ErrorContains(t, err, "none came within 1s")
		require.NoError(t, k.answer(map[string]json.RawMessage{"a-1": json.RawMessage(`{"action":"accept"}`)}))
		assert.Equal(t, inputRequired, b.mustGet("a", id).Status)
		assert.Empty(t, b.mustGet("a", id).InputRequests)
	})
}

// A message that belongs to a call's request is sent before the answer that turns the call into a
// task, or not at all.
func TestACallBecomesNoTaskWhileItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.tools["send"] = func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			Send(ctx, func() { <-time.After(time.Minute) })
			<-Begun(ctx)
			Send(ctx, func() { t.Error("its request is answered") })
			return text(""), nil
		}
		start := time.Now()
		b.begin("a", "send")
		assert.Equal(t, time.Minute, time.Since(start))
		synctest.Wait()
		sent := false
		Send(t.Context(), func() { sent = true })
		assert.True(t, sent, "without a call")
	})
}

func TestOneRequestListensToSoManyTasks(t *testing.T) {
	b := newBench(t, Options{})
	_, err := b.Listen(as(t, "a"), 1, capable(), make([]string, maxListened))
	require.NoError(t, err)
	_, err = b.Listen(as(t, "a"), 1, capable(), make([]string, maxListened+1))
	assert.ErrorContains(t, err, "taskIds has 257 ids; name at most 256")
}

// pass advances the fake clock of a synctest bubble by d, and waits for the effects.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestWhatTasksHoldIsBounded for a client and for all: the arguments of calls that run, and results that nobody fetched.
func TestWhatTasksHoldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{MaxBytes: 4000, MaxAll: 8000})
		begin := func(who, tool string, args int) bool {
			next := func(ctx context.Context, _ string, req mcp.Request) (mcp.Result, error) {
				res, err := b.tools[tool](ctx, req.(*mcp.CallToolRequest))
				if err != nil {
					return nil, err
				}
				return res, nil
			}
			params := &mcp.CallToolParamsRaw{Name: tool, Meta: capable(), Arguments: json.RawMessage(strings.Repeat(" ", args))}
			res, err := b.Middleware(next)(as(t, who), "tools/call", &mcp.CallToolRequest{Params: params})
			require.NoError(t, err)
			_, isTask := res.(*created)
			return isTask
		}
		assert.True(t, begin("a", "much", 3000))
		assert.False(t, begin("a", "much", 1001), "a client has a maximum")
		pass(time.Minute)
		assert.True(t, begin("b", "much", 3000))
		assert.True(t, begin("c", "much", 2500))
		assert.False(t, begin("d", "much", 1500), "others need room too")
		assert.True(t, begin("d", "much", 500))
		pass(time.Minute)
		held := func() (bytes, clients int) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.held, len(b.clients)
		}
		bytes, _ := held()
		assert.Less(t, bytes, 8000)
		pass(time.Hour)
		bytes, clients := held()
		assert.Zero(t, bytes+clients, "all is given back")

		large := capable()
		large["x"] = strings.Repeat("x", 2*usualMeta)
		res, err := b.callWith(as(t, "a"), "much", large)
		require.NoError(t, err)
		assert.IsType(t, &mcp.CallToolResult{}, res, "a large _meta counts too")
	})
}

package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

func TestResultsAreStructuredAndReadable(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	r.call(1, "echo", `{"text":"a<b>&\u007f\u009b2J"}`)
	got := r.next()
	assert.False(t, got.Result.IsError)
	var value echoResult
	require.NoError(t, json.Unmarshal(got.Result.StructuredContent, &value))
	assert.Equal(t, "a<b>&\u007f\u009b2J", value.Text)
	assert.NotEmpty(t, got.Result.Content[0].Text)
	for _, b := range []byte(got.Line[:len(got.Line)-1]) {
		assert.False(t, b < ' ' || b == 0x7f)
	}
	r.end()
}

func TestErrorsOfToolsAreAnswers(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	for i, c := range []struct{ tool, args, kind, field, text string }{
		{"refuse", `{}`, "exists", "file_path", "exists: a is there already"},
		{"echo", `{"text":1}`, "invalid", "text", "a string"},
		{"echo", `{"text":"x","shell":1}`, "invalid", "shell", "unknown parameter"},
		{"echo", `{"text":"\ud800"}`, "invalid", "text", "surrogate"},
		{"echo", `{}`, "invalid", "text", "required"},
		{"echo", `null`, "invalid", "text", "required"},
		{"echo", `[]`, "invalid", "", "one JSON object"},
		{"echo", `"x"`, "invalid", "", "one JSON object"},
		{"break", `{}`, "internal", "", "internal: "},
		{"panic", `{}`, "internal", "", "internal: "},
	} {
		r.call(i, c.tool, c.args)
		got := r.next()
		assert.True(t, got.Result.IsError, c)
		assert.Nil(t, got.Result.StructuredContent)
		var e tool.Error
		require.NoError(t, json.Unmarshal(got.Result.Meta[ErrorMeta], &e), got.Line)
		assert.Equal(t, c.kind, string(e.Kind))
		assert.Equal(t, c.field, e.Field)
		assert.Equal(t, e.Error(), got.Result.Content[0].Text)
		assert.Contains(t, got.Result.Content[0].Text, c.text)
		assert.NotContains(t, got.Line, "secret")
	}
	r.end()
}

func TestFailedResultsKeepTheirStructure(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	r.call(1, "status", `{}`)
	got := r.next()
	assert.True(t, got.Result.IsError)
	assert.JSONEq(t, `{"status":"timed_out"}`, string(got.Result.StructuredContent))
	assert.NotContains(t, got.Result.Meta, ErrorMeta)
	r.end()
}

func TestBlobsAreContent(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	r.call(1, "plot", `{}`)
	content := r.next().Result.Content
	require.Len(t, content, 3)
	assert.Equal(t, []string{"image", "image/png", "UE5H"}, []string{content[1].Type, content[1].MimeType, content[1].Data})
	assert.Equal(t, "resource", content[2].Type)
	r.end()
}

func TestUnknownToolsAndMethodsAreProtocolErrors(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	r.call(1, "nope", `{}`)
	assert.Equal(t, -32602, r.next().Error.Code)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"nope/nope"}`)
	assert.Equal(t, -32601, r.next().Error.Code)
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call"}`)
	assert.NotNil(t, r.next().Error)
	r.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":7}}`)
	assert.NotNil(t, r.next().Error)
	r.end()
}

func TestCallsBeforeTheHandshakeAreRefused(t *testing.T) {
	r := startRaw(t, New(newFakes().set(), nil))
	r.call(1, "echo", `{"text":"x"}`)
	assert.NotNil(t, r.next().Error)
	r.end()
}

// Each of these lines would end the SDK's own connection, or get no answer.
func TestGarbageNeverEndsTheServer(t *testing.T) {
	s := New(newFakes().set(), nil)
	r := startReady(t, s)
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for _, c := range []struct {
		name, line, id string
		code           int
	}{
		{"no JSON", `garbage`, "null", -32700},
		{"half a message", `{"jsonrpc":"2.0","id":5,"method":"ping"`, "5", -32700},
		{"two on one line", `{"jsonrpc":"2.0","id":5,"method":"ping"}{"jsonrpc":"2.0","id":6,"method":"ping"}`, "", -32700},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\",\"x\":\"\xff\"}", "5", -32700},
		{"batch", `[{"jsonrpc":"2.0","id":5,"method":"ping"}]`, "null", -32600},
		{"empty batch", `[]`, "null", -32600},
		{"number", `7`, "null", -32600},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", -32600},
		{"fraction as id", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "1.5", -32600},
		{"huge id", `{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}`, "12345678901234567890", -32600},
		{"object as id", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "{}", -32600},
		{"no version", `{"id":5,"method":"ping"}`, "5", -32600},
		{"old version", `{"jsonrpc":"1.0","id":5,"method":"ping"}`, "5", -32600},
		{"number as method", `{"jsonrpc":"2.0","id":5,"method":9}`, "5", -32600},
		{"neither request nor response", `{"jsonrpc":"2.0"}`, "null", -32600},
		{"too deep", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":` + deep + `}}`, "5", -32600},
	} {
		r.send(c.line)
		got := r.next()
		require.NotNil(t, got.Error, c.name)
		assert.Equal(t, c.code, got.Error.Code, c.name)
		if c.id != "" {
			assert.Equal(t, c.id, got.ID, c.name)
		}
	}
	r.send("", "  ", `{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/unknown","params":[]}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`, "\r")
	r.call(7, "echo", `{"text":"still here"}`)
	got := r.next()
	assert.Equal(t, "7", got.ID, got.Line)
	assert.Contains(t, got.Line, "still here")
	r.end()
}

func TestOverlongLinesAreRefusedByTheirID(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	long := strings.Repeat("x", maxLine)
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + long + `"}}}`,
		`{"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + long + `"}},"jsonrpc":"2.0","id":41}`,
	} {
		go r.send(line)
		got := r.next()
		require.Nil(t, got.Error, "a model sees no errors of the protocol")
		assert.Equal(t, "41", got.ID)
		assert.Contains(t, got.Line, `"isError":true`)
		assert.Contains(t, got.Line, "too_large: the call is longer than 8 MiB")
	}
	go r.send(`{"id":40,"jsonrpc":"2.0","method":"ping","params":{"x":"` + long + `"}}`)
	got := r.next()
	require.NotNil(t, got.Error)
	assert.Equal(t, "40", got.ID)
	assert.Contains(t, got.Error.Message, "8 MiB")
	go r.call(42, "echo", `{"text":"`+long[:5<<20]+`"}`)
	got = r.next()
	assert.Contains(t, got.Line, "too_large", "more than the arguments may be, less than a line may be")
	r.end()
}

func TestRequestsWithTheSameIDDoNotMix(t *testing.T) {
	f := newFakes()
	r := startReady(t, New(f.set(), nil))
	r.call(1, "wait", `{}`)
	await(t, f.began)
	r.call(1, "echo", `{"text":"x"}`)
	assert.Equal(t, -32600, r.next().Error.Code)
	close(f.release)
	assert.Nil(t, r.next().Error)
	r.call(1, "echo", `{"text":"x"}`)
	assert.Nil(t, r.next().Error, "an id may be used again after its answer")
	r.end()
}

func TestASlowCallDelaysNoOther(t *testing.T) {
	f := newFakes()
	r := startReady(t, New(f.set(), nil))
	r.call(1, "wait", `{}`)
	await(t, f.began)
	for id := 2; id < 40; id++ {
		r.call(id, "echo", `{"text":"x"}`)
	}
	for id := 2; id < 40; id++ {
		assert.NotEqual(t, "1", r.next().ID)
	}
	close(f.release)
	assert.Equal(t, "1", r.next().ID)
	r.end()
}

func TestCancellationReachesTheCall(t *testing.T) {
	f := newFakes()
	r := startReady(t, New(f.set(), nil))
	r.call(1, "wait", `{}`)
	await(t, f.began)
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}`)
	require.Eventually(t, func() bool { return f.cancels.Load() == 1 }, soon, time.Millisecond)
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	assert.Equal(t, "2", r.next().ID, "a cancelled request gets no answer")
	for id := "1"; id == "1"; { // its ID is free again
		r.call(1, "echo", `{"text":"again"}`)
		got := r.next()
		if got.Error == nil {
			assert.Equal(t, "1", got.ID)
			break
		}
	}
	r.end()
}

func TestCancelledRequestsMakeRoomForOthers(t *testing.T) {
	f := newFakes()
	r := startReady(t, New(f.set(), nil))
	for id := range 3 * maxUnanswered {
		r.call(id+100, "wait", `{}`)
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id+100))
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	assert.Equal(t, "2", r.next().ID)
	r.end()
}

func TestCallsBeyondTheLimitWaitTheirTurn(t *testing.T) {
	f := newFakes()
	r := startReady(t, New(f.set(), &Options{MaxCalls: 3}))
	for id := range 20 {
		r.call(id, "wait", `{}`)
	}
	for range 3 {
		await(t, f.began)
	}
	close(f.release)
	for range 20 {
		assert.False(t, r.next().Result.IsError)
	}
	assert.EqualValues(t, 3, f.most.Load())
	r.end()
}

func TestProgressIsToldToWhoAsks(t *testing.T) {
	f := newFakes()
	r := startReady(t, New(f.set(), &Options{ProgressEvery: 5 * time.Millisecond}))
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tell","arguments":{},"_meta":{"progressToken":"p"}}}`)
	await(t, f.began)
	first, second := r.next(), r.next()
	assert.Equal(t, "notifications/progress", first.Method)
	assert.Equal(t, "p", first.Params.ProgressToken)
	assert.Equal(t, "half of it", first.Params.Message)
	assert.Greater(t, second.Params.Progress, first.Params.Progress)
	close(f.release)
	for got := r.next(); got.ID != "1"; got = r.next() {
		assert.Equal(t, "notifications/progress", got.Method)
	}
	r.call(2, "wait", `{}`)
	assert.Equal(t, "2", r.next().ID, "nothing comes after the answer, nor without a request")
	r.end()
}

func TestWhoAsksToPollWaitsForAMinuteAtMost(t *testing.T) {
	for _, c := range []struct {
		set  *tool.Set
		meta string
		want string
	}{
		{pollable("process_read"), `{"wisbox/poll":true}`, "50s"},
		{pollable("process_read"), `{"wisbox/poll":false}`, "0s"},
		{pollable("process_read"), `{"wisbox/poll":"yes"}`, "0s"},
		{pollable("process_read"), `{}`, "0s"},
		{pollable(), `{"wisbox/poll":true}`, "0s"}, // a profile without a tool for polling
	} {
		r := startReady(t, New(c.set, nil))
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"long","arguments":{},"_meta":` + c.meta + `}}`)
		assert.JSONEq(t, `{"status":"`+c.want+`"}`, string(r.next().Result.StructuredContent), c.meta)
		r.end()
	}
}

func TestACallKnowsWhichClientMakesIt(t *testing.T) {
	who := tool.NewSet(tool.New(tool.Spec{Name: "who"}, func(ctx context.Context, _ struct{}) (statusResult, error) {
		return statusResult{tool.Caller(ctx)}, nil
	}))
	r := startReady(t, New(who, nil))
	r.call(1, "who", `{}`)
	assert.JSONEq(t, `{"status":"t 1"}`, string(r.next().Result.StructuredContent))
	r.end()
}

func TestASessionOpensWithTheFirstCallAndClosesWithTheConnection(t *testing.T) {
	all := newSessions(newFakes().set())
	r := startReady(t, New(all.set, &Options{Open: all.open}))
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	assert.Contains(t, r.next().Line, `"echo"`)
	opened, _ := all.counts()
	assert.Zero(t, opened)
	for id := range 8 {
		r.call(id, "echo", `{"text":"x"}`)
	}
	for range 8 {
		assert.False(t, r.next().Result.IsError)
	}
	r.end()
	opened, closed := all.counts()
	assert.Equal(t, [2]int{1, 1}, [2]int{opened, closed})
}

// TestTheServerEndsWhenItsSessionIsClosed, no matter which goroutine sees the connection's end first.
func TestTheServerEndsWhenItsSessionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSessions(newFakes().set())
		all.hold = make(chan struct{})
		s, conn := New(all.set, &Options{Open: all.open}), new(mcp.ServerSession)
		s.bindings[conn] = s.newBinding("")
		_, err := s.bindings[conn].session(t.Context())
		require.NoError(t, err)
		released := make(chan struct{}, 2)
		for range cap(released) {
			go func() {
				s.release(conn)
				released <- struct{}{}
			}()
		}
		synctest.Wait()
		require.Empty(t, released, "the session is not closed yet")
		close(all.hold)
		synctest.Wait()
		require.Len(t, released, 2)
		opened, closed := all.counts()
		require.Equal(t, [2]int{1, 1}, [2]int{opened, closed})
	})
}

func TestFailedOpeningIsSaidAndTriedAgain(t *testing.T) {
	all := newSessions(newFakes().set())
	all.fail = tool.Errorf(tool.Unavailable, "no Podman; start it").Because(errors.New("dial unix /run/x"))
	r := startReady(t, New(all.set, &Options{Open: all.open}))
	r.call(1, "echo", `{"text":"x"}`)
	got := r.next()
	assert.Contains(t, got.Line, "unavailable: no Podman; start it")
	assert.NotContains(t, got.Line, "/run/x")
	all.mu.Lock()
	all.fail = nil
	all.mu.Unlock()
	r.call(2, "echo", `{"text":"x"}`)
	assert.False(t, r.next().Result.IsError)
	r.end()
}

func TestAnswersInFlightAreStillGivenAtTheEndOfInput(t *testing.T) {
	f := newFakes()
	r := startReady(t, New(f.set(), nil))
	r.call(1, "wait", `{}`)
	await(t, f.began)
	r.in.Close()
	close(f.release)
	assert.Equal(t, "1", r.next().ID)
	r.awaitEnd()
}

func TestTheEndOfInputEndsCallsThatGoOn(t *testing.T) {
	f := newFakes()
	all := newSessions(f.set())
	r := startReady(t, New(all.set, &Options{Open: all.open}))
	r.call(1, "wait", `{}`)
	await(t, f.began)
	start := time.Now()
	r.end()
	assert.Less(t, time.Since(start), 30*time.Second)
	assert.EqualValues(t, 1, f.cancels.Load())
	_, closed := all.counts()
	assert.Equal(t, 1, closed)
}

func TestTheEndOfTheContextEndsTheServerAtOnce(t *testing.T) {
	f := newFakes()
	all := newSessions(f.set())
	r := startReady(t, New(all.set, &Options{Open: all.open}))
	r.call(1, "wait", `{}`)
	await(t, f.began)
	r.cancel()
	await(t, all.over)
	r.awaitEnd()
	assert.EqualValues(t, 1, f.cancels.Load())
}

func TestAClientThatDoesNotReadIsNotServedForEver(t *testing.T) {
	f := newFakes()
	r := startReady(t, New(f.set(), nil))
	sent := make(chan int, 1)
	go func() { // the pipe fills up eventually, and the server stops reading
		n := 0
		for id := 1; id <= 20000; id++ {
			_, err := fmt.Fprintf(r.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x","times":100000}}}`+"\n", id)
			if err != nil {
				break
			}
			n++
		}
		sent <- n
	}()
	select {
	case <-sent:
		require.Fail(t, "the server took 20,000 calls of a client that reads nothing")
	case <-time.After(500 * time.Millisecond):
	}
	r.cancel()
	r.awaitEnd()
	r.out.Close()
	assert.Less(t, <-sent, 20000)
}

func TestBadArgumentsOpenNoSession(t *testing.T) {
	all := newSessions(newFakes().set())
	r := startReady(t, New(all.set, &Options{Open: all.open}))
	for _, args := range []string{`{}`, `{"text":7}`, `{"text":"x","nope":1}`, `{"text":"x","times":0}`, `[]`} {
		r.call(1, "echo", args)
		assert.Contains(t, r.next().Line, "invalid: ", args)
	}
	opened, _ := all.counts()
	assert.Zero(t, opened)
	r.call(2, "echo", `{"text":"x"}`)
	assert.Contains(t, r.next().Line, `"size":1`)
	opened, _ = all.counts()
	assert.Equal(t, 1, opened)
	r.end()
}

// TestWhatAConnectionKeepsIsBounded: a server keeps some of a message as long as a connection, a subscription or a task
// lasts.
func TestWhatAConnectionKeepsIsBounded(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	long := strings.Repeat("x", maxParams)
	for what, line := range map[string]string{
		"the first message": `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"a":{"b":"` + long + `"}}},"clientInfo":{"name":"t","version":"1"}}}`,
		"a notification":    `{"jsonrpc":"2.0","id":1,"method":"notifications/initialized","params":{"_meta":{"a":"` + long + `"}}}`,
		"a URI":             `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"wisbox://default/file/` + long + `"}}`,
		"a _meta":           `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},"_meta":{"a":"` + long + `"}}}`,
	} {
		r.send(line)
		answer := r.next()
		require.NotNil(t, answer.Error, what)
		assert.Contains(t, answer.Error.Message, "more than 65536 bytes", what)
	}
	r.send(`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID+1) + `","method":"ping"}`)
	assert.Contains(t, r.next().Error.Message, "at most 256 bytes")
	r.call(2, "echo", `{"text":"`+long+`"}`)
	assert.Nil(t, r.next().Error, "content has a limit of its own")
	r.end()
}

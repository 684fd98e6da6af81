package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/mcptask"
)

// takesTasks is the _meta of a client that declares the extension.
const takesTasks = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + newRevision + `",
	"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// atOnce makes each call that isn't finished at once a task.
const atOnce = time.Nanosecond

func TestAnEvaluationWithTheDefaultLimitsCanBecomeATask(t *testing.T) {
	assert.Less(t, mcptask.DefaultAfter, evaltool.DefaultMaxTimeout)
}

// taskState is the state of a task in answers and notifications.
type taskState struct {
	ResultType, TaskID, Status, StatusMessage string
	TTL                                       int64 `json:"ttlMs"`
	Result                                    struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Text string }
	}
	Notifications struct{ TaskIDs []string }
}

type taskReply struct {
	Method         string
	Result, Params taskState
	Error          struct {
		Code    int
		Message string
	}
}

func parse(t *testing.T, text string) (m taskReply) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimPrefix(line, "data: "); strings.HasPrefix(line, "{") {
			require.NoError(t, json.Unmarshal([]byte(line), &m), line)
		}
	}
	return m
}

// task sends a request about a task over HTTP.
func (w *web) task(token, method, params, name string) (int, taskReply) {
	w.t.Helper()
	res, body := w.do(w.taskRequest(token, method, params, name))
	return res.StatusCode, parse(w.t, body)
}

func (w *web) taskRequest(token, method, params, name string) *http.Request {
	r := w.request("POST", `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+`,`+strings.ReplaceAll(takesTasks, "\n\t", "")+`}}`)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Mcp-Protocol-Version", newRevision)
	r.Header.Set("Mcp-Method", method)
	r.Header.Set("Mcp-Name", name)
	return r
}

func (w *web) get(token, id string) taskReply {
	w.t.Helper()
	_, got := w.task(token, "tasks/get", `"taskId":"`+id+`"`, id)
	return got
}

// ended polls until a task has ended.
func (w *web) ended(token, id string) taskState {
	w.t.Helper()
	var got taskState
	require.Eventually(w.t, func() bool {
		got = w.get(token, id).Result
		return got.Status != "working"
	}, 3*soon, time.Millisecond)
	return got
}

// begin makes a call of wait that becomes a task, on its own connection.
func (w *web) begin(f *fakes, handle string) string {
	w.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	_, got := w.task(aToken, "tools/call", `"name":"wait","arguments":{"session":"`+handle+`"}`, "wait")
	require.Equal(w.t, "task", got.Result.ResultType)
	await(w.t, f.began)
	return got.Result.TaskID
}

func TestATaskOutlivesTheRequestAndTheConnection(t *testing.T) {
	f := newFakes()
	w := startWeb(t, New(f.set(), &Options{TaskAfter: atOnce}), nil)
	handle := w.openHandle(aToken)
	id := w.begin(f, handle)
	http.DefaultClient.CloseIdleConnections()
	got := w.get(aToken, id).Result
	assert.Equal(t, "working", got.Status)
	assert.Equal(t, "complete", got.ResultType)
	assert.Positive(t, got.TTL)
	close(f.release)
	got = w.ended(aToken, id)
	assert.Equal(t, "completed", got.Status)
	assert.JSONEq(t, `{}`, string(got.Result.StructuredContent))
	assert.Zero(t, f.cancels.Load())
}

func TestACancelledTaskStopsItsCall(t *testing.T) {
	f := newFakes()
	w := startWeb(t, New(f.set(), &Options{TaskAfter: atOnce}), nil)
	id := w.begin(f, w.openHandle(aToken))
	for range 2 { // the second may find it ended
		status, got := w.task(aToken, "tasks/cancel", `"taskId":"`+id+`"`, id)
		assert.Equal(t, 200, status)
		assert.Equal(t, "complete", got.Result.ResultType)
		assert.Empty(t, got.Result.TaskID)
	}
	assert.Equal(t, "cancelled", w.ended(aToken, id).Status)
	assert.EqualValues(t, 1, f.cancels.Load())
}

func TestATaskEndsWithItsSession(t *testing.T) {
	f := newFakes()
	w := startWeb(t, New(f.set(), &Options{TaskAfter: atOnce}), nil)
	handle := w.openHandle(aToken)
	id := w.begin(f, handle)
	require.NoError(t, w.h.own.end(handle, w.h.checks.Owner(aToken)))
	got := w.ended(aToken, id)
	assert.Equal(t, "completed", got.Status, "the protocol's failed is for errors of its own")
	assert.True(t, got.Result.IsError)
}

func TestGarbageAboutTasksHasClearAnswers(t *testing.T) {
	f := newFakes()
	w := startWeb(t, New(f.set(), &Options{TaskAfter: atOnce}), nil)
	id := w.begin(f, w.openHandle(aToken))
	for _, c := range []struct {
		name, method, params, header string
		code                         int
		message                      string
	}{
		{"an unknown id", "tasks/get", `"taskId":"nope"`, "nope", -32602, "task not found"},
		{"an unknown id to cancel", "tasks/cancel", `"taskId":"nope"`, "nope", -32602, "task not found"},
		{"an unknown id to update", "tasks/update", `"taskId":"nope","inputResponses":{}`, "nope", -32602, "task not found"},
		{"no id", "tasks/get", `"x":1`, "", -32602, "taskId is missing"},
		{"a number", "tasks/get", `"taskId":7`, "7", -32602, `they are {"taskId": string}`},
		{"responses that are a list", "tasks/update", `"taskId":"` + id + `","inputResponses":[]`, id, -32602, "inputResponses in the params"},
		{"another task in the header", "tasks/get", `"taskId":"` + id + `"`, "other", -32020, "Mcp-Name"},
		{"another spelling of the header's task", "tasks/get", `"taskId":"` + id + `","TASKID":"other"`, "other", -32020, "Mcp-Name"},
		{"none in the header", "tasks/cancel", `"taskId":"` + id + `"`, "", -32020, "Mcp-Name"},
		{"the older revision's result", "tasks/result", `"taskId":"` + id + `"`, id, -32601, ""},
		{"the older revision's list", "tasks/list", `"x":1`, "", -32601, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got := w.task(aToken, c.method, c.params, c.header)
			assert.Equal(t, c.code, got.Error.Code)
			assert.Contains(t, got.Error.Message, c.message)
		})
	}
	_, foreign := w.task(bToken, "tasks/get", `"taskId":"`+id+`"`, id)
	_, unknown := w.task(bToken, "tasks/get", `"taskId":"nope"`, "nope")
	assert.Equal(t, unknown.Error, foreign.Error, "another client's task looks like one that is not there")
	_, body := w.do(w.stateless("tasks/get", `"taskId":"`+id+`"`, id))
	assert.Equal(t, -32021, parse(t, body).Error.Code)
	close(f.release)
}

// events reads the messages of a stream of events.
type events struct {
	t     *testing.T
	lines *bufio.Scanner
}

func (e events) next() (m taskReply) {
	e.t.Helper()
	for e.lines.Scan() {
		if line, ok := strings.CutPrefix(e.lines.Text(), "data: "); ok {
			require.NoError(e.t, json.Unmarshal([]byte(line), &m))
			return m
		}
	}
	require.Fail(e.t, "the stream ended", "%v", e.lines.Err())
	return m
}

func TestOverHTTPWhoListensIsSentItsTasks(t *testing.T) {
	f := newFakes()
	w := startWeb(t, New(f.set(), &Options{TaskAfter: atOnce}), nil)
	id := w.begin(f, w.openHandle(aToken))
	listen := func(token string) events {
		res, err := http.DefaultClient.Do(w.taskRequest(token, listenMethod, `"notifications":{"taskIds":["`+id+`","nope"]}`, ""))
		require.NoError(t, err)
		t.Cleanup(func() { _ = res.Body.Close() })
		return events{t, bufio.NewScanner(res.Body)}
	}
	own, foreign := listen(aToken), listen(bToken)
	assert.Equal(t, []string{id}, own.next().Params.Notifications.TaskIDs)
	assert.Equal(t, "working", own.next().Params.Status)
	assert.Empty(t, foreign.next().Params.Notifications.TaskIDs)
	assert.Equal(t, "complete", foreign.next().Result.ResultType, "nothing is left to wait for")
	close(f.release)
	last := own.next()
	assert.Equal(t, "notifications/tasks", last.Method)
	assert.Equal(t, "completed", last.Params.Status)
	assert.JSONEq(t, `{}`, string(last.Params.Result.StructuredContent))
	assert.Equal(t, "complete", own.next().Result.ResultType)

	r := w.stateless(listenMethod, `"notifications":{"taskIds":["`+id+`"]}`, "")
	_, body := w.do(r)
	assert.Equal(t, -32021, parse(t, body).Error.Code)
}

// say sends a request about tasks over a pipe.
func (r *raw) say(id int, method, params string) {
	r.t.Helper()
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s,%s}}`, id, method, params, strings.ReplaceAll(takesTasks, "\n\t", "")))
}

func (r *raw) heard() taskReply { r.t.Helper(); return parse(r.t, r.next().Line) }

func TestTasksOnAPipeEndWithIt(t *testing.T) {
	f := newFakes()
	s := New(f.set(), &Options{TaskAfter: atOnce})
	r := startRaw(t, s)
	r.say(1, "tools/call", `"name":"wait","arguments":{}`)
	id := r.heard().Result.TaskID
	require.NotEmpty(t, id)
	await(t, f.began)
	r.say(2, "tasks/get", `"taskId":"`+id+`"`)
	assert.Equal(t, "working", r.heard().Result.Status)

	other := startRaw(t, s)
	other.say(1, "tasks/get", `"taskId":"`+id+`"`)
	assert.Equal(t, -32602, other.heard().Error.Code, "another pipe is another client")
	other.end()

	r.end()
	assert.EqualValues(t, 1, f.cancels.Load())
}

func TestOnAPipeWhoListensIsSentItsTasks(t *testing.T) {
	f := newFakes()
	r := startRaw(t, New(f.set(), &Options{TaskAfter: atOnce}))
	r.say(1, "tools/call", `"name":"wait","arguments":{}`)
	id := r.heard().Result.TaskID
	await(t, f.began)
	r.say(2, listenMethod, `"notifications":{"taskIds":["`+id+`"]}`)
	assert.Equal(t, []string{id}, r.heard().Params.Notifications.TaskIDs)
	assert.Equal(t, "working", r.heard().Params.Status)
	r.say(3, listenMethod, `"notifications":{"taskIds":["`+id+`"]}`)
	r.heard()
	r.heard()
	r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	close(f.release)
	seen := map[string]bool{}
	for !seen["2"] {
		line := r.next()
		seen[line.ID] = true
		if got := parse(t, line.Line); got.Method == "notifications/tasks" {
			assert.Equal(t, "completed", got.Params.Status)
		}
	}
	r.end()
}

func TestATaskSendsNothingBesideItself(t *testing.T) {
	f := newFakes()
	r := startRaw(t, New(f.set(), &Options{TaskAfter: atOnce, ProgressEvery: time.Millisecond}))
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tell","arguments":{},` +
		strings.Replace(strings.ReplaceAll(takesTasks, "\n\t", ""), `"_meta":{`, `"_meta":{"progressToken":"p","io.modelcontextprotocol/logLevel":"debug",`, 1) + `}}`)
	until := func(id string) taskReply {
		for {
			if line := r.next(); line.ID == id {
				return parse(t, line.Line)
			}
		}
	}
	id := until("1").Result.TaskID
	await(t, f.began)
	r.say(2, "tasks/get", `"taskId":"`+id+`"`)
	got := until("2")
	assert.Equal(t, "working", got.Result.Status)
	assert.Equal(t, "half of it", got.Result.StatusMessage)
	close(f.release)
	for n := 3; got.Result.Status == "working"; n++ {
		r.say(n, "tasks/get", `"taskId":"`+id+`"`)
		got = r.heard()
		assert.Empty(t, got.Method, "neither progress nor a line of log")
	}
	r.end()
}

// A task that begins between two checks isn't cancelled with its request.
func TestATaskThatHasJustBegunIsNotCancelled(t *testing.T) {
	f := newFakes()
	s := New(f.set(), nil)
	req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{}, Extra: &mcp.RequestExtra{Header: http.Header{requestHeader: {"of one that was answered"}}}}
	tasks := mcptask.New(mcptask.Options{Client: clientOf})
	t.Cleanup(func() { tasks.Close(context.Background()) })
	outcome := make(chan error, 2)
	call := tasks.Middleware(func(ctx context.Context, _ string, _ mcp.Request) (mcp.Result, error) {
		err := mcptask.Begin(ctx)
		ctx, stop := s.untilRequestEnds(&justBegun{Context: ctx}, req)
		defer stop()
		outcome <- err
		outcome <- ctx.Err()
		return &mcp.CallToolResult{}, nil
	})
	meta := mcp.Meta{}
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(takesTasks, `"_meta":`)), &meta))
	_, err := call(t.Context(), "tools/call", &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: meta}})
	require.NoError(t, err)
	require.NoError(t, <-outcome)
	assert.NoError(t, <-outcome)

	ctx, stop := s.untilRequestEnds(t.Context(), req)
	defer stop()
	assert.Error(t, ctx.Err(), "a call without a task is")
}

// justBegun is the context of a task that isn't one yet at the first check.
type justBegun struct {
	context.Context
	looked bool
}

func (c *justBegun) Value(key any) any {
	if fmt.Sprintf("%T", key) == "mcptask.callKey" && !c.looked {
		c.looked = true
		return nil
	}
	return c.Context.Value(key)
}

func TestOnAPipeFewResultsOfTasksAreMadeAtOnce(t *testing.T) {
	in, _ := io.Pipe()
	c := newConn(in, io.Discard, 0)
	t.Cleanup(func() { c.Close() })
	for id := range 8 {
		assert.Less(t, c.bytes, maxUnansweredB)
		_, refused := c.accept(line{text: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tasks/get","params":{"taskId":"x"}}`, id)})
		require.Nil(t, refused)
	}
	assert.GreaterOrEqual(t, c.bytes, maxUnansweredB, "no more is read now")

	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), connKey{}, c))
	cancel()
	answers := 0
	get := whenTaken(func(context.Context, string, mcp.Request) (mcp.Result, error) {
		answers++
		return nil, nil
	})
	_, err := get(ctx, "tasks/get", nil)
	require.NoError(t, err)
	c.out.add(maxUnwritten)
	_, err = get(ctx, "tasks/get", nil)
	assert.ErrorIs(t, err, context.Canceled, "the client has yet to take what it was sent")
	assert.Equal(t, 1, answers)
}

func TestOverHTTPFewResultsOfTasksAreMadeAtOnce(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), nil)
	owner := w.h.checks.Owner(aToken)
	full := make(turns, 1)
	full <- struct{}{}
	w.h.turns.all = map[turnsKey]*usedTurns{{owner, false}: {turns: full, users: 1}}
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(w.taskRequest(aToken, "tasks/get", `"taskId":"nope"`, "nope").WithContext(ctx))
		if err == nil {
			err = res.Body.Close()
		}
		answered <- err
	}()
	status, got := w.task(bToken, "tasks/get", `"taskId":"nope"`, "nope")
	assert.Equal(t, 400, status)
	assert.Equal(t, -32602, got.Error.Code, "another owner has turns of its own")
	cancel()
	assert.ErrorIs(t, <-answered, context.Canceled)
	<-full
	assert.Equal(t, -32602, w.get(aToken, "nope").Error.Code)
	leave, err := full.take(t.Context()) // take it and give it back
	require.NoError(t, err)
	leave()
}

// TestTurnsAreForgotten with their last message: a server has as many owners as there ever were sandboxes.
func TestTurnsAreForgotten(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), nil)
	for _, token := range []string{aToken, bToken} {
		status, _ := w.task(token, "tasks/get", `"taskId":"nope"`, "nope")
		assert.Equal(t, 400, status)
	}
	assert.Eventually(t, func() bool {
		w.h.turns.mu.Lock()
		defer w.h.turns.mu.Unlock()
		return len(w.h.turns.all) == 0
	}, 30*time.Second, time.Millisecond)
}

func TestOurOwnNameOfListeningIsNoMethod(t *testing.T) {
	r := startRaw(t, New(newFakes().set(), nil))
	r.send(`{"jsonrpc":"2.0","id":1,"method":"` + ownListen + `"}`)
	assert.Equal(t, -32601, r.next().Error.Code)
	r.say(2, ownListen, `"id":7,"notifications":{"taskIds":["x"]}`)
	assert.Equal(t, -32601, r.next().Error.Code)
	r.send(`{"jsonrpc":"2.0","method":"` + ownListen + `"}`)
	r.say(3, "tasks/get", `"taskId":"x"`)
	assert.Equal(t, "3", r.next().ID, "a notification is of no method either")
	r.end()
}

func TestWhatListensForTasksIsChecked(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), nil)
	listen := func(spoil func(*http.Request)) (status int, kind, body string) {
		r := w.taskRequest(aToken, listenMethod, `"notifications":{"taskIds":["nope"]}`, "")
		spoil(r)
		res, body := w.do(r)
		return res.StatusCode, res.Header.Get("Content-Type"), body
	}
	status, kind, _ := listen(func(*http.Request) {})
	assert.Equal(t, 200, status)
	assert.Equal(t, "text/event-stream", kind)
	for name, spoil := range map[string]func(*http.Request){
		"no stream":         func(r *http.Request) { r.Header.Set("Accept", "application/json") },
		"another revision":  func(r *http.Request) { r.Header.Set("Mcp-Protocol-Version", "2099-01-01") },
		"an older revision": func(r *http.Request) { r.Header.Set("Mcp-Protocol-Version", "2025-11-25") },
		"another in _meta":  func(r *http.Request) { rewrite(r, newRevision, "2099-01-01") },
		"a later one": func(r *http.Request) {
			r.Header.Set("Mcp-Protocol-Version", "2099-01-01")
			rewrite(r, newRevision, "2099-01-01")
		},
		"another method":     func(r *http.Request) { r.Header.Set("Mcp-Method", "tools/call") },
		"too many to listen": func(r *http.Request) { rewrite(r, `"nope"`, strings.Repeat(`"nope",`, 256)+`"nope"`) },
	} {
		t.Run(name, func(t *testing.T) {
			status, kind, body := listen(spoil)
			assert.Equal(t, 400, status, body)
			assert.NotEqual(t, "text/event-stream", kind)
		})
	}
	_, kind, body := listen(func(r *http.Request) { rewrite(r, `"id":7,`, "") })
	assert.NotEqual(t, "text/event-stream", kind, "a notification has no answer")
	assert.NotContains(t, body, "acknowledged")
}

// rewrite changes the body of a request.
func rewrite(r *http.Request, from, to string) {
	body, _ := io.ReadAll(r.Body)
	text := strings.Replace(string(body), from, to, 1)
	r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader(text)), int64(len(text)), nil
}

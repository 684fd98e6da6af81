package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/tool"
)

const (
	aToken = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	bToken = "BBBBBBBBBBBBBBBBBBBBBBBBBB"
)

// web is a server over HTTP for one test.
type web struct {
	*httptest.Server
	t *testing.T
	h *HTTPHandler
}

func startWeb(t *testing.T, s *Server, opts *HTTPOptions) *web {
	t.Helper()
	if opts == nil {
		opts = &HTTPOptions{}
	}
	opts.Tokens = []string{aToken, bToken}
	h, err := s.Handler(opts)
	require.NoError(t, err)
	w := &web{Server: httptest.NewServer(h), t: t, h: h}
	t.Cleanup(func() {
		h.Close()
		w.CloseClientConnections()
		w.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return w
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// request returns a valid request, for a test to modify.
func (w *web) request(method, body string) *http.Request {
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.URL, strings.NewReader(body))
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+aToken)
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	return r
}

func (w *web) do(r *http.Request) (*http.Response, string) {
	w.t.Helper()
	res, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return res, string(body)
}

type withToken struct {
	token string
	next  http.RoundTripper
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	return w.next.RoundTrip(r)
}

// connect returns a client of the SDK.
func (w *web) connect(token string) *mcp.ClientSession { return w.connectAt(token, "2025-11-25") }

func (w *web) connectAt(token, revision string) *mcp.ClientSession {
	w.t.Helper()
	conn, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(w.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: w.URL, HTTPClient: &http.Client{Transport: withToken{token, http.DefaultTransport}}, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestHostileRequestsAreRefused(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), &HTTPOptions{Options: httpguard.Options{Origins: []string{"https://good.example"}, Hosts: []string{"Box.example"}}})
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for _, c := range []struct {
		name   string
		spoil  func(*http.Request)
		status int
	}{
		{"as it should be", func(*http.Request) {}, 200},
		{"no token", func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		{"wrong token", header("Authorization", "Bearer "+aToken+"A"), 401},
		{"token of another scheme", header("Authorization", "Basic "+aToken), 401},
		{"token in the query", func(r *http.Request) {
			r.Header.Del("Authorization")
			r.URL.RawQuery = "token=" + aToken + "&access_token=" + aToken
		}, 401},
		{"rebound name", host("evil.example"), 403},
		{"rebound name that looks like ours", host("localhost.evil.example:80"), 403},
		{"address of the network", host("192.168.0.1:80"), 403},
		{"localhost", host("LOCALHOST:1"), 200},
		{"loopback of IPv6", host("[::1]:1"), 200},
		{"a listed name", host("box.example"), 200},
		{"a page's origin", header("Origin", "https://evil.example"), 403},
		{"an opaque origin", header("Origin", "null"), 403},
		{"a page on this machine", header("Origin", "http://localhost:3000"), 403},
		{"a listed origin", header("Origin", "https://good.example"), 200},
		{"a request across sites", header("Sec-Fetch-Site", "cross-site"), 403},
		{"a form", header("Content-Type", "text/plain"), 415},
		{"no content type", func(r *http.Request) { r.Header.Del("Content-Type") }, 415},
		{"form data", header("Content-Type", "application/x-www-form-urlencoded"), 415},
		{"a large body", func(r *http.Request) {
			r.Body = io.NopCloser(bytes.NewReader(make([]byte, maxBody+1)))
			r.ContentLength = -1
		}, 413},
		{"no JSON", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("x")); r.ContentLength = 1 }, 400},
		{"an unknown session", header("Mcp-Session-Id", "nope"), 404},
		{"a revision nobody knows", header("Mcp-Protocol-Version", "1999-01-01"), 400},
	} {
		r := w.request("POST", hello)
		c.spoil(r)
		res, body := w.do(r)
		assert.Equal(t, c.status, res.StatusCode, "%s: %s", c.name, body)
		for name := range res.Header {
			assert.NotContains(t, name, "Access-Control", c.name)
		}
		if res.StatusCode == http.StatusUnauthorized {
			assert.Equal(t, "Bearer", res.Header.Get("Www-Authenticate"))
		}
	}
	for _, method := range []string{"OPTIONS", "PUT", "PATCH", "TRACE"} {
		res, _ := w.do(w.request(method, ""))
		assert.GreaterOrEqual(t, res.StatusCode, 400, method)
	}
}

func TestASessionOverHTTPBelongsToItsToken(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), nil)
	res, _ := w.do(w.request("POST", hello))
	id := res.Header.Get("Mcp-Session-Id")
	require.NotEmpty(t, id)
	for _, method := range []string{"POST", "DELETE", "GET"} {
		r := w.request(method, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		r.Header.Set("Mcp-Session-Id", id)
		r.Header.Set("Authorization", "Bearer "+bToken)
		res, _ := w.do(r)
		assert.Equal(t, 403, res.StatusCode, method)
	}
}

// TestASessionBelongsToWhomTheServersOwnerSays: if a handler in front has authorized a request, it names the client,
// also for Open.
func TestASessionBelongsToWhomTheServersOwnerSays(t *testing.T) {
	all, opened := newSessions(newFakes().set()), make(chan string, 1)
	s := New(all.set, &Options{Open: func(ctx context.Context) (Session, error) {
		opened <- Owner(ctx)
		return all.open(ctx)
	}})
	w := startWeb(t, s, &HTTPOptions{Owner: func(r *http.Request) string { return r.Header.Get("X-Client") }})
	send := func(client, id, body string) (*http.Response, string) {
		r := w.request("POST", body)
		r.Header.Set("X-Client", client)
		r.Header.Set("Authorization", "Bearer of something else")
		if id != "" {
			r.Header.Set("Mcp-Session-Id", id)
		}
		return w.do(r)
	}
	res, _ := send("", "", hello)
	assert.Equal(t, 401, res.StatusCode)
	res, _ = send("one", "", hello)
	id := res.Header.Get("Mcp-Session-Id")
	require.NotEmpty(t, id)
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`
	res, _ = send("two", id, call)
	assert.Equal(t, 403, res.StatusCode)
	res, answer := send("one", id, call)
	assert.Equal(t, 200, res.StatusCode)
	assert.Contains(t, answer, "hi")
	assert.Equal(t, "one", <-opened)
}

func TestASessionOverHTTPClosesWithItsConnection(t *testing.T) {
	f := newFakes()
	all := newSessions(f.set())
	w := startWeb(t, New(all.set, &Options{Open: all.open}), nil)
	one, two := w.connect(aToken), w.connect(aToken)
	for _, c := range []*mcp.ClientSession{one, two, one} {
		res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hi"}})
		require.NoError(t, err)
		assert.False(t, res.IsError)
	}
	opened, closed := all.counts()
	assert.Equal(t, [2]int{2, 0}, [2]int{opened, closed})
	require.NoError(t, one.Close())
	await(t, all.over)
	_, err := two.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hi"}})
	require.NoError(t, err)
	require.NoError(t, two.Close())
	await(t, all.over)
}

func TestDeletingASessionEndsItsCalls(t *testing.T) {
	f := newFakes()
	all := newSessions(f.set())
	w := startWeb(t, New(all.set, &Options{Open: all.open}), nil)
	res, _ := w.do(w.request("POST", hello))
	id := res.Header.Get("Mcp-Session-Id")
	calling := make(chan struct{})
	go func() {
		r := w.request("POST", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
		r.Header.Set("Mcp-Session-Id", id)
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			res.Body.Close()
		}
		close(calling)
	}()
	await(t, f.began)
	r := w.request("DELETE", "")
	r.Header.Set("Mcp-Session-Id", id)
	res, _ = w.do(r)
	assert.Equal(t, 204, res.StatusCode)
	await(t, all.over)
	await(t, calling)
	assert.EqualValues(t, 1, f.cancels.Load())
}

func TestACallEndsWhenItsHTTPClientIsGone(t *testing.T) {
	for _, revision := range []string{"2025-11-25", newRevision} {
		t.Run(revision, func(t *testing.T) {
			f := newFakes()
			all := newSessions(f.set())
			w := startWeb(t, New(all.set, &Options{Open: all.open}), nil)
			ctx, cancel := context.WithCancel(t.Context())
			r := w.request("POST", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
			if revision == newRevision {
				handle := w.openHandle(aToken)
				r = w.stateless("tools/call", `"name":"wait","arguments":{"session":"`+handle+`"}`, "wait")
			} else {
				res, _ := w.do(w.request("POST", hello))
				r.Header.Set("Mcp-Session-Id", res.Header.Get("Mcp-Session-Id"))
			}
			calling := make(chan struct{})
			go func() {
				res, err := http.DefaultClient.Do(r.WithContext(ctx))
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				close(calling)
			}()
			await(t, f.began)
			cancel()
			await(t, calling)
			require.Eventually(t, func() bool { return f.cancels.Load() == 1 }, soon, time.Millisecond)
		})
	}
}

func TestSessionsOverHTTPAreBounded(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), &HTTPOptions{MaxSessions: 3})
	w.connect(aToken)
	w.connect(aToken)
	w.openHandle(aToken)
	res, _ := w.do(w.request("POST", hello))
	assert.Equal(t, 503, res.StatusCode)
	_, body := w.do(w.stateless("tools/call", `"name":"session_open","arguments":{}`, "session_open"))
	assert.Contains(t, body, "limit: 3 sessions are open")
}

// TestAListOfMessagesIsBounded: all of its answers are made at once, and wait for one another.
func TestAListOfMessagesIsBounded(t *testing.T) {
	f := newFakes()
	w := startWeb(t, New(f.set(), nil), nil)
	open := w.request("POST", strings.Replace(hello, "2025-11-25", "2025-03-26", 1))
	res, _ := w.do(open)
	send := func(n int, message string) *http.Request {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(message, 10+i))
		}
		r := w.request("POST", "["+strings.Join(all, ",")+"]")
		r.Header.Set("Mcp-Session-Id", res.Header.Get("Mcp-Session-Id"))
		return r
	}
	one := w.request("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	one.Header.Set("Mcp-Session-Id", res.Header.Get("Mcp-Session-Id"))
	w.do(one)
	list := `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`
	answer, body := w.do(send(maxBatch+1, list))
	assert.Equal(t, 413, answer.StatusCode)
	assert.Contains(t, body, "at most 16 messages")
	_, body = w.do(send(maxBatch, list))
	assert.Equal(t, maxBatch, strings.Count(body, `"result"`))

	lists := 3 * maxFetches
	answers := make(chan string, lists)
	for i := range lists {
		go func() {
			_, body := w.do(send(1, strings.Replace(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, "%d", fmt.Sprintf("%d%%d", i+1), 1)))
			answers <- body
		}()
	}
	for range maxFetches {
		<-f.began
	}
	close(f.release)
	for range lists {
		assert.Contains(t, <-answers, `"result"`)
	}
	assert.EqualValues(t, maxFetches, f.most.Load())
}

func TestSessionsThatAreOpenedAtOnceAreBoundedToo(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), &HTTPOptions{MaxSessions: 3})
	statuses := make(chan int, 50)
	for range cap(statuses) {
		r := w.request("POST", hello)
		go func() {
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				statuses <- 0
				return
			}
			res.Body.Close()
			statuses <- res.StatusCode
		}()
	}
	opened := 0
	for range cap(statuses) {
		switch status := <-statuses; status {
		case 200:
			opened++
		default:
			assert.Equal(t, 503, status)
		}
	}
	assert.LessOrEqual(t, opened, 3)
	assert.Positive(t, opened)
}

func TestIdleSessionsEnd(t *testing.T) {
	t.Run("with a handle", func(t *testing.T) {
		all := newSessions(newFakes().set())
		w := startWeb(t, New(all.set, &Options{Open: all.open}), &HTTPOptions{IdleTimeout: 20 * time.Millisecond})
		w.openHandle(aToken)
		await(t, all.over)
	})
	t.Run("with a connection", func(t *testing.T) {
		all := newSessions(newFakes().set())
		// Each of the client's requests must come within the time after the last one, on a busy machine too.
		w := startWeb(t, New(all.set, &Options{Open: all.open}), &HTTPOptions{IdleTimeout: 3 * time.Second})
		c := w.connect(aToken)
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hi"}})
		require.NoError(t, err)
		await(t, all.over)
	})
}

// TestTheHandlerEndsWhenItsSessionsAreClosed, including one that was already ending.
func TestTheHandlerEndsWhenItsSessionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newSessions(newFakes().set())
		all.hold = make(chan struct{})
		h, err := New(all.set, &Options{Open: all.open}).Handler(nil)
		require.NoError(t, err)
		handle, err := h.own.start(t.Context(), "")
		require.NoError(t, err)
		go h.own.drop(handle)
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- h.Close() }()
		synctest.Wait()
		require.Empty(t, ended, "a session is not closed yet")
		_, err = h.own.enter(handle, "")
		require.Equal(t, tool.NotFound, tool.KindOf(err), "it takes no more calls")
		close(all.hold)
		require.NoError(t, <-ended)
		require.Zero(t, h.own.count())
	})
}

// stateless returns a request of the revision without connections.
func (w *web) stateless(method, params, name string) *http.Request {
	r := w.request("POST", `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+`,"_meta":{
		"io.modelcontextprotocol/protocolVersion":"`+newRevision+`","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},
		"io.modelcontextprotocol/clientCapabilities":{}}}}`)
	r.Header.Set("Mcp-Protocol-Version", newRevision)
	r.Header.Set("Mcp-Method", method)
	if name != "" {
		r.Header.Set("Mcp-Name", name)
	}
	return r
}

var handleIn = func(body string) string {
	for line := range strings.Lines(body) {
		line = strings.TrimPrefix(line, "data: ")
		var m struct {
			Result struct {
				StructuredContent struct{ Session string }
			}
		}
		if json.Unmarshal([]byte(line), &m) == nil && m.Result.StructuredContent.Session != "" {
			return m.Result.StructuredContent.Session
		}
	}
	return ""
}

func (w *web) openHandle(token string) string {
	w.t.Helper()
	r := w.stateless("tools/call", `"name":"session_open","arguments":{}`, "session_open")
	r.Header.Set("Authorization", "Bearer "+token)
	_, body := w.do(r)
	handle := handleIn(body)
	require.NotEmpty(w.t, handle, body)
	return handle
}

func TestWithoutConnectionsTheSessionIsAnArgument(t *testing.T) {
	all := newSessions(newFakes().set())
	w := startWeb(t, New(all.set, &Options{Open: all.open}), nil)
	handle := w.openHandle(aToken)
	call := func(token, args string) string {
		r := w.stateless("tools/call", `"name":"echo","arguments":`+args, "echo")
		r.Header.Set("Authorization", "Bearer "+token)
		_, body := w.do(r)
		return body
	}
	assert.Contains(t, call(aToken, `{"session":"`+handle+`","text":"hi"}`), `\"size\": 2`)
	assert.Contains(t, call(aToken, `{"text":"hi"}`), "invalid: session is missing")
	assert.Contains(t, call(aToken, `{"session":3,"text":"hi"}`), "invalid: session must be a string")
	assert.Contains(t, call(aToken, `{"session":"`+handle+`","session":"x","text":"hi"}`), "given twice")
	assert.Contains(t, call(aToken, `{"session":"`+handle+`","text":"hi","text":"ho"}`), "text is given twice")
	assert.Contains(t, call(aToken, `{"session":"`+handle+`","nope":1,"text":"hi"}`), "unknown parameter")
	foreign, unknown := call(bToken, `{"session":"`+handle+`","text":"hi"}`), call(bToken, `{"session":"nope","text":"hi"}`)
	assert.Contains(t, foreign, "not_found: session not found")
	assert.Equal(t, unknown, foreign, "a foreign handle looks like one that is not there")

	_, list := w.do(w.stateless("tools/list", `"cursor":""`, ""))
	assert.Contains(t, list, `"required":["session","text"]`)
	assert.Contains(t, list, `"session_close"`)

	r := w.stateless("tools/call", `"name":"session_close","arguments":{"session":"`+handle+`"}`, "session_close")
	_, body := w.do(r)
	assert.Contains(t, body, `"closed":true`)
	await(t, all.over)
	assert.Contains(t, call(aToken, `{"session":"`+handle+`","text":"hi"}`), "not_found")
}

func TestClientsOfTheNewestRevisionOpenTheirSession(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), nil)
	c := w.connectAt(aToken, "")
	assert.Equal(t, newRevision, c.InitializeResult().ProtocolVersion)
	opened, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "session_open"})
	require.NoError(t, err)
	handle := opened.StructuredContent.(map[string]any)["session"]
	res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hi", "session": handle}})
	require.NoError(t, err)
	assert.False(t, res.IsError)
}

func TestAUnixSocketServesWithoutAToken(t *testing.T) {
	all := newSessions(newFakes().set())
	path := filepath.Join(t.TempDir(), "private", "s")
	l, err := httpguard.Listen("unix:"+path, nil)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- New(all.set, &Options{Open: all.open}).Serve(ctx, l, nil) }()

	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://wisbox/", HTTPClient: &http.Client{Transport: transport}, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hi"}})
	require.NoError(t, err)

	_, err = httpguard.Listen("unix:"+path, nil)
	assert.Error(t, err, "a socket in use is not taken")
	cancel()
	await(t, all.over)
	require.NoError(t, <-served)
}

// As on pipes, errors over HTTP have our own words, without names of the SDK or of Go, and the request's ID.
func TestWhatCanNotBeReadIsSaidOverHTTPInOurWords(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), nil)
	res, _ := w.do(w.request("POST", hello))
	id := res.Header.Get("Mcp-Session-Id")
	for _, c := range []struct {
		name, body, says string
		status           int
	}{
		{"text as params", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":"abc"}`, "the params of tools/call can't be read; they are {\\\"name\\\"", 200},
		{"a list as params", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[1]}`, "the params of tools/call can't be read", 200},
		{"a number as name", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":5}}`, "name in the params of tools/call can't be read", 200},
		{"text as _meta", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","_meta":"x"}}`, "_meta in the params", 200},
		{"no params", `{"jsonrpc":"2.0","id":5,"method":"tools/call"}`, "the params of tools/call are missing", 200},
		{"null as params", `{"jsonrpc":"2.0","id":5,"method":"resources/read","params":null}`, "the params of resources/read are missing", 200},
		{"a number as uri", `{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":5}}`, "uri in the params of resources/read", 200},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\",\"x\":\"\xff\"}", "the message is not UTF-8", 200},
		{"an id that the SDK would round", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, `"id":9007199254740993`, 200},
		{"a fraction as id", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `"id":1.5`, 200},
		{"half a message", `{"jsonrpc":"2.0","method":"tools/ca`, "the message is not JSON", 400},
		{"one bad of two", `[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"1.0","method":"ping"}]`, "not a JSON-RPC 2.0", 400},
	} {
		r := w.request("POST", c.body)
		r.Header.Set("Mcp-Session-Id", id)
		res, body := w.do(r)
		assert.Equal(t, c.status, res.StatusCode, c.name)
		assert.Equal(t, "application/json", res.Header.Get("Content-Type"), c.name)
		assert.Contains(t, body, c.says, c.name)
		for _, foreign := range []string{"unmarshal", "mcp.", "Go "} {
			assert.NotContains(t, body, foreign, c.name)
		}
	}
	r := w.request("POST", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[]}`)
	r.Header.Set("Mcp-Protocol-Version", newRevision)
	res, _ = w.do(r)
	assert.Equal(t, 400, res.StatusCode, "the newest revision has it in the status too")
}

// A body that never arrives delays neither a refusal nor the end of the connection.
func TestABodyThatNeverComesHoldsNothing(t *testing.T) {
	w := startWeb(t, New(newFakes().set(), nil), &HTTPOptions{Options: httpguard.Options{ReadTimeout: 300 * time.Millisecond, Stalled: 300 * time.Millisecond}})
	for _, c := range []struct{ name, header, answer string }{
		{"without a token", "Host: localhost\r\n", "401"},
		{"for another host", "Host: evil.example\r\n", "403"},
		{"with a token", "Host: localhost\r\nAuthorization: Bearer " + aToken + "\r\n", "400"},
	} {
		conn, err := net.Dial("tcp", w.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\n"+c.header+"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(soon)))
		answer, err := io.ReadAll(conn)
		require.NoError(t, err, "%s: the connection ends", c.name)
		assert.Contains(t, strings.SplitN(string(answer), "\r\n", 2)[0], c.answer, c.name)
	}
}

// TestWhatHasEndedKeepsNoPlace, for a connection whose client is gone, also without a call, and for a handle whose
// session is gone.
func TestWhatHasEndedKeepsNoPlace(t *testing.T) {
	all := newSessions(newFakes().set())
	w := startWeb(t, New(all.set, &Options{Open: all.open}), &HTTPOptions{MaxSessions: 3})
	w.connect(bToken)
	called := w.connect(bToken)
	_, err := called.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "x"}})
	require.NoError(t, err)
	newest := w.connectAt(aToken, newRevision)
	opened, err := newest.CallTool(t.Context(), &mcp.CallToolParams{Name: "session_open", Arguments: map[string]any{}})
	require.NoError(t, err)
	handle := opened.StructuredContent.(map[string]any)["session"]
	res, _ := w.do(w.request(http.MethodPost, hello))
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)

	var b string
	w.h.End(func(owner string, s Session) bool {
		if s != nil && s.ID() == "s1" {
			b = owner
		}
		return false
	})
	require.NotEmpty(t, b)
	w.h.End(func(owner string, _ Session) bool { return owner == b })
	assert.Zero(t, w.h.statefulSessions())
	_, err = called.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "x"}})
	require.Error(t, err)
	echo := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "x", "session": handle}}
	said, err := newest.CallTool(t.Context(), echo)
	require.NoError(t, err)
	require.False(t, said.IsError, "another's is as it was")
	w.h.End(func(_ string, s Session) bool { return s != nil && s.ID() == "s2" })
	assert.Zero(t, w.h.own.count())
	opens, closes := all.counts()
	assert.Equal(t, opens, closes)
	res, _ = w.do(w.request(http.MethodPost, hello))
	assert.Equal(t, http.StatusOK, res.StatusCode)
}

type noteKey struct{}

// TestASessionIsOpenedForTheRequestThatNeedsIt, not for the one before: the handler in front sees its values.
func TestASessionIsOpenedForTheRequestThatNeedsIt(t *testing.T) {
	for _, revision := range []string{"2025-11-25", newRevision} {
		all, notes := newSessions(newFakes().set()), make(chan any, 10)
		s := New(all.set, &Options{Open: func(ctx context.Context) (Session, error) {
			notes <- ctx.Value(noteKey{})
			return all.open(ctx)
		}})
		h, err := s.Handler(&HTTPOptions{Owner: func(*http.Request) string { return "one" }})
		require.NoError(t, err)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), noteKey{}, r.Header.Get("Authorization"))))
		}))
		w := &web{Server: front, t: t, h: h}
		other, called := w.connectAt(bToken, revision), w.connectAt(aToken, revision)
		_, err = other.ListTools(t.Context(), nil)
		require.NoError(t, err)
		params := &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "x"}}
		if revision == newRevision {
			params = &mcp.CallToolParams{Name: "session_open", Arguments: map[string]any{}}
		}
		said, err := called.CallTool(t.Context(), params)
		require.NoError(t, err)
		require.False(t, said.IsError)
		assert.Equal(t, "Bearer "+aToken, <-notes, revision)
		_, _ = other.Close(), called.Close()
		require.NoError(t, h.Close())
		front.CloseClientConnections()
		front.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}

// open sends a request and returns its answer's lines as they come.
func (w *web) open(r *http.Request) (*http.Response, <-chan string) {
	w.t.Helper()
	res, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer res.Body.Close()
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return res, lines
}

func TestAQuietCallOverHTTPKeepsItsConnection(t *testing.T) {
	defer func(was time.Duration) { quietFor = was }(quietFor)
	quietFor = 30 * time.Millisecond
	for _, revision := range []string{"2025-11-25", newRevision} {
		f := newFakes()
		all := newSessions(f.set())
		w := startWeb(t, New(all.set, &Options{Open: all.open}), nil)
		r := w.request("POST", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
		if revision == newRevision {
			r = w.stateless("tools/call", `"name":"wait","arguments":{"session":"`+w.openHandle(aToken)+`"}`, "wait")
		} else {
			res, _ := w.do(w.request("POST", hello))
			r.Header.Set("Mcp-Session-Id", res.Header.Get("Mcp-Session-Id"))
		}
		res, lines := w.open(r)
		assert.Equal(t, 200, res.StatusCode)
		assert.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
		for range 3 {
			assert.Equal(t, ": still here", <-lines)
			assert.Empty(t, <-lines)
		}
		close(f.release)
		var rest []string
		for line := range lines {
			rest = append(rest, line)
		}
		assert.Contains(t, strings.Join(rest, "\n"), `"result"`, revision)
	}
}

func TestACancelledCallOverHTTPGetsNoAnswer(t *testing.T) {
	f := newFakes()
	all := newSessions(f.set())
	w := startWeb(t, New(all.set, &Options{Open: all.open}), nil)
	res, _ := w.do(w.request("POST", hello))
	id := res.Header.Get("Mcp-Session-Id")
	post := func(body string) *http.Request {
		r := w.request("POST", body)
		r.Header.Set("Mcp-Session-Id", id)
		return r
	}
	got := make(chan string, 1)
	go func() {
		res, err := http.DefaultClient.Do(post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`))
		if !assert.NoError(t, err) {
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		got <- string(body)
	}()
	await(t, f.began)
	res, _ = w.do(post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`))
	assert.Equal(t, 202, res.StatusCode)
	assert.Empty(t, <-got)
	assert.EqualValues(t, 1, f.cancels.Load())
	_, body := w.do(post(`{"jsonrpc":"2.0","id":3,"method":"ping"}`))
	assert.Contains(t, body, `"id":3`)
}

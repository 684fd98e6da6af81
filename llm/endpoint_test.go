package llm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/llm"
	"github.com/wisbox/wisbox/tool"
)

// endpoint returns a scripted server of one API.
func endpoint(t *testing.T, api string, handle http.HandlerFunc) *llm.Endpoint {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	temperature := 0.5
	e, err := llm.NewEndpoint(&llm.EndpointOptions{
		BaseURL: server.URL + "/v1/", API: api, Model: "m", Key: "secret", Temperature: &temperature, Wait: time.Millisecond,
	})
	require.NoError(t, err)
	return e
}

var conversation = []llm.Message{
	{Role: llm.System, Content: "Be brief."}, {Role: llm.User, Content: "6*7?"}, {Role: llm.Assistant, Content: ""}, {Role: llm.User, Content: "Well?"},
}

func TestBothFormsSendTheConversationAndReadTheAnswer(t *testing.T) {
	for _, c := range []struct {
		api, path, want, answer string
		headers                 map[string]string
	}{
		{
			"", "/v1/chat/completions",
			`{"model":"m","temperature":0.5,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"6*7?"},{"role":"assistant","content":""},{"role":"user","content":"Well?"}]}`,
			`{"choices":[{"message":{"role":"assistant","content":"42"}}]}`,
			map[string]string{"Authorization": "Bearer secret", "X-Api-Key": ""},
		},
		{
			llm.Anthropic, "/v1/messages",
			`{"model":"m","temperature":0.5,"max_tokens":8192,"system":"Be brief.","messages":[{"role":"user","content":"6*7?"},{"role":"assistant","content":"(empty)"},{"role":"user","content":"Well?"}]}`,
			`{"type":"message","role":"assistant","content":[{"type":"thinking","thinking":"6*7"},{"type":"text","text":"4"},{"type":"text","text":"2"}]}`,
			map[string]string{"X-Api-Key": "secret", "Authorization": "", "Anthropic-Version": "2023-06-01"},
		},
	} {
		t.Run(c.api, func(t *testing.T) {
			e := endpoint(t, c.api, func(w http.ResponseWriter, r *http.Request) {
				var body json.RawMessage
				assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
				assert.Equal(t, c.path, r.URL.Path)
				assert.JSONEq(t, c.want, string(body))
				for name, value := range c.headers {
					assert.Equal(t, value, r.Header.Get(name), name)
				}
				fmt.Fprint(w, c.answer)
			})
			text, err := e.Complete(t.Context(), conversation)
			require.NoError(t, err)
			assert.Equal(t, "42", text)
		})
	}
}

func TestAnEndpointIsTriedAgainWhenItIsBusy(t *testing.T) {
	for _, c := range []struct {
		name  string
		codes []int
		tries int64
		ok    bool
	}{
		{"busy once", []int{429, 200}, 2, true},
		{"overloaded", []int{529, 200}, 2, true},
		{"broken", []int{500, 502, 503, 200}, 3, false},
		{"no key", []int{401, 200}, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int64
			e := endpoint(t, "", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.codes[n.Add(1)-1])
				fmt.Fprint(w, `{"choices":[{"message":{"content":"yes"}}]}`)
			})
			text, err := e.Complete(t.Context(), nil)
			assert.Equal(t, c.tries, n.Load())
			if c.ok {
				require.NoError(t, err)
				assert.Equal(t, "yes", text)
				return
			}
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
			assert.NotContains(t, err.Error(), "secret")
			assert.NotContains(t, err.Error(), "127.0.0.1")
		})
	}
}

func TestAKeyFollowsNoRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the key %q went elsewhere", r.Header.Get("X-Api-Key"))
	}))
	defer elsewhere.Close()
	e := endpoint(t, llm.Anthropic, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	_, err := e.Complete(t.Context(), nil)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.ErrorContains(t, err, "307")
}

func TestAnAnswerOfAnotherFormIsUnavailable(t *testing.T) {
	for _, api := range []string{llm.OpenAI, llm.Anthropic} {
		for _, body := range []string{"", "{}", `{"choices":[]}`, `{"type":"error"}`, "<html>"} {
			e := endpoint(t, api, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
			_, err := e.Complete(t.Context(), nil)
			assert.Equal(t, tool.Unavailable, tool.KindOf(err), body)
		}
	}
}

func TestAnEndpointHeedsItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := endpoint(t, "", func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := e.Complete(ctx, nil)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestEndpointsNeedAURLAModelAndAKnownForm(t *testing.T) {
	for field, opts := range map[string]*llm.EndpointOptions{
		"base-url": {BaseURL: "ftp://x", Model: "m"}, "model": {BaseURL: "http://x"}, "api": {BaseURL: "http://x", Model: "m", API: "soap"},
	} {
		_, err := llm.NewEndpoint(opts)
		assert.Equal(t, tool.Invalid, tool.KindOf(err))
		assert.Equal(t, field, tool.AsError(err).Field)
	}
}

func ExampleNewEndpoint() {
	model, err := llm.NewEndpoint(&llm.EndpointOptions{BaseURL: "http://127.0.0.1:8000/v1", Model: "local"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = model // model.Complete(ctx, messages)
}

package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/page"
)

const frame = `import json
class Table:
    def _repr_html_(self): return "<table><tr><td><script>alert(1)</script>7</td></tr></table>"
    def _repr_svg_(self): return "<svg onload='alert(1)'/>"
`

// TestEvaluationsAreShownAsTheyAre, for code of the page in a kept interpreter and for the displays of all logged
// calls, also of agents.
func TestEvaluationsAreShownAsTheyAre(t *testing.T) {
	s := newSite(t, func(o *page.Options) { o.Manager = held(t, o.Manager, o.Store.Path()) })
	s.enter()
	run := func(code string) string {
		body, err := json.Marshal(map[string]string{"code": code, "context": "page"})
		require.NoError(t, err)
		res, got := s.do(s.browser, "POST", "/api/sessions/box/evaluate", string(body))
		require.Equal(t, http.StatusOK, res.StatusCode, got)
		assert.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
		return got
	}
	got := run("x = 6\nprint('<b>said</b>')\nx")
	assert.Contains(t, got, `"stdout":"\u003cb\u003esaid\u003c/b\u003e\n"`)
	assert.Contains(t, got, "event: end\ndata: {\"status\":\"exited\",\"value_repr\":\"6\"}")
	assert.Contains(t, run("x * 7"), `"42"`, "names are kept")
	assert.Contains(t, run("1 / 0"), "ZeroDivisionError")
	s.ask("POST", "/api/sessions/box/restart", `{"context":"page"}`, nil)
	assert.Contains(t, run("x"), "NameError")
	assert.Equal(t, "not_found", s.refused("POST", "/api/sessions/none/evaluate", `{"code":"1","context":"page"}`))
	assert.Equal(t, "invalid", s.refused("POST", "/api/sessions/box/evaluate", `{"code":"1","context":"no name"}`))

	agent, err := s.m.Attach(t.Context(), "box")
	require.NoError(t, err)
	_, err = agent.Evaluate(t.Context(), evaltool.Run{Params: evaltool.Params{Code: frame + "display(Table())"}}, nil)
	require.NoError(t, err)
	require.NoError(t, agent.Close(t.Context()))
	var all struct{ Calls []string }
	s.ask("GET", "/api/sessions/box/shown", "", &all)
	require.Len(t, all.Calls, 1, "a value alone is not kept")
	var shown struct{ Objects []evaltool.Object }
	s.ask("GET", "/api/sessions/box/shown/"+all.Calls[0], "", &shown)
	require.Len(t, shown.Objects, 1)
	kinds := map[string]string{}
	for _, d := range shown.Objects[0].Display {
		kinds[d.MIME] = d.Data
	}
	assert.Contains(t, kinds["text/html"], "<script>")
	assert.Contains(t, kinds["image/svg+xml"], "<svg")
	var log struct{ Records []struct{ Call, Tool string } }
	s.ask("GET", "/api/sessions/box/log", "", &log)
	last := log.Records[len(log.Records)-1]
	assert.Equal(t, all.Calls[0], last.Call, "it is found by the call of the log")
	assert.Equal(t, "evaluate_python", last.Tool)
	for _, call := range []string{"..%2fsession", "none", "%2e%2e", all.Calls[0] + "x"} {
		assert.Equal(t, "not_found", s.refused("GET", "/api/sessions/box/shown/"+call, ""), call)
	}
	s.ask("POST", "/api/sessions", `{"name":"other"}`, nil)
	assert.Equal(t, "not_found", s.refused("GET", "/api/sessions/other/shown/"+all.Calls[0], ""), "another session's call")
}

// TestWhatIsKeptOfAnEvaluationHasNoSecret, as its answer has none.
func TestWhatIsKeptOfAnEvaluationHasNoSecret(t *testing.T) {
	s := newSite(t)
	s.enter()
	box, err := s.m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, Secrets: map[string]wisbox.Secret{"key": {Value: []byte("hunter2-hunter2")}}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, box.Close(context.Background())) }()
	_, err = box.Evaluate(t.Context(), evaltool.Run{Params: evaltool.Params{
		Code: "class T:\n    def _repr_html_(self): return '<b>hunter2' + '-hunter2</b>'\ndisplay(T())",
	}}, nil)
	require.NoError(t, err)
	var all struct{ Calls []string }
	s.ask("GET", "/api/sessions/box/shown", "", &all)
	require.Len(t, all.Calls, 1)
	_, kept := s.do(s.browser, "GET", "/api/sessions/box/shown/"+all.Calls[0], "")
	assert.Contains(t, kept, "text/html")
	assert.NotContains(t, kept, "hunter2-hunter2")
}

// TestAPageThatLeavesStopsItsCode and keeps the interpreter's names.
func TestAPageThatLeavesStopsItsCode(t *testing.T) {
	s := newSite(t, func(o *page.Options) { o.Manager = held(t, o.Manager, o.Store.Path()) })
	s.enter()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/api/sessions/box/evaluate",
		strings.NewReader(`{"code":"import time\nprint('begun', flush=True)\ntime.sleep(3600)","context":"page","timeout":3600}`))
	require.NoError(t, err)
	r.Header.Set(tokenHeader, s.token)
	res, err := s.browser.Do(r)
	require.NoError(t, err)
	head := make([]byte, 16)
	_, err = res.Body.Read(head)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Eventually(t, func() bool {
		var log struct {
			Records []struct{ Tool, Verdict string }
		}
		s.ask("GET", "/api/sessions/box/log", "", &log)
		return len(log.Records) > 0 && log.Records[len(log.Records)-1].Verdict == evaltool.StatusCancelled
	}, 30*time.Second, 50*time.Millisecond)
}

// TestTemplatesAreMadeAndTaken as the page does it.
func TestTemplatesAreMadeAndTaken(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	s.ask("POST", "/api/sessions/box/template", `{"name":"ready"}`, nil)
	assert.NotEmpty(t, s.refused("POST", "/api/sessions/box/template", `{"name":"no <name>"}`))
	var all struct{ Templates []wisbox.Template }
	s.ask("GET", "/api/templates", "", &all)
	require.Len(t, all.Templates, 1)
	assert.Equal(t, "ready", all.Templates[0].Name)
	s.ask("POST", "/api/sessions", fmt.Sprintf(`{"name":"next","template":%q}`, all.Templates[0].ID), nil)
	var f struct{ Text string }
	s.ask("GET", "/api/sessions/next/file?path=a.txt", "", &f)
	assert.Equal(t, "one\n", f.Text)
	s.ask("DELETE", "/api/templates/"+all.Templates[0].ID, "{}", nil)
	for _, id := range []string{all.Templates[0].ID, "..%2fx", "ready"} {
		assert.NotEmpty(t, s.refused("DELETE", "/api/templates/"+id, "{}"), id)
	}
	s.ask("GET", "/api/templates", "", &all)
	assert.Empty(t, all.Templates)
}

// TestATemplateKeepsItsImage even if the server has a default image for new sessions: its files were made with it.
func TestATemplateKeepsItsImage(t *testing.T) {
	s := newSite(t, func(o *page.Options) { o.Session.Image = "localhost/servers" })
	s.enter()
	s.ask("POST", "/api/sessions", `{"name":"box","image":"localhost/own"}`, nil)
	s.ask("POST", "/api/sessions/box/template", `{"name":"ready"}`, nil)
	s.ask("POST", "/api/sessions", `{"name":"next","template":"ready"}`, nil)
	s.ask("POST", "/api/sessions", `{"name":"plain"}`, nil)
	s.ask("POST", "/api/sessions", `{"name":"chosen","template":"ready","image":"localhost/chosen"}`, nil)
	var all struct {
		Sessions []struct{ ID, Image string }
	}
	s.ask("GET", "/api/sessions", "", &all)
	images := map[string]string{}
	for _, l := range all.Sessions {
		images[l.ID] = l.Image
	}
	assert.Equal(t, map[string]string{"box": "localhost/own", "next": "localhost/own", "plain": "localhost/servers", "chosen": "localhost/chosen"}, images)
}

// TestASecondSignInKeepsWhatIsOpen in the same browser; another browser becomes another visitor.
func TestASecondSignInKeepsWhatIsOpen(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	open := s.events("box", 0)
	defer open.Body.Close()
	first, used := s.token, s.server.URL()
	s.enter()
	assert.Equal(t, first, s.token, "tabs that are open go on")
	assert.NotEqual(t, used, s.server.URL(), "the key is used up all the same")
	s.ask("GET", "/api/me", "", nil)
	_, err := open.Body.Read(make([]byte, 1))
	require.NoError(t, err)

	other := &http.Client{Transport: s.transport()}
	res, body := s.do(other, "POST", "/api/enter", fmt.Sprintf(`{"key":%q}`, keyOf(s.server.URL())), tokenHeader, first)
	require.Equal(t, http.StatusOK, res.StatusCode, body)
	assert.NotContains(t, body, first, "a token alone makes nobody a visitor")
}

// TestNamesStayWhereClientsKnowThem, see page.Options.
func TestNamesStayWhereClientsKnowThem(t *testing.T) {
	s := newSite(t, func(o *page.Options) { o.KeepNames = true })
	s.enter()
	s.box("box")
	assert.Equal(t, "unsupported", s.refused("POST", "/api/sessions/box/rename", `{"name":"other"}`))
	var me struct{ Rename bool }
	s.ask("GET", "/api/me", "", &me)
	assert.False(t, me.Rename)
}

// TestBytesOfATextToo: the bytes of any file can be viewed.
func TestBytesOfATextToo(t *testing.T) {
	s := newSite(t)
	s.enter()
	s.box("box")
	var f struct{ Kind, Hex, Text string }
	s.ask("GET", "/api/sessions/box/file?path=a.txt&as=hex", "", &f)
	assert.Equal(t, "bytes", f.Kind)
	assert.Equal(t, "6f6e650a", f.Hex)
	assert.Empty(t, f.Text)
}

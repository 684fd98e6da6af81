package page

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/beat"
	"github.com/wisbox/wisbox/tool"
)

// ownContext is the page's own kept interpreter, separate from those of agents.
const ownContext = "page"

// shownCalls returns the calls with kept displays.
func (s *Server) shownCalls(r *http.Request) (any, error) {
	calls, err := s.opts.Store.ShownCalls(r.PathValue("id"))
	return map[string][]string{"calls": append([]string{}, calls...)}, err
}

// shown returns the displays of the evaluation in the path.
func (s *Server) shown(r *http.Request) (any, error) {
	raw, err := s.opts.Store.Shown(r.PathValue("id"), r.PathValue("call"))
	return map[string]json.RawMessage{"objects": raw}, err
}

// contexts returns the kept interpreters in which code of the page can run.
func contexts(s *wisbox.Session, r *http.Request) (any, error) {
	all, err := s.Contexts(r.Context())
	return map[string]any{"contexts": append([]evaltool.Context{}, all...)}, err
}

func restart(s *wisbox.Session, r *http.Request) (any, error) {
	var a struct {
		Context string `json:"context"`
	}
	if err := read(r, &a); err != nil {
		return nil, err
	}
	err := s.RestartContext(r.Context(), a.Context)
	if a.Context == ownContext && tool.AsError(err) != nil && tool.AsError(err).Kind == tool.NotFound {
		err = nil // no code has run in it
	}
	return struct{}{}, err
}

// evaluate runs code in a kept interpreter, and sends its results as events, one for each [evaltool.Part]; the last one
// is named end. The code stops if the page closes the connection.
func (s *Server) evaluate(w http.ResponseWriter, r *http.Request) {
	var a struct {
		Code    string   `json:"code"`
		Context string   `json:"context"`
		Timeout *float64 `json:"timeout"` // seconds, as for evaluate_python
	}
	if err := read(r, &a); err != nil {
		s.fail(w, r, err)
		return
	}
	out := &parts{w: w}
	var res *tool.Result
	err := s.with(r, func(session *wisbox.Session) (err error) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		out.gone = cancel
		defer beat.Every(maxSilent, out.beat)()
		res, err = session.Evaluate(ctx, evaltool.Run{Params: evaltool.Params{
			Code: strings.ReplaceAll(a.Code, "\r\n", "\n"), State: "kept", Context: a.Context, Timeout: a.Timeout,
		}}, func(p evaltool.Part) { out.say("message", p) })
		return err
	})
	if err != nil && out.to == nil {
		s.fail(w, r, err)
		return
	}
	out.end(res, err)
}

// parts is an answer of events, which begins with the first event or after maxSilent.
type parts struct {
	w    http.ResponseWriter
	gone func() // called if nobody reads any more

	mu sync.Mutex
	to *stream // nil before it begins
}

func (p *parts) say(event string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin()
	if p.to.send("event: "+event+"\ndata: "+string(raw)+"\n\n") != nil {
		p.gone()
	}
}

// begin begins the answer. The caller must hold p.mu.
func (p *parts) begin() {
	if p.to == nil {
		p.w.Header().Set("Content-Type", "text/event-stream")
		p.to = newStream(p.w)
	}
}

// beat sends an empty line if the code was silent for long, because proxies close a silent
// connection.
func (p *parts) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.to == nil {
		p.begin()
		p.to.said = time.Time{}
	}
	if p.to.keepAlive() != nil {
		p.gone()
	}
}

// end sends the outcome of the code.
func (p *parts) end(res *tool.Result, err error) {
	last := struct {
		Status  string      `json:"status"`
		Value   *string     `json:"value_repr"`
		Message string      `json:"message,omitempty"`
		Error   *tool.Error `json:"error,omitempty"`
	}{Status: "failed"}
	if err != nil {
		last.Error = tool.AsError(err)
	} else if raw, err := json.Marshal(res.Value); err == nil {
		_ = json.Unmarshal(raw, &last)
	}
	p.say("end", last)
}

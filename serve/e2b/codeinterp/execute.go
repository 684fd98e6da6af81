package codeinterp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/beat"
	"github.com/wisbox/wisbox/tool"
)

// keepaliveEvery is the interval of keepalives while code prints nothing.
const keepaliveEvery = 5 * time.Second

// maxSeconds is the time limit of a run, unless the session's is lower. Clients end runs earlier.
const maxSeconds = 24 * 60 * 60.0

// codeCopies is how often code is in memory at least while it runs, beside the request: itself, with the session's line
// ends, and in the message to the session.
const codeCopies = 3

// execute evaluates code and answers with a line of JSON for each output and result. If the client
// leaves, the code is interrupted.
func (s *server) execute(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Code     *string           `json:"code"`
		Context  string            `json:"context_id"`
		Language string            `json:"language"`
		Env      map[string]string `json:"env_vars"`
	}
	if !decode(w, r, &ask) {
		return
	}
	if ask.Code == nil {
		http.Error(w, "code is required", http.StatusUnprocessableEntity)
		return
	}
	if err := httpguard.Take(r.Context(), codeCopies*int64(len(*ask.Code))); err != nil {
		failBody(w, err)
		return
	}
	if ask.Context != "" && ask.Language != "" {
		http.Error(w, "Only one of context_id or language can be provided", http.StatusBadRequest)
		return
	}
	name, err := s.find(r.Context(), ask.Context, ask.Language)
	if err != nil {
		s.fail(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &lines{w: w, hint: s.Hint, ctx: r.Context(), leave: cancel}
	stop := beat.Every(keepaliveEvery, func() { out.write(map[string]string{"type": "keepalive"}) })
	go func() {
		select {
		case <-s.Done:
			cancel()
			out.cut()
		case <-ctx.Done():
		}
	}()
	seconds := maxSeconds
	res, err := s.Session.Evaluate(ctx, evaltool.Run{
		Params: evaltool.Params{Code: newlines(*ask.Code), Context: name, Timeout: &seconds}, Env: ask.Env,
	}, out.part)
	stop()
	if s.over() {
		panic(http.ErrAbortHandler)
	}
	if err != nil && !out.begun {
		s.fail(w, err)
		return
	}
	out.end(res, err)
}

// newlines returns code with LF line ends, whatever the client's editor writes.
func newlines(code string) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(code)
}

// lines writes the answer.
type lines struct {
	w     http.ResponseWriter
	hint  func(string) string
	ctx   context.Context // of the request
	leave func()          // interrupts the run

	mu     sync.Mutex
	full   error // nothing more is sent, because the client's share has no room
	begun  bool
	raised bool
}

func (l *lines) part(p evaltool.Part) {
	switch {
	case p.Count > 0:
		l.write(map[string]any{"type": "number_of_executions", "execution_count": p.Count})
	case p.Stdout != "":
		l.write(map[string]string{"type": "stdout", "text": p.Stdout})
	case p.Stderr != "":
		l.write(map[string]string{"type": "stderr", "text": p.Stderr})
	case p.Shown != nil:
		l.write(result(p.Shown))
	case p.Raised != nil:
		l.raise(p.Raised.Name, p.Raised.Value, p.Raised.Traceback)
	}
}

func (l *lines) raise(name, value, traceback string) {
	l.raised = true
	l.write(map[string]string{"type": "error", "name": name, "value": value, "traceback": traceback})
}

// end writes the end of the answer, after the error of a run that failed without an exception.
func (l *lines) end(res *tool.Result, err error) {
	if l.full != nil {
		l.full, l.raised, err = nil, false, l.full
	} else if err == nil {
		if hint := l.hint(res.Text); hint != "" {
			l.write(map[string]string{"type": "stderr", "text": hint + "\n"})
		}
	}
	switch {
	case l.raised:
	case err != nil:
		l.raise("ExecutionError", tool.AsError(err).Message, "")
	case res.Verdict == evaltool.StatusTimedOut:
		l.raise("TimeoutError", "the time of the evaluation was over", "")
	case res.Failed:
		l.raise("ExecutionError", fmt.Sprintf("the interpreter ended: %s", res.Verdict), res.Text)
	}
	l.write(map[string]string{"type": "end_of_execution"})
}

func (l *lines) write(v any) {
	raw, free, err := httpguard.Marshal(l.ctx, v)
	defer free()
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, httpguard.ErrBusy) {
		l.full = err
		l.leave()
	}
	if err != nil || l.full != nil {
		return
	}
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.WriteHeader(http.StatusOK)
	}
	writeASCII(l.w, append(raw, '\n')) // if the client is gone, its context ends the run
	_ = http.NewResponseController(l.w).Flush()
}

// cut ends a write that waits for the client, and later writes.
func (l *lines) cut() { _ = http.NewResponseController(l.w).SetWriteDeadline(time.Unix(1, 0)) }

// fields are the names of types of data.
var fields = map[string]string{
	"text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
	"application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
}

// result returns an object in the clients' form.
func result(o *evaltool.Object) map[string]any {
	out, extra := map[string]any{"type": "result", "is_main_result": o.Main}, map[string]string{}
	if text := unquoted(o.Text); text != "" {
		out["text"] = text
	}
	for _, d := range o.Display {
		name, known := fields[d.MIME]
		switch {
		case !known:
			extra[d.MIME] = d.Data
		case name == "json" && json.Valid([]byte(d.Data)):
			out[name] = json.RawMessage(d.Data)
		case name != "json":
			out[name] = d.Data
		}
	}
	for name, value := range map[string]json.RawMessage{"json": o.JSON, "data": o.Data, "chart": o.Chart} {
		if len(value) > 0 {
			out[name] = value
		}
	}
	if len(extra) > 0 {
		out["extra"] = extra
	}
	return out
}

// unquoted returns the text of a value, without a string's quotes.
func unquoted(text string) string {
	for _, quote := range []string{"'", `"`} {
		if len(text) > 1 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			return text[1 : len(text)-1]
		}
	}
	return text
}

// maxEscaped is the maximum of bytes that are escaped at once.
const maxEscaped = 32 << 10

// writeASCII writes JSON text with characters beyond ASCII escaped, since clients decode the answer piece by piece.
func writeASCII(w io.Writer, raw []byte) {
	out := make([]byte, 0, maxEscaped)
	for len(raw) > 0 {
		r, size := utf8.DecodeRune(raw)
		raw = raw[size:]
		switch {
		case r < 0x80:
			out = append(out, byte(r))
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			a, b := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, a, b)
		}
		if len(raw) == 0 || len(out) > maxEscaped-2*len(`\u0000`) {
			if _, err := w.Write(out); err != nil { // the client is gone, or takes nothing
				return
			}
			out = out[:0]
		}
	}
}

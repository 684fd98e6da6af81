package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// caller is the caller's name in the log for calls of the page.
const caller = "page"

// browser is the client of all browsers, which are one person's.
var browser = httpguard.Client{Name: "browser"}

// maxBody is the maximum size of a request in bytes, as for the file tools.
const maxBody = 16 << 20

func (s *Server) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.index)
	mux.HandleFunc("GET /assets/{name}", s.asset)
	mux.HandleFunc("POST /api/enter", s.enter)
	for pattern, serve := range s.private() {
		mux.HandleFunc(pattern, serve)
	}
}

// private returns the routes of browsers that have signed in.
func (s *Server) private() map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{}
	for pattern, do := range map[string]action{
		"GET /api/me":                             s.me,
		"DELETE /api/me":                          s.leave,
		"POST /api/tickets":                       s.ticket,
		"GET /api/sessions":                       s.list,
		"POST /api/sessions":                      s.create,
		"DELETE /api/sessions/{id}":               s.remove,
		"POST /api/sessions/{id}/stop":            s.stop,
		"POST /api/sessions/{id}/rename":          s.rename,
		"POST /api/sessions/{id}/fork":            in(s, fork),
		"POST /api/sessions/{id}/pause":           in(s, pause),
		"POST /api/sessions/{id}/resume":          in(s, resume),
		"GET /api/sessions/{id}":                  in(s, inspect),
		"GET /api/sessions/{id}/usage":            in(s, usage),
		"GET /api/sessions/{id}/log":              s.log,
		"GET /api/sessions/{id}/verify":           s.verify,
		"GET /api/sessions/{id}/steps/{call}":     in(s, step),
		"GET /api/sessions/{id}/steps":            in(s, steps),
		"GET /api/sessions/{id}/shown":            s.shownCalls,
		"GET /api/sessions/{id}/shown/{call}":     s.shown,
		"GET /api/sessions/{id}/contexts":         in(s, contexts),
		"POST /api/sessions/{id}/restart":         in(s, restart),
		"POST /api/sessions/{id}/template":        in(s, template),
		"GET /api/templates":                      s.templates,
		"DELETE /api/templates/{t}":               s.removeTemplate,
		"POST /api/sessions/{id}/undo":            in(s, undo),
		"GET /api/sessions/{id}/files":            in(s, files),
		"GET /api/sessions/{id}/file":             in(s, file),
		"PUT /api/sessions/{id}/file":             in(s, save),
		"GET /api/sessions/{id}/snapshots":        in(s, snapshots),
		"POST /api/sessions/{id}/snapshots":       in(s, keep),
		"DELETE /api/sessions/{id}/snapshots/{s}": in(s, forget),
		"POST /api/sessions/{id}/restore":         in(s, restore),
		"GET /api/sessions/{id}/diff":             in(s, diff),
		"GET /api/sessions/{id}/processes":        in(s, processes),
		"DELETE /api/sessions/{id}/processes/{p}": in(s, kill),
		"GET /api/sessions/{id}/egress":           in(s, network),
		"POST /api/sessions/{id}/egress":          in(s, rules),
		"GET /api/sessions/{id}/connections":      s.connections,
	} {
		all[pattern] = s.answering(do)
	}
	for pattern, do := range map[string]http.HandlerFunc{
		"GET /api/sessions/{id}/events":    s.events,
		"POST /api/sessions/{id}/evaluate": s.evaluate,
		"GET /api/sessions/{id}/terminal":  s.terminal,
		"GET /api/sessions/{id}/raw":       s.raw,
		"GET /api/sessions/{id}/patch":     s.patch,
		"GET /api/sessions/{id}/archive":   s.archive,
	} {
		all[pattern] = s.letIn(do)
	}
	return all
}

// action handles a request and returns the answer, which is sent as JSON.
type action func(*http.Request) (any, error)

type visitorKey struct{}

// visitorOf returns the browser of an authorized request.
func visitorOf(r *http.Request) *visitor {
	v, _ := r.Context().Value(visitorKey{}).(*visitor)
	return v
}

// letIn refuses requests of other pages, and of browsers that haven't signed in or lack the token. A browser's streams
// end when it signs out.
func (s *Server) letIn(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			refuse(w, http.StatusForbidden, tool.Errorf(tool.Permission, "requests of other pages are not allowed"))
			return
		}
		v := s.door.known(r)
		if v == nil {
			refuse(w, http.StatusUnauthorized, tool.Errorf(tool.Permission, "this browser isn't signed in; open the URL that its server printed last"))
			return
		}
		if err := httpguard.LetIn(r, browser); err != nil {
			httpguard.RefuseBusy(w, err)
			return
		}
		ctx, end := context.WithCancel(context.WithValue(r.Context(), visitorKey{}, v))
		defer end()
		defer context.AfterFunc(v.in, end)()
		if err := whole(r); err != nil {
			s.fail(w, r, err)
			return
		}
		next(w, r.WithContext(wisbox.WithCaller(ctx, caller)))
	}
}

// whole reads the body of a request.
func whole(r *http.Request) error {
	raw, _, err := httpguard.ReadBody(r, maxBody)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return tool.Errorf(tool.TooLarge, "the request is too large; the maximum is %d bytes", large.Limit).Because(err)
	}
	if err != nil && !errors.Is(err, httpguard.ErrBusy) {
		return tool.Errorf(tool.Invalid, "the request broke off; try again").Because(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return err
}

func (s *Server) answering(do action) http.HandlerFunc {
	return s.letIn(func(w http.ResponseWriter, r *http.Request) {
		v, err := do(r)
		var raw []byte
		if err == nil {
			raw, _, err = httpguard.Marshal(r.Context(), v) // it escapes HTML's special characters
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		answerRaw(w, http.StatusOK, raw)
	})
}

// in returns an action on the session of the path.
func in(s *Server, do func(*wisbox.Session, *http.Request) (any, error)) action {
	return func(r *http.Request) (v any, err error) {
		err = s.with(r, func(session *wisbox.Session) error {
			v, err = do(session, r)
			return err
		})
		return v, err
	}
}

// with opens the session of the path for as long as do takes.
func (s *Server) with(r *http.Request, do func(*wisbox.Session) error) error {
	session, err := s.opts.Manager.Attach(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return errors.Join(do(session), session.Close(context.WithoutCancel(r.Context())))
}

// enter signs in a browser that has the key. It is the only change without a cookie.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Key string `json:"key"`
	}
	r.Body = http.MaxBytesReader(w, r.Body, 1<<10) // it comes from a stranger
	if err := read(r, &asked); err != nil {
		s.fail(w, r, err)
		return
	}
	v := s.door.enter(asked.Key, r)
	if v == nil {
		refuse(w, http.StatusUnauthorized, tool.Errorf(tool.Permission, "this URL was used, or is another server's; open the one that its server printed last"))
		return
	}
	if err := httpguard.LetIn(r, browser); err != nil {
		httpguard.RefuseBusy(w, err)
		return
	}
	http.SetCookie(w, s.door.cookie(v))
	answer(w, http.StatusOK, struct {
		Token string `json:"token"` // only in this answer
		about
	}{v.token, s.about()})
	if s.opts.Entered != nil {
		s.opts.Entered(s.URL())
	}
}

// about describes the server to the page.
type about struct {
	Version string         `json:"version"`
	Rename  bool           `json:"rename"` // sessions can be renamed
	Roots   []string       `json:"roots"`
	Image   string         `json:"image,omitempty"` // default of new sessions
	Limits  sandbox.Limits `json:"limits"`          // defaults of new sessions
}

func (s *Server) about() about {
	return about{s.opts.Version, !s.opts.KeepNames, append([]string{}, s.opts.AllowedRoots...), s.opts.Session.Image, s.opts.Session.Limits.WithDefaults()}
}

func (s *Server) me(*http.Request) (any, error) { return s.about(), nil }

func (s *Server) leave(r *http.Request) (any, error) {
	s.door.leave(visitorOf(r))
	return struct{}{}, nil
}

// ticket authorizes one download by a link, which can't have a header.
func (s *Server) ticket(r *http.Request) (any, error) {
	return map[string]string{"ticket": s.door.ticket(visitorOf(r))}, nil
}

// read decodes a request and refuses unknown fields.
func read(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil && dec.More() {
		err = errors.New("more than one value")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return tool.Errorf(tool.Invalid, "the request can't be read as JSON; load the page again").Because(err)
	}
	return nil
}

// fail answers with an error, and logs its cause.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	known := tool.AsError(err)
	if r.Context().Err() == nil {
		s.opts.Log.Debug("a request failed", "path", r.URL.Path, "error", known, "cause", errors.Unwrap(known))
	}
	refuse(w, statusOf(known.Kind), known)
}

func statusOf(kind tool.Kind) int {
	switch kind {
	case tool.NotFound:
		return http.StatusNotFound
	case tool.Exists, tool.Conflict, tool.Busy:
		return http.StatusConflict
	case tool.TooLarge:
		return http.StatusRequestEntityTooLarge
	case tool.Permission, tool.Escape:
		return http.StatusForbidden
	case tool.Internal:
		return http.StatusInternalServerError
	case tool.Unavailable, tool.Closed:
		return http.StatusServiceUnavailable
	case tool.Timeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusUnprocessableEntity
}

func refuse(w http.ResponseWriter, status int, err *tool.Error) {
	answer(w, status, map[string]*tool.Error{"error": err})
}

func answer(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		status, raw = http.StatusInternalServerError, []byte(`{"error":{"kind":"internal","message":"the answer can't be written"}}`)
	}
	answerRaw(w, status, raw)
}

func answerRaw(w http.ResponseWriter, status int, raw []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}

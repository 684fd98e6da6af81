// Package codeinterp implements the protocol of E2B's code interpreter, which clients expect on
// port 49999 of a sandbox, with the contexts and evaluations of a session. Each context of a client,
// including the default one of each language, is a context of the session.
package codeinterp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/tool"
)

// Port is the port on which clients expect this API.
const Port = 49999

// Session evaluates code; *wisbox.Session implements it. This package adds no limits: clients expect evaluations of
// hours, and code of any length.
type Session interface {
	Evaluate(ctx context.Context, run evaltool.Run, each func(evaltool.Part)) (*tool.Result, error)
	Contexts(ctx context.Context) ([]evaltool.Context, error)
	CreateContext(ctx context.Context, c evaltool.Context) error
	RestartContext(ctx context.Context, name string) error
	RemoveContext(ctx context.Context, name string) error
}

// Options are options of [New]. Session is required.
type Options struct {
	Session Session
	// Token is the X-Access-Token that a client must send to evaluate. Other calls need none.
	// Default: no token is required.
	Token string
	// Pass serves a request with the token; the default just calls next.
	Pass func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)
	// Env are the sandbox's own variables, which every context has.
	Env map[string]string
	// Home is the default directory of contexts. Default /home/user.
	Home string
	// Hint returns a line for stderr after a run with a result of that text; "" adds none, as
	// does nil.
	Hint func(text string) string
	// Done is closed when the sandbox ends or is paused. Runs are then cut without an end, and
	// later requests get 502. nil means never.
	Done <-chan struct{}
	// Log gets the causes that clients don't see; default none.
	Log *slog.Logger
	// Quiet returns the text of an error for Log; the default is only its kind.
	Quiet func(error) string
}

// maxBody is the maximum of a request in bytes: the longest code of a session, as JSON.
const maxBody = 16 << 20

// Bounds of the calls that need no token.
const (
	maxOpenBody = 64 << 10 // bytes
	maxOpen     = 16       // at once
)

type server struct {
	Options
	open chan struct{} // holds an item for each running call without a token
}

// New returns the handler of one session. It panics with [http.ErrAbortHandler] to end a run that
// Done cuts. The server in front must not limit the time of writes.
func New(opts Options) http.Handler {
	s := &server{opts, make(chan struct{}, maxOpen)}
	if s.Quiet == nil {
		s.Quiet = func(err error) string { return string(tool.KindOf(err)) }
	}
	if s.Hint == nil {
		s.Hint = func(string) string { return "" }
	}
	if s.Pass == nil {
		s.Pass = func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { next(w, r) }
	}
	if s.Home == "" {
		s.Home = "/home/user"
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") })
	mux.HandleFunc("POST /execute", s.private(s.execute))
	mux.HandleFunc("GET /contexts", s.public(s.list))
	mux.HandleFunc("POST /contexts", s.public(s.create))
	mux.HandleFunc("DELETE /contexts/{id}", s.public(s.change(opts.Session.RemoveContext)))
	mux.HandleFunc("POST /contexts/{id}/restart", s.public(s.change(opts.Session.RestartContext)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.over() {
			http.Error(w, "the sandbox was not found", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// private requires the token.
func (s *server) private(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.allowed(r) {
			w.Header().Set("Connection", "close")
			http.Error(w, "the access token is missing or wrong", http.StatusUnauthorized)
			return
		}
		s.Pass(w, r, next)
	}
}

// public serves calls that need no token: it bounds the number of calls and the size of the body,
// which must come within the time of the server in front.
func (s *server) public(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOpenBody))
		if err != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, "the body is incomplete, or has more than 64 KiB", http.StatusRequestEntityTooLarge)
			return
		}
		select {
		case s.open <- struct{}{}:
			defer func() { <-s.open }()
		default:
			w.Header().Set("Retry-After", "5")
			http.Error(w, "too many requests for contexts at once; try again later", http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the body is complete
		r.Body = io.NopCloser(bytes.NewReader(raw))
		next(w, r)
	}
}

// over reports whether the sandbox has ended, or is paused.
func (s *server) over() bool {
	select {
	case <-s.Done:
		return true
	default:
		return false
	}
}

// shown is a context for clients.
type shown struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`
}

func shownOf(c evaltool.Context) shown { return shown{c.Name, c.Language, c.Dir} }

// defaultPrefix begins the names of contexts that clients use without creating them.
const defaultPrefix = "default-"

func (s *server) list(w http.ResponseWriter, r *http.Request) {
	all, err := s.Session.Contexts(r.Context())
	if err != nil {
		s.fail(w, err)
		return
	}
	defaults, others := []shown{{defaultPrefix + evaltool.LanguagePython, evaltool.LanguagePython, s.Home}}, []shown{}
	for _, c := range all {
		switch {
		case c.Name == defaults[0].ID:
		case strings.HasPrefix(c.Name, defaultPrefix):
			defaults = append(defaults, shownOf(c))
		default:
			others = append(others, shownOf(c))
		}
	}
	writeJSON(w, append(defaults, others...))
}

func (s *server) create(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Language string `json:"language"`
		Dir      string `json:"cwd"`
	}
	if !decode(w, r, &ask) {
		return
	}
	c := s.context(strings.ToLower(rand.Text()), ask.Language, ask.Dir)
	if err := s.Session.CreateContext(r.Context(), c); err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, shownOf(c))
}

// context returns the description of a new context.
func (s *server) context(name, language, dir string) evaltool.Context {
	if dir == "" {
		dir = s.Home
	}
	return evaltool.Context{Name: name, Language: languageOf(language), Dir: dir, Env: maps.Clone(s.Env)}
}

// languageOf returns the session's name of a language.
func languageOf(name string) string {
	switch name = strings.ToLower(strings.TrimSpace(name)); name {
	case "":
		return evaltool.LanguagePython
	case "js":
		return evaltool.LanguageJavaScript
	}
	return name
}

// find returns the context of a run: the one with that ID, or the language's default, which it creates if necessary.
func (s *server) find(ctx context.Context, id, language string) (string, error) {
	name := id
	if id == "" {
		name = defaultPrefix + languageOf(language)
	}
	all, err := s.Session.Contexts(ctx)
	if err != nil {
		return "", err
	}
	for _, c := range all {
		if c.Name == name {
			return name, nil
		}
	}
	kind, isDefault := strings.CutPrefix(name, defaultPrefix)
	if !isDefault || id != "" && kind != evaltool.LanguagePython {
		return "", tool.Errorf(tool.NotFound, "Context %.80s not found", id)
	}
	err = s.Session.CreateContext(ctx, s.context(name, kind, ""))
	if tool.KindOf(err) == tool.Exists { // another run was faster
		err = nil
	}
	return name, err
}

func (s *server) change(do func(ctx context.Context, name string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := do(r.Context(), r.PathValue("id"))
		if tool.KindOf(err) == tool.NotFound && r.PathValue("id") == defaultPrefix+evaltool.LanguagePython {
			err = nil // it has not begun
		}
		if err != nil {
			s.fail(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *server) allowed(r *http.Request) bool {
	return s.Token == "" || httpguard.Same(r.Header.Get("X-Access-Token"), s.Token)
}

// decode decodes a JSON object. If it fails, it answers the request and returns false.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(into)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		http.Error(w, "the request has more than 16 MiB", http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		http.Error(w, "the body is not a JSON object with fields of the right types", http.StatusUnprocessableEntity)
		return false
	}
	return true
}

// codes are the statuses of errors that a client can act on. E2B answers 500 for an unknown language.
var codes = map[tool.Kind]int{
	tool.Invalid: http.StatusBadRequest, tool.NotFound: http.StatusNotFound, tool.Limit: http.StatusTooManyRequests,
	tool.TooLarge: http.StatusRequestEntityTooLarge, tool.Unavailable: http.StatusServiceUnavailable, tool.Closed: http.StatusBadGateway,
}

func (s *server) fail(w http.ResponseWriter, err error) {
	known := tool.AsError(err)
	code, ok := codes[known.Kind]
	if !ok {
		code = http.StatusInternalServerError
	}
	cause := ""
	if inner := known.Unwrap(); inner != nil {
		cause = s.Quiet(inner)
	}
	s.Log.Info("code interpreter: an error", "kind", known.Kind, "cause", cause)
	http.Error(w, known.Message, code)
}

func writeJSON(w http.ResponseWriter, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "the answer can't be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(ascii(raw))
}

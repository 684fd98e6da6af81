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
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"

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
	// Pass serves a request with the token, and Visit one that needs none; the default just calls next.
	Pass, Visit func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)
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
// Done cuts. The [httpguard.Guard] in front bounds the time of reads and writes.
func New(opts Options) http.Handler {
	s := &server{opts, make(chan struct{}, maxOpen)}
	if s.Quiet == nil {
		s.Quiet = func(err error) string { return string(tool.KindOf(err)) }
	}
	if s.Hint == nil {
		s.Hint = func(string) string { return "" }
	}
	direct := func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { next(w, r) }
	if s.Pass == nil {
		s.Pass = direct
	}
	if s.Visit == nil {
		s.Visit = direct
	}
	if s.Home == "" {
		s.Home = "/home/user"
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") })
	for pattern, serve := range s.routes() {
		mux.HandleFunc(pattern, serve)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.over() {
			http.Error(w, "the sandbox was not found", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *server) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /execute":               s.private(s.execute),
		"GET /contexts":               s.public(s.list),
		"POST /contexts":              s.public(s.create),
		"DELETE /contexts/{id}":       s.public(s.change(s.Session.RemoveContext)),
		"POST /contexts/{id}/restart": s.public(s.change(s.Session.RestartContext)),
	}
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

// public serves calls that need no token: only some at once, with small bodies.
func (s *server) public(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.Visit(w, r, func(w http.ResponseWriter, r *http.Request) {
			raw, free, err := httpguard.ReadBody(r, maxOpenBody)
			defer free()
			if err != nil {
				failBody(w, err)
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
			r.Body = io.NopCloser(bytes.NewReader(raw))
			next(w, r)
		})
	}
}

// failBody answers a request whose body can't be read.
func failBody(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close") // the rest may still be on its way
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		http.Error(w, fmt.Sprintf("the request has more than %d KiB", large.Limit>>10), http.StatusRequestEntityTooLarge)
		return
	}
	if errors.Is(err, httpguard.ErrBusy) {
		httpguard.RefuseBusy(w, err)
		return
	}
	http.Error(w, "the body is incomplete; send the request again", http.StatusBadRequest)
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
	writeJSON(w, r, append(defaults, others...))
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
	writeJSON(w, r, shownOf(c))
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
	raw, _, err := httpguard.ReadBody(r, maxBody) // the code stays in memory as long as it runs
	if err != nil {
		failBody(w, err)
		return false
	}
	if len(bytes.TrimSpace(raw)) > 0 && json.Unmarshal(raw, into) != nil {
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

func writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	raw, _, err := httpguard.Marshal(r.Context(), v)
	if err != nil {
		http.Error(w, "the answer can't be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	writeASCII(w, raw)
}

package e2b

import (
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/serve/e2b/internal/signature"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// Headers with which clients name a port of a sandbox.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
)

// target is the port of a sandbox that a request is for; the zero value is the control
// API.
type target struct {
	id     string
	port   uint16
	signed bool // the sandbox is found by the URL's signature
}

// portLabel matches the first label of a port's host name.
var portLabel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]{20})$`) })

// targetOf returns the target of a request. The host name takes precedence, so that headers of a
// page within a sandbox can't lead anywhere else.
func targetOf(r *http.Request) (target, error) {
	if label, below := firstLabel(r.Host); below {
		if m := portLabel().FindStringSubmatch(label); m != nil {
			return portOf(m[2], m[1])
		}
	}
	if id := r.Header.Get(headerSandbox); id != "" {
		return portOf(id, r.Header.Get(headerPort))
	}
	if r.URL.Path == "/files" && r.URL.Query().Get("signature") != "" {
		return target{signed: true, port: EnvdPort}, nil
	}
	return target{}, nil
}

// firstLabel returns the first label of a host name that has more than one.
func firstLabel(host string) (label string, below bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	label, _, below = strings.Cut(strings.ToLower(host), ".")
	return label, below
}

func portOf(id, port string) (target, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return target{}, fail(http.StatusBadRequest, "the port of the sandbox must be 1 to 65535")
	}
	return target{id: id, port: uint16(n)}, nil
}

// ForPort reports whether a request is for a program's port of a sandbox. The program then decides
// which clients it serves.
func ForPort(r *http.Request) bool {
	to, err := targetOf(r)
	return err == nil && to.id != "" && to.port != EnvdPort
}

// route answers a request, and returns its class for the log.
func (s *Server) route(w http.ResponseWriter, r *http.Request) (what string) {
	to, err := targetOf(r)
	if err != nil {
		writeFailure(w, failureOf(err))
		return "nothing"
	}
	if to == (target{}) {
		s.control.ServeHTTP(w, r)
		return r.Pattern
	}
	sandbox, found, err := s.find(r, to)
	switch {
	case err != nil:
		s.opts.Log.Warn("look for a sandbox", "error", registry.Quiet(err))
		writeFailure(w, failureOf(err))
		return "port"
	case !found && to.signed:
		writeFailure(w, fail(http.StatusUnauthorized, "invalid signature"))
		return "envd"
	case !found:
		writeUnknown(w, to.id)
		return "port"
	}
	if seen, ok := w.(*status); ok {
		seen.box = sandbox.Alias()
	}
	s.serve(w, r, sandbox, to.port)
	if to.port == EnvdPort {
		return "envd"
	}
	return "port"
}

func (s *Server) find(r *http.Request, to target) (*registry.Sandbox, bool, error) {
	if !to.signed {
		by := "" // anybody may come to a port
		if known := s.opts.Registry; known.IsToken(to.id, r.Header.Get(headerToken)) || known.IsToken(to.id, r.Header.Get(headerTraffic)) {
			by = "token"
		}
		return s.opts.Registry.Seek(r.Context(), by, to.id)
	}
	for _, sandbox := range s.opts.Registry.All() {
		if sandbox.IsRunning() && signature.By(sandbox.EnvdToken(), r) {
			return sandbox, true, nil
		}
	}
	return nil, false, nil
}

// resumeFor is the minimum life of a sandbox after a request resumes it.
const resumeFor = 5 * time.Minute

// serve answers a request for a sandbox. The port decides whether the client counts as a stranger.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, sandbox *registry.Sandbox, port uint16) {
	rec := sandbox.Record()
	if port != EnvdPort && rec.ClosedPorts && !httpguard.Same(r.Header.Get(headerTraffic), sandbox.TrafficToken()) {
		writeFailure(w, fail(http.StatusForbidden, "the ports of this sandbox are closed; send its traffic access token as "+headerTraffic))
		return
	}
	if rec.State == registry.Paused && rec.AutoResume && !rec.FilesOnly && port != EnvdPort {
		if err := sandbox.Resume(r.Context(), resumeFor, false); err != nil && tool.KindOf(err) != tool.Conflict {
			s.opts.Log.Warn("resume a sandbox for a request", "sandbox", sandbox.Alias(), "error", registry.Quiet(err))
		}
	}
	served, err := sandbox.Serve(w, r, port)
	switch {
	case err != nil:
		f := failureOf(err)
		s.opts.Log.Warn("open a sandbox for a request", "sandbox", sandbox.Alias(), "error", registry.Quiet(err), "cause", registry.Quiet(causeOf(f)))
		writeFailure(w, f)
	case !served:
		writeUnknown(w, sandbox.ID())
	}
}

// writeUnknown answers for a sandbox that doesn't exist or isn't running. Clients expect 502. The answer repeats the
// client's ID.
func writeUnknown(w http.ResponseWriter, id string) {
	if !registry.IsID(id) {
		id = ""
	}
	w.Header().Set("Connection", "close")
	writeJSON(w, http.StatusBadGateway, struct {
		SandboxID string `json:"sandboxId"`
		Message   string `json:"message"`
		Code      int    `json:"code"`
	}{id, "The sandbox was not found", http.StatusBadGateway})
}

// logged logs a line for each request, with an ID that the client also gets.
func (s *Server) logged(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request) string) {
	id, began, seen := RequestID(), time.Now(), &status{ResponseWriter: w}
	w.Header().Set("X-Request-Id", id)
	what := "aborted"
	defer func() {
		s.opts.Log.LogAttrs(r.Context(), slog.LevelInfo, "request",
			slog.String("request", id), slog.String("method", method(r)), slog.String("for", what), slog.Int("status", seen.code),
			slog.String("key", seen.key), slog.String("sandbox", seen.box), slog.Int64("duration_ms", time.Since(began).Milliseconds()))
		if s.opts.Observe != nil {
			s.opts.Observe(Request{
				ID: id, Time: began.UTC(), Took: time.Since(began), Method: method(r), Route: what, Status: seen.code, Key: seen.key, Sandbox: seen.box,
			})
		}
	}()
	what = serve(seen, r)
}

// RequestID names a request for logs and its client.
func RequestID() string { return rand.Text() }

// method returns the request's method for the log, since a client may send any text.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

// status records the status of an answer.
type status struct {
	http.ResponseWriter
	code int
	key  string // the ID of the request's key
	box  string // the alias of the target's sandbox
}

func (s *status) WriteHeader(code int) {
	if s.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Write(p []byte) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	return s.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

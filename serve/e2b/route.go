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

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/tool"
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

// portLabel is the first label of a host name that is a port's.
var portLabel = regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]{20})$`)

// targetOf finds out what a request is for. The host name comes first: what a page
// within a sandbox sends besides can't lead anywhere else.
func targetOf(r *http.Request) (target, error) {
	if label, below := firstLabel(r.Host); below {
		if m := portLabel.FindStringSubmatch(label); m != nil {
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

// firstLabel is that of a host name that has more of them.
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

// ForPort reports whether a request is for a program's port of a sandbox: who may send it
// is then for the program to decide.
func ForPort(r *http.Request) bool {
	to, err := targetOf(r)
	return err == nil && to.id != "" && to.port != EnvdPort
}

// route answers a request, and says for the log what it was for.
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
	sandbox, found := s.find(r, to)
	switch {
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

func (s *Server) find(r *http.Request, to target) (*registry.Sandbox, bool) {
	if !to.signed {
		return s.opts.Registry.Find(to.id)
	}
	for _, sandbox := range s.opts.Registry.All() {
		if sandbox.IsRunning() && signedWith(r, sandbox.EnvdToken()) {
			return sandbox, true
		}
	}
	return nil, false
}

// resumeFor is how long a sandbox lives at least that a request has resumed.
const resumeFor = 5 * time.Minute

// serve answers a request for a sandbox. The port decides whether who asks is a stranger.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, sandbox *registry.Sandbox, port uint16) {
	rec := sandbox.Record()
	if port != EnvdPort && rec.ClosedPorts && !same(r.Header.Get(headerTraffic), sandbox.TrafficToken()) {
		writeFailure(w, fail(http.StatusForbidden, "the ports of this sandbox are closed; send its traffic access token as "+headerTraffic))
		return
	}
	if rec.State == registry.Paused && rec.AutoResume && port != EnvdPort {
		if err := sandbox.Resume(r.Context(), resumeFor); err != nil && tool.KindOf(err) != tool.Conflict {
			s.opts.Log.Warn("resume a sandbox for a request", "sandbox", sandbox.Alias(), "error", registry.Quiet(err))
		}
	}
	served, err := sandbox.Serve(w, r, port)
	switch {
	case err != nil:
		s.opts.Log.Warn("open a sandbox for a request", "sandbox", sandbox.Alias(), "error", registry.Quiet(err))
		writeFailure(w, failureOf(err))
	case !served:
		writeUnknown(w, sandbox.ID())
	}
}

// writeUnknown answers for a sandbox that isn't there or doesn't run: clients take 502 for
// that. It repeats the ID, which only who asked knows.
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

// logged has a line in the log for each request, and a name for it that the client gets
// too.
func (s *Server) logged(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request) string) {
	id, began, seen := rand.Text(), time.Now(), &status{ResponseWriter: w}
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

// method is one that the log can have: a client may send any text.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

// status notes what an answer was.
type status struct {
	http.ResponseWriter
	code int
	key  string // the id of the key that was shown
	box  string // the alias of the sandbox whose port it was for
}

func (s *status) WriteHeader(code int) {
	if s.code == 0 && code >= 200 {
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

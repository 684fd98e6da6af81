// Package podmantest is a Podman service for unit tests: the endpoints that
// package podman uses, over a unix socket, with containers that are only entries in a map. Their agents are processes
// of this machine, which clients reach by the relay. A fault can replace any answer. It doesn't model Podman any
// further: integration tests use the real one.
package podmantest

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/wisbox/wisbox/agent/agenttest"
)

// Server is one fake service. Its methods may be called at any time.
type Server struct {
	// URL is its address, unix://…
	URL string
	// Workspace is the directory that agents see in place of the mounted one, "" for that one.
	Workspace string

	t          testing.TB
	mu         sync.Mutex
	images     map[string]bool
	containers map[string]*Container // by name
	sessions   map[string]session
	faults     []fault
	requests   []string
}

// Container is a container that exists.
type Container struct {
	Name   string
	Spec   json.RawMessage // the body of the create request
	Labels map[string]string
	State  string // created, running
	Mounts []Mount

	agent *agenttest.Agent // nil before the first exec
}

// Mount is one of a container's mounts.
type Mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// fault answers matching requests in place of the server, with each answer once.
type fault struct {
	method, part string
	answers      []http.HandlerFunc
}

// New starts a server that has one image, and stops it with the test.
func New(t testing.TB, image string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pt")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		URL: "unix://" + filepath.Join(dir, "s"), t: t,
		images: map[string]bool{image: true}, containers: map[string]*Container{}, sessions: map[string]session{},
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s.routes()}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		os.RemoveAll(dir)
	})
	return s
}

// Fault answers the next requests of this method with part in their path, one answer each; then the server answers
// again. A nil answer stands for the server's own.
func (s *Server) Fault(method, part string, answers ...http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fault{method, part, answers})
}

// Containers returns copies of all containers.
func (s *Server) Containers() []Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Container
	for _, c := range s.containers {
		out = append(out, *c)
	}
	return out
}

// Add adds a container without a create request.
func (s *Server) Add(c Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[c.Name] = &c
}

// Count returns how many requests of the method had part in their path.
func (s *Server) Count(method, part string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if strings.HasPrefix(r, method+" ") && strings.Contains(r, part) {
			n++
		}
	}
	return n
}

// intercept removes and returns the next fault for the request, nil if there is none.
func (s *Server) intercept(r *http.Request) http.HandlerFunc {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	for i, f := range s.faults {
		if f.method == r.Method && strings.Contains(r.URL.Path, f.part) && len(f.answers) > 0 {
			s.faults[i].answers = f.answers[1:]
			return f.answers[0]
		}
	}
	return nil
}

// Hang answers nothing until the client gives up.
func Hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// Cut ends the connection without an answer.
func Cut(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

// Text answers 200 with any text: garbage, half of a JSON object, megabytes.
func Text(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

// Fails answers as Podman does if it fails.
func Fails(status int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"cause": message, "message": message, "response": status})
	}
}

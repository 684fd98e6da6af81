package mcpserver

import (
	"context"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/beat"
)

// quietFor is the time after which a stream of events that says nothing gets a comment, so that proxies
// keep its connection: many end one after a minute, some after 30 s. Tests change it.
var quietFor = 15 * time.Second

// stream is the answer to one HTTP request. Its handler has headers of its own, which are sent with the
// first write.
type stream struct {
	to     http.ResponseWriter
	ctx    context.Context // the request's
	header http.Header     // the handler's
	call   bool            // the request is a call, whose answer is a stream of events

	mu     sync.Mutex
	begun  bool      // the headers are sent
	events bool      // it is a stream of events
	said   time.Time // of the last write
	ended  bool      // nothing is written any more
	mute   bool      // its client wants no answer any more
}

// serveStream calls next with a stream, and keeps its connection alive.
func serveStream(next http.Handler, s *stream, r *http.Request) {
	s.said = time.Now()
	if acceptsEvents(r) {
		stop := beat.Every(quietFor/3, s.breakSilence)
		defer stop()
	}
	defer s.end()
	next.ServeHTTP(s, r)
}

// breakSilence writes a comment, which clients ignore. Each event is one Write, so the comment never comes
// into the middle of one.
func (s *stream) breakSilence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || time.Since(s.said) < quietFor || s.begun && !s.events || !s.begun && !s.call {
		return
	}
	if !s.begun {
		s.to.Header().Set("Content-Type", eventStream)
		s.to.Header().Set("Cache-Control", "no-cache, no-transform")
		s.begin(http.StatusOK)
	}
	_, _ = io.WriteString(s.to, ": still here\n\n")
	_ = http.NewResponseController(s.to).Flush()
	s.said = time.Now()
}

const eventStream = "text/event-stream"

// begin sends the headers, once. The caller holds mu.
func (s *stream) begin(status int) {
	if s.begun {
		return
	}
	s.begun, s.events = true, s.to.Header().Get("Content-Type") == eventStream
	s.to.WriteHeader(status)
}

// Header implements http.ResponseWriter.
func (s *stream) Header() http.Header { return s.header }

// silence drops the answer: its request was cancelled.
func (s *stream) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = true
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(http.StatusOK)
	s.ended = true
}

// Write implements http.ResponseWriter.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(http.StatusOK)
	if s.mute {
		return len(p), nil
	}
	s.said = time.Now()
	return s.to.Write(p)
}

// WriteHeader implements http.ResponseWriter.
func (s *stream) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(status)
}

// send sends the handler's headers, unless a comment came first. The caller holds mu.
func (s *stream) send(status int) {
	if !s.begun {
		maps.Copy(s.to.Header(), s.header)
		s.begin(status)
	}
}

// FlushError is for http.ResponseController.
func (s *stream) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(http.StatusOK)
	return http.NewResponseController(s.to).Flush()
}

// Unwrap is for http.ResponseController.
func (s *stream) Unwrap() http.ResponseWriter { return s.to }

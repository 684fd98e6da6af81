package httpguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/wisbox/wisbox/tool"
)

// Client is the one for whom a request counts, such as the owner of a key.
type Client struct {
	Name string
	// Part is a part of the client, such as one of its sandboxes, which has at most [Options.MaxOfPart] of its requests
	// at once. Default: none.
	Part string
}

// ErrBusy is in the chain of errors that say that a client has reached its share: the same request may succeed after
// [RetryAfter].
var ErrBusy = errors.New("the client's share is used up")

// RetryAfter is when a client that has reached its share may try again.
const RetryAfter = 5 * time.Second

func busy(what string) error {
	return tool.Errorf(tool.Limit, "this client has too many %s at once; wait until some have ended, and try again", what).Because(ErrBusy)
}

// resource is a kind of what clients share.
type resource int

const (
	ofConns resource = iota
	ofRequests
	ofBytes
	resources // their number
)

// budget has the resources that all clients of a guard share. If they are fair to one another, a client may take at most as much of a
// resource as nobody has taken: alone a half, two a third each, and for one more there is always something left.
type budget struct {
	fair      bool
	max       [resources]int64
	maxOfPart int
	rate      rate.Limit
	burst     int
	maxWait   time.Duration // for the rate
	silence   time.Duration // after which a connection is idle, also during a request
	log       *slog.Logger

	mu        sync.Mutex
	said      map[string]time.Time // when a line was last logged
	taken     [resources]int64
	shares    map[string]*Share // never forgotten, since a new one would have a full burst; there are as many as owners of keys
	strangers int64             // requests that count for no client
}

// Share is the part of a server that one client has. Its methods may be called from many goroutines at once.
type Share struct {
	b    *budget
	rate *rate.Limiter
	// marshal is a token for an answer that is being made: a client's answers wait for one another before they wait for those of others.
	marshal chan struct{}

	// guarded by b.mu
	taken [resources]int64
	parts map[string]int
	conns map[*conn]bool
}

func (b *budget) share(name string) *Share {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.shares[name]
	if s == nil {
		s = &Share{b: b, rate: rate.NewLimiter(b.rate, b.burst), parts: map[string]int{}, conns: map[*conn]bool{}, marshal: make(chan struct{}, 1)}
		b.shares[name] = s
	}
	return s
}

// say logs that a bound made somebody wait or closed a connection, at most once a minute for each bound. It names no
// client: the log has no tokens. The caller must hold b.mu.
func (b *budget) say(what string) {
	if now := time.Now(); now.Sub(b.said[what]) >= time.Minute {
		b.said[what] = now
		go b.log.Warn(what) // a log that isn't read must not hold the lock
	}
}

// Slowed logs that clients wait because of a bound, at most once a minute for each text.
func (s *Share) Slowed(why string) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.say(why + "; they wait")
}

// Share returns a client's share, for work that isn't an HTTP request.
func (g *Guard) Share(name string) *Share { return g.budget.share(name) }

// take takes n of a resource, or returns false. The caller must hold b.mu.
func (s *Share) take(of resource, n int64) bool {
	left := s.b.max[of] - s.b.taken[of]
	if n > left || s.b.fair && s.taken[of]+n > left {
		return false
	}
	s.taken[of] += n
	s.b.taken[of] += n
	return true
}

// free is the opposite of take.
func (s *Share) free(of resource, n int64) {
	s.taken[of] -= n
	s.b.taken[of] -= n
}

// Take takes n bytes of memory until free is called. free may be called several times.
func (s *Share) Take(n int64) (free func(), err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if !s.take(ofBytes, n) {
		return func() {}, errBytes
	}
	return sync.OnceFunc(func() {
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		s.free(ofBytes, n)
	}), nil
}

var errBytes = busy("bytes of requests and answers")

// Wait waits until the client's rate allows another call.
func (s *Share) Wait(ctx context.Context) error {
	call := s.rate.Reserve()
	wait := call.Delay()
	if wait == 0 {
		return nil
	}
	if wait > s.b.maxWait {
		call.Cancel()
		return tool.Errorf(tool.Limit, "this client sends more than %v requests a second; send fewer, and try again", s.b.rate).Because(ErrBusy)
	}
	s.Slowed(fmt.Sprintf("a client sends more than %v requests a second", s.b.rate))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

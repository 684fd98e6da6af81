package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/tool"
)

// Sandbox is a sandbox of a client.
type Sandbox struct {
	r         *Registry
	id, owner string
	change    *lock.Mutex   // held to pause, resume or open
	spare     bool          // kept ready, without an owner
	mine      bool          // made by this server
	known     chan struct{} // closed when the book has reported it
	since     int64         // the number of updates from the book before this server learned of it

	mu     sync.Mutex
	rec    Record
	box    Box         // nil until needed
	life   *life       // nil until needed
	timer  *time.Timer // nil without a deadline
	halted bool        // the server is stopping
	order  int64       // its place among all updates from the book; 0 if there was none

	samples  []Sample // oldest first, at most maxSamples
	gauged   Gauge    // the latest
	gaugedAt time.Time
}

// life is the time of a sandbox from a start or resume to the next pause or the end.
type life struct {
	front Front
	done  chan struct{}
	users sync.WaitGroup
}

// end must be called only once; l may be nil.
func (l *life) end() {
	if l == nil {
		return
	}
	close(l.done)
	go func() {
		l.users.Wait()
		l.front.Close()
	}()
}

var errGone = tool.Errorf(tool.NotFound, "the sandbox was not found")

// Record returns a copy of the record.
func (s *Sandbox) Record() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.clone()
}

// ID returns the sandbox's ID. It is a secret of the owner, because it grants access to the
// ports.
func (s *Sandbox) ID() string { return s.id }

// Alias returns a name for logs that doesn't reveal the ID.
func (s *Sandbox) Alias() string { return Alias(s.id) }

// Alias returns a name for a sandbox ID in logs, or "" for "".
func Alias(id string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:4])
}

// The uses of tokens.
const (
	envdUse    = "envd"
	trafficUse = "traffic"
)

// EnvdToken returns the token that clients need to run programs and access files.
func (s *Sandbox) EnvdToken() string { return s.r.token(s.id, envdUse) }

// TrafficToken returns the token that requests for closed ports need.
func (s *Sandbox) TrafficToken() string { return s.r.token(s.id, trafficUse) }

func (s *Sandbox) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.State
}

func (s *Sandbox) started() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Started
}

func (s *Sandbox) visible() bool { st := s.state(); return st == Running || st == Paused }

// IsRunning reports whether the sandbox is neither paused nor ended.
func (s *Sandbox) IsRunning() bool { return s.state() == Running }

// Box returns the sandbox in the engine.
func (s *Sandbox) Box(ctx context.Context) (Box, error) {
	if err := s.change.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.change.Unlock()
	return s.open(ctx)
}

// open requires that the caller hold change.
func (s *Sandbox) open(ctx context.Context) (Box, error) {
	s.mu.Lock()
	box, state, halted := s.box, s.rec.State, s.halted
	s.mu.Unlock()
	switch {
	case state == ending || halted:
		return nil, errGone
	case box != nil:
		return box, nil
	}
	box, err := s.r.opts.Engine.Open(ctx, s.id)
	if tool.KindOf(err) == tool.NotFound {
		s.r.Kill(s)
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State == ending || s.halted {
		return nil, errors.Join(errGone, box.Close(ctx))
	}
	s.box = box
	return box, nil
}

// Serve answers a request for a port of a running sandbox. If the sandbox ends or is paused, the
// response is aborted, so that clients never take a partial response for a complete one. served
// is false if the sandbox doesn't run; then nothing was written.
func (s *Sandbox) Serve(w http.ResponseWriter, r *http.Request, port uint16) (served bool, err error) {
	l, err := s.enter(r.Context())
	if l == nil {
		return false, err
	}
	defer l.users.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	over := make(chan struct{})
	var cut sync.WaitGroup
	defer cut.Wait()
	defer close(over)
	cut.Go(func() {
		select {
		case <-l.done:
			conn := http.NewResponseController(w)
			past := time.Unix(1, 0)
			_ = conn.SetWriteDeadline(past) // first, so that the response doesn't look complete
			_ = conn.SetReadDeadline(past)
			cancel()
		case <-over:
		}
	})
	l.front.ServePort(w, r.WithContext(ctx), port)
	select {
	case <-l.done:
		panic(http.ErrAbortHandler)
	default:
		return true, nil
	}
}

// enter adds a request to the current life. It returns nil if there is none.
func (s *Sandbox) enter(ctx context.Context) (*life, error) {
	if !s.IsRunning() {
		return nil, nil
	}
	if l := s.join(nil); l != nil {
		return l, nil
	}
	box, err := s.Box(ctx)
	if tool.KindOf(err) == tool.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	begun := &life{done: make(chan struct{})}
	begun.front = s.r.opts.Front(s, box, begun.done)
	l := s.join(begun)
	if l != begun { // another request was faster, or the sandbox ended
		begun.front.Close()
	}
	return l, nil
}

// join joins the current life, or begun if there is none. It returns nil if the sandbox doesn't
// run.
func (s *Sandbox) join(begun *life) *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != Running || s.halted || s.rec.Name != "" {
		return nil
	}
	if s.life == nil {
		s.life = begun
	}
	if s.life != nil {
		s.life.users.Add(1)
	}
	return s.life
}

// HasEnded reports whether the sandbox has ended for good.
func (s *Sandbox) HasEnded() bool { return s.state() == ending }

// finish ends the sandbox for its clients. It returns false if it has already ended.
func (s *Sandbox) finish() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State == ending {
		return false
	}
	s.rec.State = ending
	s.over()
	return true
}

// stop cuts off the sandbox's requests because the server stops.
func (s *Sandbox) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = true
	s.over()
}

// over ends the current life. The caller must hold mu.
func (s *Sandbox) over() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.life.end()
	s.life = nil
}

// leave closes the box.
func (s *Sandbox) leave(ctx context.Context) error {
	s.mu.Lock()
	box := s.box
	s.box = nil
	s.mu.Unlock()
	if box == nil {
		return nil
	}
	return box.Close(ctx)
}

// arm sets the timer to the deadline of a running sandbox.
func (s *Sandbox) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State == Running && !s.halted {
		s.armIn(time.Until(s.rec.End))
	}
}

// armIn requires that the caller hold mu.
func (s *Sandbox) armIn(d time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(d, s.expire)
}

// expire is called by the timer.
func (s *Sandbox) expire() {
	s.mu.Lock()
	running, left, pause := s.rec.State == Running && !s.halted, time.Until(s.rec.End), s.rec.AutoPause
	s.mu.Unlock()
	switch {
	case !running:
	case left > 0: // extended meanwhile
		s.arm()
	case s.r.shared():
		s.expireShared()
	case !pause:
		s.r.opts.Log.Info("a sandbox's time is over", "sandbox", s.Alias())
		s.r.Kill(s)
	default:
		s.pauseAtEnd()
	}
}

func (s *Sandbox) pauseAtEnd() {
	ctx, cancel := context.WithTimeout(s.r.ctx, removeTime)
	defer cancel()
	if err := s.Pause(ctx, s.Record().AutoPauseFiles); err != nil {
		s.r.opts.Log.Warn("a sandbox can't be paused at its end; it is tried again", "sandbox", s.Alias(), "error", Quiet(err))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rec.State == Running && !s.halted {
			s.armIn(retryAfter)
		}
	}
}

// SetEnd sets the sandbox's deadline to life from now. With longer it never shortens the
// deadline.
func (s *Sandbox) SetEnd(life time.Duration, longer bool) error {
	extend := func(rec *Record) bool {
		end := now().Add(life)
		if most := rec.Started.Add(s.r.opts.MaxLife); s.r.opts.MaxLife > 0 && end.After(most) {
			end = most
		}
		if longer && end.Before(rec.End) {
			return false
		}
		rec.End = end
		return true
	}
	var err error
	if s.r.shared() {
		err = s.share(extend)
	} else {
		err = s.extend(extend)
	}
	s.arm()
	return err
}

// extend changes the deadline even if the disk is full, so that a sandbox in use doesn't end.
func (s *Sandbox) extend(edit func(*Record) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State == ending {
		return errGone
	}
	if !edit(&s.rec) {
		return nil
	}
	return s.r.save(s.rec)
}

// keep changes the record, on disk first, so that the disk is never behind memory.
func (s *Sandbox) keep(edit func(*Record)) error {
	if s.r.shared() {
		return s.share(func(rec *Record) bool { edit(rec); return true })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State == ending {
		return errGone
	}
	next := s.rec.clone()
	edit(&next)
	if err := s.r.save(next); err != nil {
		return err
	}
	s.rec = next
	return nil
}

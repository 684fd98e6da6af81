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

// Sandbox is one that a client asked for.
type Sandbox struct {
	r         *Registry
	id, owner string
	change    *lock.Mutex // held by who pauses, resumes or opens
	spare     bool        // it is kept ready, for nobody

	mu     sync.Mutex
	rec    Record
	box    Box         // nil until it is needed
	life   *life       // nil while nobody needed it
	timer  *time.Timer // nil where it has no end
	halted bool        // the server is being stopped

	samples  []Sample // the oldest first, at most maxSamples
	gauged   Gauge    // at the latest
	gaugedAt time.Time
}

// life is a sandbox from its start or resume to its end or pause.
type life struct {
	front Front
	done  chan struct{}
	users sync.WaitGroup
}

// end is called once; l may be nil.
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

// Record is a copy of what is known of the sandbox.
func (s *Sandbox) Record() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.clone()
}

// ID names the sandbox. It is a secret of its owner: it opens the ports.
func (s *Sandbox) ID() string { return s.id }

// Alias stands for the ID in logs: nobody can make one of the other.
func (s *Sandbox) Alias() string {
	sum := sha256.Sum256([]byte(s.id))
	return hex.EncodeToString(sum[:4])
}

// EnvdToken is what a client shows that runs programs and works on files.
func (s *Sandbox) EnvdToken() string { return s.r.token(s.id, "envd") }

// TrafficToken is what requests for ports carry where these are closed.
func (s *Sandbox) TrafficToken() string { return s.r.token(s.id, "traffic") }

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

// IsRunning reports whether it neither is paused nor has ended.
func (s *Sandbox) IsRunning() bool { return s.state() == Running }

// Box is the sandbox in the engine.
func (s *Sandbox) Box(ctx context.Context) (Box, error) {
	if err := s.change.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.change.Unlock()
	return s.open(ctx)
}

// open is for who holds change.
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
		s.r.end(s)
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

// Serve answers a request for a port of the sandbox, which must run. Its end or pause
// cuts the answer off: a client never takes half of one for a whole. served is false
// where the sandbox doesn't run; nothing was answered then.
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
			_ = conn.SetWriteDeadline(past) // first: nothing that looks like an end gets out
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

// enter is the life that a request becomes part of, nil where there is none.
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
	if l != begun { // somebody else was quicker, or the sandbox ended
		begun.front.Close()
	}
	return l, nil
}

// join joins the life that there is, or the one that was begun; nil where the sandbox
// doesn't run.
func (s *Sandbox) join(begun *life) *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != Running || s.halted {
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

// HasEnded reports whether it never comes back.
func (s *Sandbox) HasEnded() bool { return s.state() == ending }

// finish ends the sandbox for its clients, once.
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

// stop ends what goes on with the sandbox, because the server stops.
func (s *Sandbox) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = true
	s.over()
}

// over ends a life. mu is held.
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

// arm sets the timer to the end of a sandbox that runs.
func (s *Sandbox) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State == Running && !s.halted {
		s.armIn(time.Until(s.rec.End))
	}
}

// armIn is for who holds mu.
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
	case left > 0: // it was extended meanwhile
		s.arm()
	case !pause:
		s.r.opts.Log.Info("a sandbox's time is over", "sandbox", s.Alias())
		s.r.end(s)
	default:
		s.pauseAtEnd()
	}
}

func (s *Sandbox) pauseAtEnd() {
	ctx, cancel := context.WithTimeout(s.r.ctx, removeTime)
	defer cancel()
	if err := s.Pause(ctx); err != nil {
		s.r.opts.Log.Warn("a sandbox can't be paused at its end; it is tried again", "sandbox", s.Alias(), "error", Quiet(err))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rec.State == Running && !s.halted {
			s.armIn(retryAfter)
		}
	}
}

// SetEnd has the sandbox end that long from now. With longer the end is never sooner
// than it was.
func (s *Sandbox) SetEnd(life time.Duration, longer bool) error {
	s.mu.Lock()
	end := now().Add(life)
	switch {
	case s.rec.State == ending:
		s.mu.Unlock()
		return errGone
	case longer && end.Before(s.rec.End):
		s.mu.Unlock()
		return nil
	}
	s.rec.End = end
	err := s.r.save(s.rec)
	s.mu.Unlock()
	s.arm()
	return err
}

// Pause has the programs stand still. A sandbox that is paused already is a conflict.
func (s *Sandbox) Pause(ctx context.Context) error {
	return s.turn(ctx, Running, func(p Pauser) error {
		if err := p.Pause(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rec.State == ending {
			return errGone
		}
		s.rec.State = Paused
		s.over()
		return s.r.save(s.rec)
	})
}

// Resume lets the programs go on, for that long. A sandbox that runs is a conflict.
func (s *Sandbox) Resume(ctx context.Context, life time.Duration) error {
	err := s.turn(ctx, Paused, func(p Pauser) error {
		if err := p.Resume(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rec.State == ending {
			return errGone
		}
		s.rec.State, s.rec.Started = Running, now()
		s.rec.End = s.rec.Started.Add(life)
		return s.r.save(s.rec)
	})
	s.arm()
	return err
}

// turn does something with a sandbox that is in a state.
func (s *Sandbox) turn(ctx context.Context, from State, do func(Pauser) error) error {
	if err := s.change.Lock(ctx); err != nil {
		return err
	}
	defer s.change.Unlock()
	switch state := s.state(); {
	case state == ending:
		return errGone
	case state != from:
		return tool.Errorf(tool.Conflict, "the sandbox is %s already", state)
	}
	box, err := s.open(ctx)
	if err != nil {
		return err
	}
	p, ok := box.(Pauser)
	if !ok {
		return tool.Errorf(tool.Unsupported, "this server can't pause sandboxes; let it run, or kill it")
	}
	return do(p)
}

// Bounds of a change of the network, and of asking for the rules.
const (
	networkTime = 30 * time.Second
	askTime     = 5 * time.Second
)

// SetNetwork replaces the rules of the network: edit changes those of the record. A client
// that leaves stops nothing midway. On an error the record has the rules that the sandbox
// has, or, where it can't be asked, says that they aren't known. A paused sandbox is a
// conflict.
func (s *Sandbox) SetNetwork(ctx context.Context, edit func(*Rules)) error {
	if err := s.change.Lock(ctx); err != nil {
		return err
	}
	defer s.change.Unlock()
	rec := s.Record()
	if rec.State == Paused {
		return tool.Errorf(tool.Conflict, "the sandbox is paused; resume it first")
	}
	next := rec.Rules
	edit(&next)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), networkTime)
	defer cancel()
	defer context.AfterFunc(s.r.ctx, cancel)()
	n, err := s.networker(ctx)
	if err != nil {
		return err
	}
	if err := s.keep(func(r *Record) { r.Wanted = &next }); err != nil { // first: this process may be killed
		return err
	}
	if err := n.SetNetwork(ctx, next.Allow, next.Deny); err != nil {
		if asked := s.learn(context.WithoutCancel(ctx)); asked != nil {
			s.r.opts.Log.Warn("ask for the rules of a sandbox's network", "sandbox", s.Alias(), "error", Quiet(asked))
		}
		return err
	}
	return s.keep(func(r *Record) { r.Rules, r.Wanted = next, nil })
}

// Known is the record with the rules that the sandbox has: it is asked where a change of
// them was cut off. Where it can't be asked now, Wanted is set.
func (s *Sandbox) Known(ctx context.Context) Record {
	if s.Record().Wanted == nil {
		return s.Record()
	}
	lock, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if s.change.Lock(lock) != nil {
		return s.Record()
	}
	defer s.change.Unlock()
	if err := s.learn(ctx); err != nil {
		s.r.opts.Log.Warn("ask for the rules of a sandbox's network", "sandbox", s.Alias(), "error", Quiet(err))
	}
	return s.Record()
}

// learn asks for the rules where they aren't known. It is for who holds change.
func (s *Sandbox) learn(ctx context.Context) error {
	if s.Record().Wanted == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	n, err := s.networker(ctx)
	if err != nil {
		return err
	}
	allow, deny, err := n.Network(ctx)
	if err != nil {
		return err
	}
	return s.keep(func(r *Record) {
		switch {
		case r.Wanted.are(allow, deny):
			r.Rules = *r.Wanted
		case !r.are(allow, deny):
			r.Rules = Rules{Internet: len(allow) > 0, Allow: allow, Deny: deny}
		}
		r.Wanted = nil
	})
}

// networker is for who holds change.
func (s *Sandbox) networker(ctx context.Context) (Networker, error) {
	box, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	n, ok := box.(Networker)
	if !ok {
		return nil, tool.Errorf(tool.Unsupported, "this server can't change the network of a sandbox that runs; make one with the network that it needs")
	}
	return n, nil
}

// keep changes the record: on disk first, so that it never says less than memory does.
func (s *Sandbox) keep(edit func(*Record)) error {
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

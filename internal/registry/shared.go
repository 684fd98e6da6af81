package registry

import (
	"context"
	"crypto/hmac"
	"time"

	"golang.org/x/time/rate"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// Book stores the records with the sandboxes themselves, so that several servers share them.
// Each server has all sandboxes and can do everything with each; changes by one server reach the
// others. Its methods may be called concurrently.
//
// [Engine.Create] puts the record of a new sandbox into the book together with the sandbox.
type Book interface {
	// Follow calls the functions of f from one goroutine until ctx ends.
	Follow(ctx context.Context, f *Follower)
	// Get returns a record. The error for an unknown ID is not_found.
	Get(ctx context.Context, id string) (Entry, error)
	// Owned returns the records of an owner.
	Owned(ctx context.Context, owner string) ([]Entry, error)
	// Change replaces a record by the result of edit, and returns the current record. It reads
	// the record first, and retries if another server changes it meanwhile. If edit returns
	// false, the record stays. edit gets the zero Record for a damaged record. The error for an
	// unknown ID is not_found.
	Change(ctx context.Context, id string, edit func(*Record) bool) (Record, error)
	// End begins the removal of a sandbox. If may is set and returns false for the current
	// record, the sandbox stays; a damaged record is the zero Record, as in Change. A missing
	// sandbox is not an error. End returns the record that it read, if any.
	End(ctx context.Context, id string, may func(Record) bool) (ended bool, _ Record, err error)
}

// Entry is a record of a [Book] with the sandbox's state.
type Entry struct {
	Record
	// Ending reports whether the sandbox is being removed.
	Ending bool
	// Problem is the reason that the sandbox can't be used any more, or "".
	Problem string
}

// Follower receives the entries of a [Book].
type Follower struct {
	// All receives all entries: first, and again whenever changes may have been missed. They are
	// read after the previous call of a function of the Follower has returned.
	All func([]Entry)
	// One receives a new or changed entry; gone reports that the sandbox is gone. All servers
	// receive new entries in the same order.
	One func(e Entry, gone bool)
	// Lost receives the reason when changes stop arriving, once per loss. The next call of All
	// ends the loss.
	Lost func(error)
}

const (
	staleAfter = 15 * time.Minute // for a sandbox still being made: its server must have ended
	renewEvery = 5 * time.Minute  // for a sandbox that this server is making
	asksRate   = 20               // lookups of unknown IDs per second, per owner and for all strangers together
	asksBurst  = 100
)

var (
	shareTime = patience.For(20 * time.Second) // for a change of a record, and for looking one up
	heardTime = patience.For(10 * time.Second) // until the book reports a sandbox made by this server
)

// shared reports whether the sandboxes are shared with other servers.
func (r *Registry) shared() bool { return r.opts.Book != nil }

// follow starts to follow the book. It returns after the first list.
func (r *Registry) follow(ctx context.Context) error {
	first := make(chan error, 1)
	said := func(err error) {
		select {
		case first <- err:
		default:
		}
	}
	r.tasks.Go(func() {
		r.opts.Book.Follow(r.ctx, &Follower{
			All: func(all []Entry) { r.hearAll(all); said(nil) },
			One: r.hear,
			Lost: func(err error) {
				r.opts.Log.Warn("changes of sandboxes don't arrive now; it is tried again", "error", Quiet(err))
				said(err)
			},
		})
	})
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *Registry) hearAll(all []Entry) {
	r.mu.Lock()
	r.order++
	order := r.order
	r.mu.Unlock()
	there := make(map[string]bool, len(all))
	for _, e := range all {
		there[e.ID] = true
		r.learn(e, order)
	}
	for _, s := range r.list() {
		lookedUp := !s.mine && s.since < order-1 // before these entries were read, by the order of updates
		if !there[s.id] && (s.wasHeard() || s.HasEnded() || lookedUp) {
			r.gone(s)
		}
	}
}

func (r *Registry) hear(e Entry, gone bool) {
	r.mu.Lock()
	r.order++
	order, s := r.order, r.all[e.ID]
	r.mu.Unlock()
	switch {
	case !gone:
		r.learn(e, order)
	case s != nil:
		r.gone(s)
	}
}

// learn updates a sandbox from the book. order is its place among the updates, or 0 for the
// answer to a lookup.
func (r *Registry) learn(e Entry, order int64) {
	r.mu.Lock()
	s := r.all[e.ID]
	if r.closed || s == nil && e.Ending {
		r.mu.Unlock()
		return
	}
	if s == nil {
		s = r.newSandbox(e.Record)
		s.since = r.order
		r.all[e.ID] = s
	}
	r.mu.Unlock()
	s.renew(e.Record)
	if order > 0 {
		s.heard(order)
	}
	switch {
	case e.Ending:
		r.lose(s)
	case e.Problem != "":
		r.opts.Log.Info("a sandbox has ended", "sandbox", s.Alias(), "reason", Quiet(tool.Errorf(tool.Closed, "%s", e.Problem)))
		r.Kill(s)
	default:
		s.arm()
	}
}

// gone forgets a sandbox that no longer exists.
func (r *Registry) gone(s *Sandbox) {
	r.lose(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[s.id] == s {
		delete(r.all, s.id)
	}
}

// lose ends a sandbox here that another server removes.
func (r *Registry) lose(s *Sandbox) {
	if !s.finish() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.opts.Ended != nil {
		r.tasks.Go(func() { r.opts.Ended(s) })
	}
	r.tasks.Go(func() { r.leave(s) })
}

func (r *Registry) leave(s *Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), stopGrace)
	defer cancel()
	if err := s.leave(ctx); err != nil {
		r.opts.Log.Info("leave a sandbox that has ended", "sandbox", s.Alias(), "error", Quiet(err))
	}
}

// Seek is like Find, but looks up sandboxes in the [Book] that are unknown or not running here,
// because another server may have just made them. by is the caller, such as an owner, or "" for
// all strangers. A caller with too many lookups gets busy. Other errors are those of the lookup.
func (r *Registry) Seek(ctx context.Context, by, id string) (*Sandbox, bool, error) {
	s, ok := r.Find(id)
	if ok || !r.shared() || !IsID(id) {
		return s, ok, nil
	}
	if s != nil && s.HasEnded() {
		return nil, false, nil
	}
	if !r.mayAsk(by) {
		return nil, false, errAsked
	}
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	e, err := r.opts.Book.Get(ctx, id)
	if tool.KindOf(err) == tool.NotFound {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	r.learn(e, 0)
	s, ok = r.Find(id)
	return s, ok, nil
}

// IsToken reports whether a text is a token of the sandbox with the ID, which may be unknown
// here.
func (r *Registry) IsToken(id, text string) bool {
	for _, use := range []string{envdUse, trafficUse} {
		if hmac.Equal([]byte(text), []byte(r.token(id, use))) {
			return true
		}
	}
	return false
}

var errAsked = tool.Errorf(tool.Busy, "the server is asked for too many sandboxes that it doesn't know; try again in a second")

func (r *Registry) mayAsk(by string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asks[by] == nil {
		r.asks[by] = rate.NewLimiter(asksRate, asksBurst)
	}
	return r.asks[by].Allow()
}

// admit enforces the quota and unique names across servers. All servers receive new sandboxes in
// the same order, so a sandbox over the quota, or with the name of an earlier one, withdraws.
func (r *Registry) admit(ctx context.Context, s *Sandbox, quota Quota) error {
	if !r.shared() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, heardTime)
	defer cancel()
	select {
	case <-s.known:
	case <-ctx.Done():
		return tool.Errorf(tool.Unavailable, "the server doesn't receive changes of sandboxes now; try again").Because(context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, taken := s.heardAt(), Quota{}
	for _, other := range r.all {
		if at := other.heardAt(); other == s || other.owner != s.owner || at == 0 || at > before {
			continue
		}
		rec := other.Record()
		if !rec.Counts() {
			continue
		}
		if own := s.Record().Name; own != "" && rec.Name == own {
			return errTaken(rec)
		}
		taken.Add(rec)
	}
	return quota.check(taken, s.Record())
}

// Remove ends a sandbox like Kill. With a [Book] it returns once the end is recorded there, so
// that other servers learn of it; if that fails, it returns the error and the sandbox stays.
// Remove reports whether the sandbox existed.
func (r *Registry) Remove(ctx context.Context, s *Sandbox) (bool, error) {
	if !r.shared() {
		return r.Kill(s), nil
	}
	if s.HasEnded() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	_, rec, err := r.opts.Book.End(ctx, s.id, nil)
	if err != nil {
		return false, err
	}
	r.lose(s)
	return rec.ID != "", nil // otherwise another server was faster
}

// expireShared ends a sandbox after its deadline, unless another server has extended it.
func (s *Sandbox) expireShared() {
	ctx, cancel := context.WithTimeout(s.r.ctx, shareTime)
	defer cancel()
	ended, rec, err := s.r.opts.Book.End(ctx, s.id, func(rec Record) bool {
		s.restore(&rec)
		return !time.Now().Before(rec.End)
	})
	switch {
	case err != nil:
		s.r.opts.Log.Warn("a sandbox can't be ended at its time; it is tried again", "sandbox", s.Alias(), "error", Quiet(err))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rec.State == Running && !s.halted {
			s.armIn(retryAfter)
		}
	case ended:
		s.r.opts.Log.Info("a sandbox's time is over", "sandbox", s.Alias())
		s.r.lose(s)
	default:
		s.renew(rec)
		s.arm()
	}
}

// sweepStale ends sandboxes whose server ended while making them.
func (r *Registry) sweepStale() {
	for _, s := range r.list() {
		if rec := s.Record(); !s.mine && isStale(rec) {
			r.tasks.Go(s.endStale)
		}
	}
}

func isStale(rec Record) bool { return rec.State == creating && time.Since(rec.Started) > staleAfter }

// endStale ends the sandbox unless its server has renewed the record.
func (s *Sandbox) endStale() {
	ctx, cancel := context.WithTimeout(s.r.ctx, shareTime)
	defer cancel()
	ended, rec, err := s.r.opts.Book.End(ctx, s.id, func(rec Record) bool { return rec.ID == "" || isStale(rec) })
	switch {
	case err != nil:
		s.r.opts.Log.Warn("a sandbox that was never finished can't be ended now; it is tried again", "sandbox", s.Alias(), "error", Quiet(err))
	case ended:
		s.r.opts.Log.Info("a sandbox was never finished; it is removed", "sandbox", s.Alias())
		s.r.lose(s)
	default:
		s.renew(rec)
		s.arm()
	}
}

// renewing renews the record of a sandbox that is being made until stop is called, so that other
// servers don't take it for stale.
func (s *Sandbox) renewing() (stop func()) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if !s.r.shared() || s.r.closed {
		return func() {}
	}
	done := make(chan struct{})
	s.r.tasks.Go(func() {
		tick := time.NewTicker(renewEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.renewStart()
			case <-done:
				return
			case <-s.r.ctx.Done():
				return
			}
		}
	})
	return func() { close(done) }
}

// renewStart renews the record once others may know it. Before that there may be nothing to renew.
func (s *Sandbox) renewStart() {
	if !s.wasHeard() {
		return
	}
	err := s.share(func(rec *Record) bool {
		rec.Started = now()
		return rec.State == creating
	})
	if err != nil {
		s.r.opts.Log.Warn("renew a sandbox that is being made", "sandbox", s.Alias(), "error", Quiet(err))
	}
}

// share changes the record in the book.
func (s *Sandbox) share(edit func(*Record) bool) error {
	if s.HasEnded() {
		return errGone
	}
	ctx, cancel := context.WithTimeout(s.r.ctx, shareTime)
	defer cancel()
	rec, err := s.r.opts.Book.Change(ctx, s.id, func(rec *Record) bool {
		s.restore(rec)
		return edit(rec)
	})
	if tool.KindOf(err) == tool.NotFound {
		s.r.lose(s)
		return errGone
	}
	if err != nil {
		return err
	}
	s.renew(rec)
	return nil
}

// restore replaces a record older than the one known here. The book never loses a change, so
// somebody must have put it back.
func (s *Sandbox) restore(rec *Record) {
	if known := s.Record(); rec.Version < known.Version && known.State != ending {
		*rec = known
	}
}

// renew updates the record from the book, unless the one here is newer.
func (s *Sandbox) renew(rec Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State != ending && rec.Version > s.rec.Version {
		s.rec = rec.clone()
	}
}

// heard records the sandbox's place among all updates.
func (s *Sandbox) heard(order int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order == 0 {
		s.order = order
		close(s.known)
	}
}

func (s *Sandbox) heardAt() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order
}

func (s *Sandbox) wasHeard() bool { return s.heardAt() > 0 }

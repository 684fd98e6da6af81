package registry

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// CreateNamed is like Create for a session with a name; begin makes it. The error for a name
// that the owner already uses is exists. The ports of a named sandbox are closed, and it isn't
// sampled.
func (r *Registry) CreateNamed(ctx context.Context, rec Record, life time.Duration, quota Quota, begin func(context.Context, Record) (Box, error)) (*Sandbox, error) {
	rec.ClosedPorts = true
	if err := r.recheck(ctx, rec.Owner, rec.Name); err != nil {
		return nil, err
	}
	return r.create(ctx, rec, life, quota, begin)
}

// recheck looks up a name in the [Book] that is taken here, because another server may have just
// ended that sandbox.
func (r *Registry) recheck(ctx context.Context, owner, name string) error {
	r.mu.Lock()
	s := r.named(owner, name)
	r.mu.Unlock()
	if !r.shared() || s == nil || !s.visible() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	e, err := r.opts.Book.Get(ctx, s.id)
	if tool.KindOf(err) == tool.NotFound {
		r.gone(s)
		return nil
	}
	if err == nil {
		r.learn(e, 0)
	}
	return err
}

// SeekNamed is like FindNamed, but looks up unknown names in the [Book], because another server
// may have just made the sandbox. The error is that of the lookup. The caller must limit the
// rate of lookups per owner.
func (r *Registry) SeekNamed(ctx context.Context, owner, name string) (*Sandbox, bool, error) {
	s, ok := r.FindNamed(owner, name)
	if ok || !r.shared() {
		return s, ok, nil
	}
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	all, err := r.opts.Book.Owned(ctx, owner)
	if err != nil {
		return nil, false, err
	}
	for _, e := range all {
		r.learn(e, 0)
	}
	s, ok = r.FindNamed(owner, name)
	return s, ok, nil
}

// FindNamed returns an owner's sandbox by its name.
func (r *Registry) FindNamed(owner, name string) (*Sandbox, bool) {
	r.mu.Lock()
	s := r.named(owner, name)
	r.mu.Unlock()
	return s, s != nil && s.visible()
}

// FindHalf returns a sandbox that another server began to create under a name. That server may
// have been killed before it finished.
func (r *Registry) FindHalf(owner, name string) (*Sandbox, bool) {
	r.mu.Lock()
	s := r.named(owner, name)
	r.mu.Unlock()
	return s, s != nil && r.shared() && !s.mine && s.state() == creating
}

// Named returns an owner's named sandboxes, sorted by name.
func (r *Registry) Named(owner string) []*Sandbox {
	all := r.those(func(s *Sandbox) bool { return s.owner == owner && s.isNamed() })
	slices.SortFunc(all, func(a, b *Sandbox) int { return strings.Compare(a.Record().Name, b.Record().Name) })
	return all
}

// Rename changes the name of a named sandbox. The error for a name that the owner already uses
// is exists. With a [Book] it is unsupported.
func (r *Registry) Rename(s *Sandbox, to string) error {
	if r.shared() { // another server may be using the name
		return tool.Errorf(tool.Unsupported, "the name of a session that several servers share can't be changed; save the session, and load the archive under the other name")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch other := r.named(s.owner, to); other {
	case s:
		return nil
	case nil:
	default:
		return errTaken(other.Record())
	}
	return s.keep(func(rec *Record) { rec.Name = to })
}

// named returns a sandbox that lives or, if there is none, one that is being made: one that another
// server is making may withdraw. The caller must hold mu.
func (r *Registry) named(owner, name string) (found *Sandbox) {
	for _, s := range r.all {
		if s.owner != owner || !s.calledBy(name) {
			continue
		}
		if found = s; s.visible() {
			break
		}
	}
	return found
}

func (s *Sandbox) calledBy(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return name != "" && s.rec.Name == name && s.rec.State != ending
}

func (s *Sandbox) isNamed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Name != ""
}

// errTaken returns the error for a name that another sandbox of the owner uses.
func errTaken(other Record) error {
	if other.State == creating {
		return tool.Errorf(tool.Exists, "session %q is being created; wait, or take another name; if its creation was cut off, remove it with wisbox rm, or wait %s", other.Name, staleAfter).In("name")
	}
	return tool.Errorf(tool.Exists, "session %q exists already; take another name or remove it", other.Name).In("name")
}

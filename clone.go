package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// Isolation is what a clone has of its own.
type Isolation string

// The kinds of clones.
const (
	// Full: its own workspace, container and interpreters. It begins with the
	// source's files; what one writes the other never sees.
	Full Isolation = "full"
	// Shared: nothing but its calls. It is a second handle on the same session,
	// which ends with its last handle.
	Shared Isolation = "shared"
)

// CloneOptions say what a clone is; nil is all defaults. All but Isolation and
// OnEvent are for full clones.
type CloneOptions struct {
	Isolation Isolation // default Full
	// Name and Kept as in [SessionOptions]; all other settings are the source's.
	Name string
	Kept bool
	// Remount copies the source's mounts again, over the files that it has now.
	Remount bool
	// OnEvent gets the clone's events; default the Manager's.
	OnEvent func(Event)
}

// Clone gives a second session that begins as this one is: its files, its
// settings, its digest and what it has defined in Lisp; not its processes, not
// what Python keeps, and not the secrets that only its holder knows. A full clone
// is made from a snapshot, whose content the two share on the disk; programs that
// write meanwhile are treated as by snapshot_create.
func (s *Session) Clone(ctx context.Context, opts *CloneOptions) (*Session, error) {
	o := CloneOptions{}
	if opts != nil {
		o = *opts
	}
	switch o.Isolation {
	case Shared:
		return s.share(o)
	case Full, "":
		all, err := s.fork(ctx, 1, o)
		if err != nil {
			return nil, err
		}
		return all[0], nil
	}
	return nil, tool.Errorf(tool.Invalid, "isolation is %q; it must be shared or full", o.Isolation).In("isolation")
}

// Fork is Clone n times from one state of the files, with full isolation. A Name
// gets -1 to -n added. On an error nothing of it is left.
func (s *Session) Fork(ctx context.Context, n int, opts *CloneOptions) ([]*Session, error) {
	o := CloneOptions{}
	if opts != nil {
		o = *opts
	}
	if n < 1 || n > maxForks {
		return nil, tool.Errorf(tool.Invalid, "n is %d; it must be 1 to %d", n, maxForks).In("n")
	}
	if o.Isolation == Shared {
		return nil, tool.Errorf(tool.Invalid, "a fork's isolation is full; Clone gives shared handles").In("isolation")
	}
	return s.fork(ctx, n, o)
}

const maxForks = 100

func (s *Session) share(o CloneOptions) (*Session, error) {
	_, done, err := s.enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer done()
	opts := s.opts
	opts.OnEvent = o.OnEvent
	return s.m.newHandle(s.work, opts)
}

func (s *Session) fork(ctx context.Context, n int, o CloneOptions) ([]*Session, error) {
	return observe(ctx, s, Event{Tool: "clone"}, func(ctx context.Context) ([]*Session, *tool.Result, error) {
		f, err := s.freeze(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		defer f.thaw(ctx)
		var made []*Session
		for i := range n {
			one, err := f.open(ctx, cloneName(o.Name, i, n))
			if err != nil {
				return nil, nil, errors.Join(err, closeAll(context.WithoutCancel(ctx), made))
			}
			made = append(made, one)
		}
		return made, &tool.Result{}, nil
	})
}

func cloneName(name string, i, n int) string {
	if name == "" || n == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

// closeAll takes back what a fork has made: kept clones too.
func closeAll(ctx context.Context, made []*Session) error {
	var errs []error
	for _, s := range made {
		errs = append(errs, s.Close(ctx))
		if s.opts.Kept {
			errs = append(errs, s.m.Remove(ctx, s.ID()))
		}
	}
	return errors.Join(errs...)
}

// frozen is one state of a session, from which clones are made.
type frozen struct {
	s     *Session
	store *snapshot.Store
	id    string
	opts  SessionOptions
	again bool // the mounts are copied again
}

func (s *Session) freeze(ctx context.Context, o CloneOptions) (*frozen, error) {
	opts, err := s.settings()
	if err != nil {
		return nil, err
	}
	opts.Kept, opts.OnEvent = o.Kept, o.OnEvent
	if l, ok := s.host.(*local); ok { // what a holder has in memory stays with it
		opts.Secrets = l.secrets.copy()
	}
	store, err := s.host.store()
	if err != nil {
		return nil, err
	}
	info, err := store.Create(ctx, &snapshot.CreateOptions{Label: "cloned from " + s.ID()})
	if err != nil {
		return nil, err
	}
	return &frozen{s: s, store: store, id: info.ID, opts: opts, again: o.Remount}, nil
}

// thaw forgets the source's own snapshot; the clones have theirs.
func (f *frozen) thaw(ctx context.Context) {
	if err := f.store.Forget(context.WithoutCancel(ctx), f.id); err != nil {
		f.s.m.log.Warn("forget the snapshot of a clone", "session", f.s.ID(), "error", err)
	}
}

func (f *frozen) open(ctx context.Context, name string) (*Session, error) {
	o := f.opts
	o.Name = name
	return f.s.m.openWith(ctx, &o, func(ctx context.Context, dir *overlay.Dir, o *SessionOptions) error {
		if err := errors.Join(f.copyTo(ctx, dir), f.copyLisp(dir)); err != nil || !f.again {
			return err
		}
		return f.s.m.copyMounts(ctx, dir, o)
	})
}

func (f *frozen) copyTo(ctx context.Context, dir *overlay.Dir) error {
	dst, err := newSnapshots(dir, f.opts, nil)
	if err != nil {
		return err
	}
	_, err = f.store.CloneTo(ctx, f.id, dst)
	return errors.Join(err, dst.Close())
}

// copyLisp gives the clone what the source has defined in Lisp.
func (f *frozen) copyLisp(dir *overlay.Dir) error {
	raw, err := readLisp(f.s.dir)
	if err != nil || raw == nil {
		return err
	}
	return writeLisp(dir, raw)
}

// settings are the session's as they stand on disk, with what was set since it
// was opened.
func (s *Session) settings() (SessionOptions, error) {
	state, err := s.dir.Reload()
	if err != nil {
		return SessionOptions{}, err
	}
	return settingsOf(state.Settings)
}

func settingsOf(raw json.RawMessage) (o SessionOptions, err error) {
	if err := json.Unmarshal(raw, &o); err != nil {
		return o, tool.Errorf(tool.Unavailable, "the session's settings can't be read").Because(err)
	}
	return o, nil
}

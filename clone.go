package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// CloneMode is what a clone has of its own.
type CloneMode string

// The kinds of clones.
const (
	// Full: its own workspace, container and interpreters. It begins with the
	// source's files; what one writes the other never sees.
	Full CloneMode = "full"
	// Shared: nothing but its calls. It is a second handle on the same session,
	// which ends with its last handle.
	Shared CloneMode = "shared"
)

// CloneOptions say what a clone is; nil is all defaults. All but Mode and
// OnEvent are for full clones.
type CloneOptions struct {
	Mode CloneMode // default Full
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
	switch o.Mode {
	case Shared:
		return s.share(o)
	case Full, "":
		all, err := s.fork(ctx, 1, o)
		if err != nil {
			return nil, err
		}
		return all[0], nil
	}
	return nil, tool.Errorf(tool.Invalid, "mode is %q; it must be shared or full", o.Mode).In("mode")
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
	if o.Mode == Shared {
		return nil, tool.Errorf(tool.Invalid, "a fork's mode is full; Clone gives shared handles").In("mode")
	}
	return s.fork(ctx, n, o)
}

const maxForks = 100

func (s *Session) share(o CloneOptions) (*Session, error) {
	_, leave, err := s.calls.Enter(context.Background())
	if err != nil {
		return nil, errClosed
	}
	opts := s.opts
	opts.OnEvent = o.OnEvent
	twin, err := s.m.newHandle(s.shared, opts)
	leave() // first: the end of the last handle waits for this call
	if err != nil {
		return nil, err
	}
	if !s.m.open.Add(twin) {
		return nil, errors.Join(errManagerClosed, twin.Close(context.Background()))
	}
	return twin, nil
}

// fork makes the directories of the clones; the session's executor copies into them.
func (s *Session) fork(ctx context.Context, n int, o CloneOptions) ([]*Session, error) {
	opts, err := s.settings()
	if err != nil {
		return nil, err
	}
	opts.Kept, opts.OnEvent = o.Kept, o.OnEvent
	all := make([]SessionOptions, n)
	for i := range all {
		all[i] = opts
		all[i].Name = cloneName(o.Name, i, n)
		if all[i], err = all[i].withDefaults(); err != nil {
			return nil, err
		}
	}
	return s.m.openAll(ctx, all, func(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions) error {
		return s.copyTo(ctx, dirs, all, o.Remount)
	})
}

func (s *Session) copyTo(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions, remount bool) error {
	op := copyOp{}
	for _, dir := range dirs {
		op.To = append(op.To, dir.ID())
	}
	answer, _, err := s.perform(ctx, op, hold.Streams{}, "")
	if err != nil {
		return err
	}
	if c, ok := answer.(copied); ok { // what a holder has in memory stays with it
		for i := range all {
			all[i].Secrets = outer(c.secrets)
		}
	}
	if !remount {
		return nil
	}
	return s.m.here.copyAllMounts(ctx, dirs, all)
}

func cloneName(name string, i, n int) string {
	if name == "" || n == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

// copyTo copies one state of the session into sessions that are being made.
func (l *local) copyTo(ctx context.Context, names []string) error {
	info, err := l.snapshots.Create(ctx, &snapshot.CreateOptions{Label: "cloned from " + l.dir.ID()})
	if err != nil {
		return err
	}
	defer l.forget(ctx, info.ID) // the clones have theirs
	for _, name := range names {
		if err := l.copyOne(ctx, info.ID, name); err != nil {
			return err
		}
	}
	return nil
}

func (l *local) forget(ctx context.Context, id string) {
	if err := l.snapshots.Forget(context.WithoutCancel(ctx), id); err != nil {
		l.m.log.Warn("forget the snapshot of a clone", "session", l.dir.ID(), "error", err)
	}
}

func (l *local) copyOne(ctx context.Context, id, name string) error {
	dir, err := l.m.store.Open(ctx, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	dst, err := newSnapshots(dir, l.opts, nil)
	if err != nil {
		return err
	}
	_, err = l.snapshots.CloneTo(ctx, id, dst)
	if err == nil {
		err = l.copyGiven(ctx, dir, dst)
	}
	return errors.Join(err, dst.Close(), l.copyLisp(dir), l.copyVersions(ctx, dir))
}

// copyLisp gives the clone what the source has defined in Lisp.
func (l *local) copyLisp(dir *overlay.Dir) error {
	raw, err := readLisp(l.dir)
	if err != nil || raw == nil {
		return err
	}
	return writeLisp(dir, raw)
}

func (l *local) copyVersions(ctx context.Context, dir *overlay.Dir) error {
	raw, err := l.files.Carried(ctx)
	if err != nil {
		return err
	}
	return writeVersions(dir, raw)
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

// Template is the state of a session's files, kept longer than the session, with what
// others that begin with it are made with. See [SessionOptions.Template].
type Template = templates.Template

// TemplateOptions of [Session.CreateTemplate]; nil is all defaults.
type TemplateOptions struct {
	// Name is what [SessionOptions.Template] may say instead of the ID: 1 to 128 letters,
	// digits and . _ / : -. Where several have the same name it stands for the newest.
	Name string `json:"name,omitempty"`
	// Owner is whom the template is kept for; names are its own. Default "".
	Owner string `json:"owner,omitempty"`
}

// CreateTemplate keeps the session's files as they are, its image and its variables, for
// sessions that begin with them, also when this one is gone. It takes room on the disk
// for what no snapshot of the session has yet. Programs that write meanwhile are treated
// as by snapshot_create; nothing of them, of secrets, mounts and rules of the network is
// kept. On an error nothing is left.
func (s *Session) CreateTemplate(ctx context.Context, opts *TemplateOptions) (Template, error) {
	op := templateOp{}
	if opts != nil {
		op.TemplateOptions = *opts
	}
	return perform[Template](ctx, s, op, hold.Streams{})
}

// IsTemplateID reports whether a text has the form of a template's ID, as no name has.
func IsTemplateID(s string) bool { return templates.IsID(s) }

func (h *here) templates() *templates.Store { return h.kept }

// Templates are all of the state root, the newest first. Where one can't be read the
// others stand beside the error.
func (m *Manager) Templates() ([]Template, error) {
	all, err := m.here.templates().List()
	return all, asToolError(err)
}

// FindTemplate finds one by its ID, or the newest of an owner by its name. Where there is
// none it is not_found.
func (m *Manager) FindTemplate(ref, owner string) (Template, error) {
	t, err := m.here.templates().Find(ref, owner)
	return t, asToolError(err)
}

// RemoveTemplate removes a template by its ID. Sessions that began with it don't need it;
// an image that was built for it goes when none of them needs that, see
// [Manager.PruneTemplates].
func (m *Manager) RemoveTemplate(ctx context.Context, id string) error {
	err := m.here.templates().Remove(ctx, id)
	if err == nil {
		m.pruneImages(context.WithoutCancel(ctx), time.Time{}, id)
	}
	return asToolError(err)
}

// templateOp makes a template of the session.
type templateOp struct {
	TemplateOptions
	Built *builtAs `json:"built,omitempty"` // nil: its image is others', too
}

// builtAs says what a template is whose image was built for it.
type builtAs struct {
	ID   string   `json:"id"`
	Tags []string `json:"tags"`
	Disk int64    `json:"disk"` // that the image takes
}

func (o templateOp) event() Event { return Event{Tool: "template"} }

func (o templateOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	t, err := l.createTemplate(ctx, o)
	return t, journal.Outcome{}, asToolError(err)
}

func (l *local) createTemplate(ctx context.Context, o templateOp) (t Template, err error) {
	if o.Name != "" {
		if err := templates.CheckName(o.Name); err != nil {
			return t, err
		}
	}
	opts, extra, err := l.carried(ctx)
	if err != nil {
		return t, err
	}
	info, err := l.snapshots.Create(ctx, &snapshot.CreateOptions{Label: "kept as a template"})
	if err != nil {
		return t, err
	}
	defer l.forget(ctx, info.ID) // the template has its own
	t = Template{Name: o.Name, Owner: o.Owner, Session: l.dir.ID(), Image: opts.Image, Files: info.Files, Bytes: info.Bytes}
	if b := o.Built; b != nil {
		t.Built, t.ID, t.Tags, t.ImageDisk = true, b.ID, b.Tags, b.Disk
	}
	return l.m.templates().Create(ctx, t, templates.Source{Snapshots: l.snapshots, ID: info.ID, Extra: extra, Room: l.dir.Reserve})
}

// openFrom opens a session that begins with a template.
func (m *Manager) openFrom(ctx context.Context, opts SessionOptions) (*Session, error) {
	found, err := m.FindTemplate(opts.Template, "")
	if err != nil {
		return nil, err
	}
	used, err := m.here.templates().Use(ctx, found.ID)
	if err != nil {
		return nil, asToolError(err)
	}
	defer used.Close()
	from, err := settingsOf(used.Extra[settingsName])
	if err != nil {
		return nil, err
	}
	opts.beginWith(from)
	opts.Template = used.ID
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := m.here.pullImage(ctx, &o); err != nil {
		return nil, err
	}
	return m.openWith(ctx, &o, func(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions) error {
		if err := fillFrom(ctx, used, dirs[0], all[0]); err != nil {
			return err
		}
		return m.here.copyAllMounts(ctx, dirs, all)
	})
}

// beginWith takes what is left out from a template: what programs need that find its files.
func (o *SessionOptions) beginWith(from SessionOptions) {
	if o.Image == "" {
		o.Image, o.Pull = from.Image, cmp.Or(o.Pull, from.Pull)
	}
	env := maps.Clone(from.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, o.Env)
	o.Env = env
	o.Profile, o.Isolation = cmp.Or(o.Profile, from.Profile), cmp.Or(o.Isolation, from.Isolation)
	o.UserHome = o.UserHome || from.UserHome
}

func fillFrom(ctx context.Context, used *templates.Used, dir *overlay.Dir, o SessionOptions) error {
	store, err := newSnapshots(dir, o, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(used.FillInto(ctx, store), store.Close()); err != nil {
		return err
	}
	return writeCarried(dir, used.Extra)
}

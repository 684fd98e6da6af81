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

// CloneMode is the kind of a clone.
type CloneMode string

// Kinds of clones.
const (
	// Full: a clone with its own workspace, container and interpreters. It begins with the source's
	// files; later changes of one are never visible to the other.
	Full CloneMode = "full"
	// Shared: a second handle on the same session. The session ends with its last handle.
	Shared CloneMode = "shared"
)

// CloneOptions are options of [Session.Clone]; nil means all defaults. All fields except Mode and
// OnEvent are only for full clones.
type CloneOptions struct {
	Mode CloneMode // default Full
	// Name and Kept are as in [SessionOptions]; all other settings are the source's.
	Name string
	Kept bool
	// Remount copies the source's mounts again, over its present files.
	Remount bool
	// OnEvent is called with the clone's events; default: the Manager's.
	OnEvent func(Event)
	// OnLeft is called with what a clone on this machine doesn't have: FIFOs, sockets and devices, and
	// files that it has without some attributes, such as access lists. Default nothing.
	OnLeft func(skipped, unkept []string)

	idle  time.Duration // of a clone that a client on another machine doesn't keep
	names []string      // of the clones, instead of Name
}

// Clone returns a second session with the same files, settings, digest and Lisp definitions. It has
// neither the processes of this session, nor its kept Python interpreters, nor the secrets that only
// its holder knows. A full clone is made from a snapshot, whose content the two share on the disk;
// files that programs write meanwhile are handled as by snapshot_create.
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

// Fork makes n full clones of the same state of the files. It appends -1 to -n to Name. After an error
// nothing is left.
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
	leave() // must come first: the end of the last handle waits for this call
	if err != nil {
		return nil, err
	}
	if !s.m.open.Add(twin) {
		return nil, errors.Join(errManagerClosed, twin.Close(context.Background()))
	}
	return twin, nil
}

func (s *Session) fork(ctx context.Context, n int, o CloneOptions) ([]*Session, error) {
	made, err := s.m.place.fork(ctx, s, n, o)
	if err != nil {
		return nil, err
	}
	return s.m.sessions(ctx, made)
}

// fork creates the directories of the clones; the session's executor copies into them.
func (h *here) fork(ctx context.Context, s *Session, n int, o CloneOptions) ([]*opened, error) {
	opts, err := settingsIn(s.at.(*folder).Dir)
	if err != nil {
		return nil, err
	}
	opts.Kept, opts.OnEvent, opts.Idle = o.Kept, o.OnEvent, cmp.Or(o.idle, opts.Idle)
	all := make([]SessionOptions, n)
	for i := range all {
		all[i] = opts
		if all[i].Name = cloneName(o.Name, i, n); o.names != nil {
			all[i].Name = o.names[i]
		}
		if all[i], err = all[i].withDefaults(); err != nil {
			return nil, err
		}
	}
	return h.create(ctx, all, func(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions) error {
		return h.copyInto(ctx, s, dirs, all, o)
	})
}

func (h *here) copyInto(ctx context.Context, s *Session, dirs []*overlay.Dir, all []SessionOptions, o CloneOptions) error {
	op := copyOp{}
	for _, dir := range dirs {
		op.To = append(op.To, dir.ID())
	}
	answer, _, err := s.perform(ctx, op, hold.Streams{}, "")
	if err != nil {
		return err
	}
	c, err := answerAs[copied](answer)
	if err != nil {
		return err
	}
	if c.secrets != nil { // the memory of a holder stays with it
		for i := range all {
			all[i].Secrets = outer(c.secrets)
		}
	}
	if o.OnLeft != nil {
		o.OnLeft(c.Skipped, c.Unkept)
	}
	if !o.Remount {
		return nil
	}
	return h.copyAllMounts(ctx, dirs, all)
}

func cloneName(name string, i, n int) string {
	if name == "" || n == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

// copyTo copies one state of the session into sessions that are being created.
func (l *local) copyTo(ctx context.Context, names []string) (snapshot.Info, error) {
	info, err := l.snapshots.Create(ctx, &snapshot.CreateOptions{Label: "cloned"})
	if err != nil {
		return info, err
	}
	defer l.forget(ctx, info.ID) // the clones have their own
	for _, name := range names {
		if err := l.copyOne(ctx, info.ID, name); err != nil {
			return info, err
		}
	}
	return info, nil
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

// copyLisp copies the source's Lisp definitions into the clone.
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

// settingsIn returns a session's settings on disk, with the changes since it was opened.
func settingsIn(dir *overlay.Dir) (SessionOptions, error) {
	state, err := dir.Reload()
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

// Template is the state of a session's files, which outlives the session, with the settings for new
// sessions that begin with it. See [SessionOptions.Template].
type Template = templates.Template

// TemplateOptions are options of [Session.CreateTemplate]; nil means all defaults.
type TemplateOptions struct {
	// Name is a name for [SessionOptions.Template] to use instead of the ID: 1 to 128 letters, digits
	// and . _ / : -. If several templates have the same name, it means the newest.
	Name string `json:"name,omitempty"`
	// Owner is the owner of the template. Names of different owners are independent. Default "".
	Owner string `json:"owner,omitempty"`
}

// CreateTemplate stores the session's current files, its image and its variables, for new sessions
// that begin with them, even after this one is gone. It takes disk space for content that no
// snapshot of the session has yet. Files that programs write meanwhile are handled as by
// snapshot_create. A template has no programs, secrets, mounts and network rules. After an error
// nothing is left.
func (s *Session) CreateTemplate(ctx context.Context, opts *TemplateOptions) (Template, error) {
	op := templateOp{}
	if opts != nil {
		op.TemplateOptions = *opts
	}
	return perform[Template](ctx, s, op, hold.Streams{})
}

// IsTemplateID reports whether a text has the form of a template's ID, which names never have.
func IsTemplateID(s string) bool { return templates.IsID(s) }

// Templates returns all templates of the state root, the newest first. If one can't be read, it
// returns the others together with an error.
func (m *Manager) Templates() ([]Template, error) {
	return m.place.templates()
}

// FindTemplate finds a template by its ID, or the newest of an owner by its name. If there is none,
// the error is not_found.
func (m *Manager) FindTemplate(ref, owner string) (Template, error) {
	return m.place.findTemplate(ref, owner)
}

// RemoveTemplate removes a template by its ID. Sessions that began with it don't need it. An image
// that was built for it is removed once no session needs it, see [Manager.PruneTemplates].
func (m *Manager) RemoveTemplate(ctx context.Context, id string) error {
	return m.place.removeTemplate(ctx, id)
}

func (h *here) templates() ([]Template, error) {
	all, err := h.kept.List()
	return all, asToolError(err)
}

func (h *here) findTemplate(ref, owner string) (Template, error) {
	t, err := h.kept.Find(ref, owner)
	return t, asToolError(err)
}

func (h *here) removeTemplate(ctx context.Context, id string) error {
	err := h.kept.Remove(ctx, id)
	if err == nil {
		h.pruneImages(context.WithoutCancel(ctx), time.Time{}, id)
	}
	return asToolError(err)
}

// templateOp makes a template of the session.
type templateOp struct {
	TemplateOptions
	Built *builtAs `json:"built,omitempty"` // nil if the image has other uses too
}

// builtAs describes a template whose image was built for it.
type builtAs struct {
	ID   string   `json:"id"`
	Tags []string `json:"tags"`
	Disk int64    `json:"disk"` // the size of the image
}

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
	t = Template{Name: o.Name, Owner: o.Owner, Session: l.dir.ID(), Image: opts.Image, Files: info.Files, Bytes: info.Bytes, Skipped: info.Skipped, Unkept: info.Unkept}
	if b := o.Built; b != nil {
		t.Built, t.ID, t.Tags, t.ImageDisk = true, b.ID, b.Tags, b.Disk
	}
	return l.m.kept.Create(ctx, t, templates.Source{Snapshots: l.snapshots, ID: info.ID, Extra: extra, Room: l.dir.Reserve})
}

// openFrom opens a session that begins with a template.
func (h *here) openFrom(ctx context.Context, opts SessionOptions) (*opened, error) {
	found, err := h.kept.Find(opts.Template, "")
	if err != nil {
		return nil, asToolError(err)
	}
	used, err := h.kept.Use(ctx, found.ID)
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
	if err := h.pullImage(ctx, &o); err != nil {
		return nil, err
	}
	return h.openWith(ctx, o, func(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions) error {
		if err := fillFrom(ctx, used, dirs[0], all[0]); err != nil {
			return err
		}
		return h.copyAllMounts(ctx, dirs, all)
	})
}

// beginWith takes missing settings from a template: those by which programs find its files.
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

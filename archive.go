package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/internal/settings"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// settingsName is the name of the settings' file in an archive.
const settingsName = "settings.json"

func (l *local) save(ctx context.Context, w io.Writer) (snapshot.Info, error) {
	_, extra, err := l.carried(ctx)
	if err != nil {
		return snapshot.Info{}, err
	}
	if given, err := readSnapshotID(l.dir, givenRecord); err != nil {
		return snapshot.Info{}, err
	} else if given != nil {
		extra[givenRecord] = given
	}
	return l.snapshots.Export(ctx, w, extra)
}

// carried returns the state that a copy of this session needs in addition to its files: the
// settings, which are also in the map, the Lisp definitions, and the files' versions.
func (l *local) carried(ctx context.Context) (opts SessionOptions, extra map[string][]byte, err error) {
	state, err := l.dir.Reload()
	if err != nil {
		return opts, nil, err
	}
	if opts, err = settingsOf(state.Settings); err != nil {
		return opts, nil, err
	}
	opts.dropHostPaths()
	raw, err := json.Marshal(opts)
	if err != nil {
		return opts, nil, err
	}
	extra = map[string][]byte{settingsName: raw}
	defined, err := readLisp(l.dir)
	if err != nil {
		return opts, nil, err
	}
	if defined != nil {
		extra[lispRecord] = defined
	}
	extra[versionsRecord], err = l.files.Carried(ctx)
	return opts, extra, err
}

// writeCarried writes the carried state, except for the settings, into a session that is being
// created.
func writeCarried(dir *overlay.Dir, extra map[string][]byte) (err error) {
	if defined := extra[lispRecord]; defined != nil {
		err = writeLisp(dir, defined)
	}
	if known := extra[versionsRecord]; err == nil && known != nil {
		err = writeVersions(dir, known)
	}
	return err
}

// LoadOptions are options of [Manager.Load]; nil means all defaults.
type LoadOptions struct {
	// Name and Kept are as in [SessionOptions].
	Name string
	Kept bool
	// Settings are the session's settings. Default: wisbox's own. Name and Kept above apply if
	// these have none.
	Settings *SessionOptions
	// WithSettings also takes the archive's settings, such as its image and variables, but no bound
	// that is wider than that of Settings, no weaker isolation, and nothing that names a file of
	// the host. Use it only for your own archives.
	WithSettings bool
	// OnLeftOut is called with the settings of the archive that the session doesn't have.
	OnLeftOut func(settings []string)
}

// Load creates a session from an archive that [Session.Save] wrote, which it reads to its end. It
// checks every part before it creates the session, and reads no other file of the host. After an
// error nothing is left.
func (m *Manager) Load(ctx context.Context, r io.Reader, opts *LoadOptions) (*Session, error) {
	o := LoadOptions{}
	if opts != nil {
		o = *opts
	}
	made, left, err := m.place.load(ctx, r, o)
	if err != nil {
		return nil, err
	}
	s, err := m.oneOf(m.sessions(ctx, []*opened{made}))
	if err == nil && o.OnLeftOut != nil && len(left) > 0 {
		o.OnLeftOut(left)
	}
	return s, err
}

func (h *here) load(ctx context.Context, r io.Reader, opts LoadOptions) (*opened, []string, error) {
	archive, err := snapshot.OpenArchive(r)
	if err != nil {
		return nil, nil, err
	}
	if opts.Settings != nil { // the image that the archive names is fetched from nowhere
		if err := h.pullImage(ctx, opts.Settings); err != nil {
			return nil, nil, err
		}
	}
	o, left, err := opts.settings(archive)
	if err != nil {
		return nil, nil, err
	}
	made, err := h.openWith(ctx, *o, func(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions) error {
		store, err := newSnapshots(dirs[0], all[0], nil)
		if err != nil {
			return err
		}
		err = errors.Join(store.Import(ctx, archive), store.Close())
		if err == nil {
			err = writeCarried(dirs[0], archive.Extra)
		}
		if given := archive.Extra[givenRecord]; err == nil && given != nil {
			err = writeSnapshotID(dirs[0], givenRecord, given)
		}
		return err
	})
	return made, left, err
}

// dropHostPaths drops settings that name files of one host, and those that open the network.
func (o *SessionOptions) dropHostPaths() {
	o.Mounts, o.MountsFrom, o.AllowedRoots, o.Secrets, o.Seccomp = nil, "", nil, nil, ""
	o.setRules(door.Rules{}) // the person who loads it decides about the network
	o.Services = nil         // and about the images to run
}

// settings returns the session's settings, and the names of the archive's settings that it lacks.
func (opts LoadOptions) settings(a *snapshot.Archive) (*SessionOptions, []string, error) {
	own := SessionOptions{}
	if opts.Settings != nil {
		own = *opts.Settings
	}
	own.Name, own.Kept = cmp.Or(own.Name, opts.Name), own.Kept || opts.Kept
	if err := box.CheckSecrets(inner(own.Secrets)); err != nil {
		return nil, nil, err
	}
	raw, ok := a.Extra[settingsName]
	if !ok {
		return nil, nil, tool.Errorf(tool.Invalid, "the archive has no session settings; use one that wisbox save wrote")
	}
	for name := range a.Extra {
		if name != settingsName && name != lispRecord && name != versionsRecord && name != givenRecord {
			return nil, nil, tool.Errorf(tool.Invalid, "the archive has the file %s, which wisbox never writes; use one that wisbox save wrote", name)
		}
	}
	if len(raw) > maxSettings { // before they are read: they may list what takes 30 times their bytes
		return nil, nil, tool.Errorf(tool.TooLarge, "the archive's settings have %d bytes; the maximum is %d; use one that wisbox save wrote", len(raw), maxSettings)
	}
	from, err := settingsOf(raw)
	if err != nil {
		return nil, nil, tool.Errorf(tool.Invalid, "the archive's settings can't be read; use one that wisbox save wrote").Because(err)
	}
	merged, left := takeSettings(own, from, opts.WithSettings)
	return &merged, left, nil
}

const maxSettings = 1 << 20 // bytes of an archive's settings

var archiveSettings = settings.Of[SessionOptions]("archive")

// takeSettings adds an archive's settings to a session's own, or only returns their names.
func takeSettings(own, from SessionOptions, take bool) (_ SessionOptions, left []string) {
	is, was := own.callsBounded(), from.callsBounded()
	if was.Limits.Shm == was.Limits.Memory/4 { // the default
		was.Limits.Shm = 0
	}
	if was.Limits.FileSize == was.Limits.Disk { // the default
		was.Limits.FileSize = 0
	}
	t := taker{take: take, seen: map[string]bool{}}
	t.checked(&own, from)
	for _, f := range archiveSettings {
		switch mine, its := f.In(&own), f.In(&from); f.Rule {
		case "missing":
			t.set(f.Path, mine.IsZero() && !its.IsZero(), true, func() { mine.Set(its) })
		case "tighter":
			bound, present := f.In(&was), f.In(&is)
			given := !bound.IsZero() && !bound.Equal(present) && (f.Path != f.Name || !its.IsZero())
			t.set(f.Path, given, settings.Less(bound, present), func() { mine.Set(bound) })
		case "left":
			t.set(f.Path, !absent(its), false, nil)
		case "egress":
			t.set("egress", !absent(its), false, nil)
		}
	}
	return own, slices.Sorted(maps.Keys(t.seen))
}

// bounded returns the options with the defaults of what bounds a session.
func (o *SessionOptions) bounded() SessionOptions {
	all := *o
	all.Limits, all.SnapshotSpace, all.MaxProcesses = o.Limits.WithDefaults(), o.snapshotSpace(), cmp.Or(o.MaxProcesses, shelltool.MaxProcesses)
	return all
}

// callsBounded returns them also with the defaults of what bounds a call.
func (o *SessionOptions) callsBounded() SessionOptions {
	all := o.bounded()
	all.MaxTimeout, all.MaxEvalTimeout = cmp.Or(o.MaxTimeout, 120*time.Second), cmp.Or(o.MaxEvalTimeout, 5*time.Second)
	all.MaxOutput, all.MaxCode = cmp.Or(o.MaxOutput, evaltool.StreamChars), cmp.Or(o.MaxCode, 2_000)
	return all
}

func absent(v reflect.Value) bool { return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 }

// taker takes settings of an archive one by one, or notes the ones that it doesn't take.
type taker struct {
	take bool
	seen map[string]bool // those not taken
}

// set takes a setting that is given, if it may be taken.
func (t *taker) set(name string, given, may bool, take func()) {
	switch {
	case !given:
	case t.take && may:
		take()
	default:
		t.seen[name] = true
	}
}

// checked takes the settings with rules of their own.
func (t *taker) checked(own *SessionOptions, from SessionOptions) {
	t.set("image", own.Image == "" && from.Image != images.Default, true, func() { own.Image = from.Image })
	t.set("isolation", own.Isolation == "" && from.Isolation == sandbox.IsolationGVisor, true, func() { own.Isolation = from.Isolation })
	t.set("paths", from.Paths == vfs.Any && own.Paths != vfs.Any, false, nil)
	t.set("env", len(from.Env) > 0, true, func() {
		env := maps.Clone(from.Env)
		maps.Copy(env, own.Env)
		own.Env = env
	})
}

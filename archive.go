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
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
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
	from, err := settingsOf(raw)
	if err != nil || len(raw) > maxSettings {
		return nil, nil, tool.Errorf(tool.Invalid, "the archive's settings can't be read; use one that wisbox save wrote").Because(err)
	}
	merged, left := takeSettings(own, from, opts.WithSettings)
	return &merged, left, nil
}

const maxSettings = 1 << 20 // bytes of an archive's settings

// takeSettings adds an archive's settings to a session's own, or only returns their names.
func takeSettings(own, from SessionOptions, take bool) (_ SessionOptions, left []string) {
	t := taker{take: take}
	setting(&t, "image", &own.Image, from.Image, own.Image == "" && from.Image != images.Default)
	t.limits(&own.Limits, from.Limits)
	bound(&t, "snapshot_space", &own.SnapshotSpace, from.SnapshotSpace, own.snapshotSpace())
	if len(from.Env) > 0 {
		t.set("env", true, func() {
			env := maps.Clone(from.Env)
			maps.Copy(env, own.Env)
			own.Env = env
		})
	}
	for _, b := range []struct {
		name string
		own  *bool
		from bool
	}{
		{"read_before_write", &own.ReadBeforeWrite, from.ReadBeforeWrite}, {"auto_snapshot", &own.AutoSnapshot, from.AutoSnapshot},
		{"rollback_on_failure", &own.RollbackOnFailure, from.RollbackOnFailure}, {"fsync", &own.Fsync, from.Fsync}, {"strict", &own.Strict, from.Strict},
	} {
		setting(&t, b.name, b.own, b.from, b.from && !*b.own)
	}
	setting(&t, "profile", &own.Profile, from.Profile, own.Profile == "" && from.Profile != "")
	setting(&t, "isolation", &own.Isolation, from.Isolation, own.Isolation == "" && from.Isolation == sandbox.IsolationGVisor)
	setting(&t, "userns", &own.UserNS, from.UserNS, own.UserNS == "" && from.UserNS != "")
	bound(&t, "max_timeout", &own.MaxTimeout, from.MaxTimeout, cmp.Or(own.MaxTimeout, 120*time.Second))
	bound(&t, "max_eval_timeout", &own.MaxEvalTimeout, from.MaxEvalTimeout, cmp.Or(own.MaxEvalTimeout, 5*time.Second))
	bound(&t, "max_output", &own.MaxOutput, from.MaxOutput, cmp.Or(own.MaxOutput, evaltool.StreamChars))
	bound(&t, "max_code", &own.MaxCode, from.MaxCode, cmp.Or(own.MaxCode, 2_000))
	setting(&t, "digest", &own.Digest, from.Digest, own.Digest == nil && from.Digest != nil)
	setting(&t, "digest_tag", &own.DigestTag, from.DigestTag, own.DigestTag == "" && from.DigestTag != "")
	setting(&t, "ttl", &own.TTL, from.TTL, own.TTL == 0 && from.TTL != 0)
	setting(&t, "idle", &own.Idle, from.Idle, own.Idle == 0 && from.Idle != 0)
	for name, has := range map[string]bool{
		"mounts": len(from.Mounts) > 0, "allowed_roots": len(from.AllowedRoots) > 0, "secrets": len(from.Secrets) > 0, "seccomp": from.Seccomp != "",
		"services": len(from.Services) > 0, "paths": from.Paths == vfs.Any && own.Paths != vfs.Any,
		"egress": !reflect.DeepEqual(from.rules(), door.Rules{}),
	} {
		if has {
			t.left = append(t.left, name)
		}
	}
	slices.Sort(t.left)
	return own, t.left
}

// taker takes settings of an archive one by one, or records the ones that it doesn't take.
type taker struct {
	take bool
	left []string
}

func (t *taker) set(name string, may bool, take func()) {
	if t.take && may {
		take()
		return
	}
	t.left = append(t.left, name)
}

// setting takes a setting that the archive has and the session lacks.
func setting[T any](t *taker, name string, own *T, from T, has bool) {
	if has {
		t.set(name, true, func() { *own = from })
	}
}

// bound takes a bound unless it is wider than the present one.
func bound[T cmp.Ordered](t *taker, name string, own *T, from, is T) {
	var none T
	if from != none && from != is {
		t.set(name, from > none && from < is, func() { *own = from })
	}
}

func (t *taker) limits(own *sandbox.Limits, from sandbox.Limits) {
	is, was := own.WithDefaults(), from.WithDefaults()
	bound(t, "limits.cpus", &own.CPUs, was.CPUs, is.CPUs)
	bound(t, "limits.memory", &own.Memory, was.Memory, is.Memory)
	bound(t, "limits.pids", &own.PIDs, was.PIDs, is.PIDs)
	bound(t, "limits.tmp", &own.Tmp, was.Tmp, is.Tmp)
	if was.Shm != was.Memory/4 { // the default
		bound(t, "limits.shm", &own.Shm, was.Shm, is.Shm)
	}
	bound(t, "limits.disk", &own.Disk, was.Disk, is.Disk)
	bound(t, "limits.inodes", &own.Inodes, was.Inodes, is.Inodes)
	bound(t, "limits.nofile", &own.NoFile, was.NoFile, is.NoFile)
	if was.FileSize != was.Disk { // the default
		bound(t, "limits.file_bytes", &own.FileSize, was.FileSize, is.FileSize)
	}
}

package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// settingsName is the archive's file of the session's settings.
const settingsName = "settings.json"

// Save writes an archive of the session: its workspace as it is, its snapshots,
// what it has defined in Lisp, and its settings (the variables of its programs
// too, so treat the archive as you treat them). [Manager.Load] makes a session of it, here or on another
// machine. What runs and what interpreters keep is not in it.
func (s *Session) Save(ctx context.Context, w io.Writer) (snapshot.Info, error) {
	return observe(ctx, s, Event{Tool: "save"}, func(ctx context.Context) (snapshot.Info, *tool.Result, error) {
		opts, err := s.settings()
		if err != nil {
			return snapshot.Info{}, nil, err
		}
		opts.dropHostPaths()
		raw, err := json.Marshal(opts)
		if err != nil {
			return snapshot.Info{}, nil, err
		}
		store, err := s.host.store()
		if err != nil {
			return snapshot.Info{}, nil, err
		}
		extra := map[string][]byte{settingsName: raw}
		if defined, err := readLisp(s.dir); err != nil {
			return snapshot.Info{}, nil, err
		} else if defined != nil {
			extra[lispRecord] = defined
		}
		info, err := store.Export(ctx, w, extra)
		return info, &tool.Result{}, err
	})
}

// LoadOptions say what becomes of an archive; nil is all defaults.
type LoadOptions struct {
	// Name and Kept as in [SessionOptions].
	Name string
	Kept bool
	// Settings of the session instead of those in the archive; its Name and Kept
	// count. Use it where the archive comes from somebody else.
	Settings *SessionOptions
}

// Load makes a session of an archive that [Session.Save] wrote. Every object of
// it is checked first, and no host file is read for it: mounts, secrets and a
// seccomp profile in its settings are left out. On any error nothing is left.
func (m *Manager) Load(ctx context.Context, r io.Reader, opts *LoadOptions) (*Session, error) {
	archive, err := snapshot.OpenArchive(r)
	if err != nil {
		return nil, err
	}
	o, err := opts.settings(archive)
	if err != nil {
		return nil, err
	}
	return m.openWith(ctx, o, func(ctx context.Context, dir *overlay.Dir, o *SessionOptions) error {
		store, err := newSnapshots(dir, *o, nil)
		if err != nil {
			return err
		}
		err = errors.Join(store.Import(ctx, archive), store.Close())
		if defined := archive.Extra[lispRecord]; err == nil && defined != nil {
			err = writeLisp(dir, defined)
		}
		return err
	})
}

// dropHostPaths leaves out what names files of one host.
func (o *SessionOptions) dropHostPaths() {
	o.Mounts, o.AllowedRoots, o.Secrets, o.Seccomp = nil, nil, nil, ""
}

func (o *LoadOptions) settings(a *snapshot.Archive) (*SessionOptions, error) {
	if o != nil && o.Settings != nil {
		return o.Settings, checkSecrets(o.Settings.Secrets)
	}
	raw, ok := a.Extra[settingsName]
	if !ok {
		return nil, tool.Errorf(tool.Invalid, "the archive has no settings of a session")
	}
	s, err := settingsOf(raw)
	if err != nil {
		return nil, tool.Errorf(tool.Invalid, "the archive's settings can't be read").Because(err)
	}
	s.dropHostPaths()
	if o != nil {
		s.Name, s.Kept = o.Name, o.Kept
	}
	return &s, nil
}

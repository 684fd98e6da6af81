package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/vfs"
)

// Digest is the session's digest for its caller: to read it, to replace it for
// this session or for all that share the store and tag, and to have a better one
// written ([digest.Digester.Optimize]). Agents have workspace_digest, which
// replaces it for their session only.
func (s *Session) Digest() *digest.Digester { return s.m.newDigest(s.dir, s.opts, s.files()) }

// newDigest keeps a digest that a caller has set with the session's settings,
// where every process that has the session open finds it.
func (m *Manager) newDigest(dir *overlay.Dir, opts SessionOptions, files *vfs.FS) *digest.Digester {
	o := &digest.Options{Files: files.FS(), Log: m.log, Overrides: m.opts.Digests, Tag: opts.DigestTag}
	if o.Overrides == nil {
		o.Overrides = digestDir(filepath.Join(m.store.Path(), "digests"))
	}
	o.Kept = func(context.Context) (*digest.Text, error) {
		state, err := dir.Reload()
		if err != nil {
			return nil, err
		}
		settings, err := settingsOf(state.Settings)
		return settings.Digest, err
	}
	o.Keep = func(ctx context.Context, text *digest.Text) error {
		return dir.Update(ctx, func(s *overlay.State) error {
			settings, err := settingsOf(s.Settings)
			if err != nil {
				return err
			}
			settings.Digest = text
			s.Settings, err = json.Marshal(settings)
			return err
		})
	}
	return digest.New(o)
}

// digestDir is a digest.Dir that is made when it is first written.
type digestDir string

// Get implements digest.Overrides.
func (d digestDir) Get(ctx context.Context, key, tag string) (digest.Text, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return digest.Text{}, err
	}
	defer root.Close()
	return digest.Dir{Root: root}.Get(ctx, key, tag)
}

// Put implements digest.Overrides.
func (d digestDir) Put(ctx context.Context, key, tag string, text digest.Text) error {
	if err := os.Mkdir(string(d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return err
	}
	defer root.Close()
	return digest.Dir{Root: root}.Put(ctx, key, tag, text)
}

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
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Digest is the session's digest for its caller: to read it, to replace it for
// this session or for all that share the store and tag, and to have a better one
// written ([digest.Digester.Optimize]). Agents have workspace_digest, which
// replaces it for their session only.
func (s *Session) Digest() *digest.Digester { return s.m.here.newDigest(s.dir, s.opts, s.vfs.Load()) }

// newDigest keeps a digest that a caller has set with the session's settings,
// where every process that has the session open finds it.
func (h *here) newDigest(dir *overlay.Dir, opts SessionOptions, files *vfs.FS) *digest.Digester {
	o := &digest.Options{Files: files.FS(), Log: h.log, Overrides: h.digests(), Tag: opts.DigestTag}
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

// Digest is the digest of all sessions that have none of their own, under the tag
// [digest.DefaultTag]: it has no files, and nothing can be set at the scope of a
// session.
func (m *Manager) Digest() *digest.Digester {
	refuse := func(context.Context, *digest.Text) error {
		return tool.Errorf(tool.Unsupported, "this is the digest of all sessions; take one to set its own").In("scope")
	}
	return digest.New(&digest.Options{
		Log: m.here.log, Overrides: m.here.digests(), Keep: refuse,
		Kept: func(context.Context) (*digest.Text, error) { return nil, nil },
	})
}

func (h *here) digests() digest.Overrides {
	if h.opts.Digests != nil {
		return h.opts.Digests
	}
	return digestDir(filepath.Join(h.store.Path(), "digests"))
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

// Delete implements digest.Overrides.
func (d digestDir) Delete(ctx context.Context, key, tag string) error {
	root, err := os.OpenRoot(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return digest.Dir{Root: root}.Delete(ctx, key, tag)
}

package hostmount

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

// allowed is an allowed root. It is opened once: later changes of its path have no effect.
type allowed struct {
	root  *os.Root
	dir   string   // root's path
	file  string   // the only allowed name in root; "" allows all
	paths []string // as given and with its links resolved, cleaned
}

// source opens rel below the allowed root.
func (a *allowed) source(rel string) (*source, error) {
	switch {
	case a.file == "":
		return openBelow(a.root, rel, a.dir)
	case rel == "." || rel == a.file:
		return openBelow(a.root, a.file, a.dir)
	}
	return nil, tool.Errorf(tool.NotDir, "the mount's source has a file where a directory is needed")
}

func (a *allowed) close() { _ = a.root.Close() }

// openRoots opens the allowed roots. An error of a root that a mount itself names is reported for that mount.
func openRoots(mounts []Mount, opts Options) ([]*allowed, error) {
	if len(opts.AllowedRoots) == 0 {
		return nil, tool.Errorf(tool.Permission, "host mounts need an allowed root: none is configured").In("allowed_roots")
	}
	var roots []*allowed
	for i, dir := range opts.AllowedRoots {
		what, field := "the allowed root", "allowed_roots["+strconv.Itoa(i)+"]"
		if m := slices.IndexFunc(mounts, func(m Mount) bool { return m.HostPath == dir }); m >= 0 {
			what, field = mountSource, mountName(m)+".host_path"
		}
		a, err := openRoot(dir, what, opts.AllowWideRoots)
		if err != nil {
			closeRoots(roots)
			return nil, tool.AsError(err).In(field)
		}
		roots = append(roots, a)
	}
	return roots, nil
}

// mountSource names the HostPath of a mount in errors.
const mountSource = "the mount's source"

func closeRoots(roots []*allowed) {
	for _, a := range roots {
		a.close()
	}
}

func openRoot(dir, what string, wide bool) (*allowed, error) {
	if !filepath.IsAbs(dir) {
		return nil, tool.Errorf(tool.Invalid, "an allowed root must be an absolute path")
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, sourceError(err, what)
	}
	if !wide && isWide(real) {
		return nil, tool.Errorf(tool.Permission, "%s must not be / or contain the home directory; give a directory below", what)
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, sourceError(err, what)
	}
	a := &allowed{dir: real, paths: []string{filepath.Clean(dir), real}}
	switch {
	case info.Mode().IsRegular():
		a.dir, a.file = filepath.Split(real)
	case !info.IsDir():
		return nil, sourceError(beneath.ErrNotRegular, what)
	}
	a.root, err = os.OpenRoot(a.dir)
	return a, sourceError(err, what)
}

// isWide reports whether a directory contains the home directory, as / always does.
func isWide(dir string) bool {
	if dir == "/" {
		return true
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	if _, holds := below(dir, home); holds {
		return true
	}
	is, err := os.Stat(dir)
	return err == nil && holdsByAnotherName(is, home)
}

// holdsByAnotherName reports whether dir is home or one of its parents under another name, by a mount or on a
// case-insensitive file system.
func holdsByAnotherName(dir os.FileInfo, home string) bool {
	for at := home; ; at = filepath.Dir(at) {
		if is, err := os.Stat(at); err == nil && os.SameFile(is, dir) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// below returns p's path below dir, "." for dir itself. Both are clean and absolute.
func below(dir, p string) (rel string, ok bool) {
	if p == dir {
		return ".", true
	}
	return strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// source is a mount's open source: a directory, or one name in a directory.
type source struct {
	root  *os.Root
	tree  *beneath.Tree
	file  string // the name of a single file; "" for a directory
	rel   string // below the allowed root
	owner uint32 // whose files may have several names
}

func (s *source) close() {
	if s.tree != nil {
		_ = s.tree.Close()
	}
	_ = s.root.Close()
}

// openSource opens a mount's source below the allowed roots. at names the mount.
func openSource(m Mount, roots []*allowed, at string) (*source, error) {
	src, err := findSource(m, roots)
	if err != nil {
		return nil, tool.AsError(err).In(at + ".host_path")
	}
	return src, nil
}

func findSource(m Mount, roots []*allowed) (*source, error) {
	if !filepath.IsAbs(m.HostPath) {
		return openRelative(m.HostPath, roots)
	}
	paths := []string{filepath.Clean(m.HostPath)}
	if real, err := filepath.EvalSymlinks(m.HostPath); err == nil {
		paths = append(paths, real)
	}
	for _, p := range paths {
		for _, a := range roots {
			for _, dir := range a.paths {
				if rel, ok := below(dir, p); ok {
					return a.source(rel)
				}
			}
		}
	}
	return nil, tool.Errorf(tool.Permission, "the mount's source is outside of the allowed roots; allow its directory or mount another one")
}

// openRelative uses the first allowed root that has the path.
func openRelative(host string, roots []*allowed) (*source, error) {
	rel := path.Clean(host)
	if !filepath.IsLocal(rel) {
		return nil, tool.Errorf(tool.Escape, "the mount's source leaves the allowed roots")
	}
	var first error
	for _, a := range roots {
		src, err := a.source(rel)
		if err == nil {
			return src, nil
		}
		if first == nil || tool.KindOf(first) == tool.NotFound {
			first = err
		}
	}
	return nil, first
}

// openBelow opens rel below root, and follows links that stay below root. dir is root's
// path, to recognise absolute links into the source.
func openBelow(root *os.Root, rel, dir string) (*source, error) {
	info, err := root.Stat(rel)
	if err != nil {
		return nil, sourceError(err, mountSource)
	}
	src := &source{rel: rel}
	at := rel
	switch {
	case info.Mode().IsRegular():
		at, src.file = path.Dir(rel), path.Base(rel)
	case !info.IsDir():
		return nil, tool.Errorf(tool.NotRegular, "the mount's source is neither a file nor a directory")
	}
	if src.root, err = root.OpenRoot(at); err != nil {
		return nil, sourceError(err, mountSource)
	}
	if err := src.open(filepath.Join(dir, at)); err != nil {
		src.close()
		return nil, sourceError(err, mountSource)
	}
	return src, nil
}

func (s *source) open(dir string) (err error) {
	if s.tree, err = beneath.New(s.root, dir); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(s.tree.Dir().Fd()), &st); err != nil {
		return err
	}
	s.owner = st.Uid
	if s.file == "" {
		return nil
	}
	f, err := s.tree.Open(s.file)
	if err != nil {
		return err
	}
	s.owner = f.Stat.Uid // the file itself was named, so the directory's owner doesn't matter
	return f.Close()
}

// sourceError returns the error for a host file that can't be opened, in words for an agent.
func sourceError(err error, what string) error {
	var te *tool.Error
	errno := unix.Errno(0)
	switch {
	case err == nil, errors.As(err, &te):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return tool.Errorf(tool.NotFound, "%s does not exist; give an existing path, or create it first", what).Because(err)
	case errors.Is(err, fs.ErrPermission):
		return tool.Errorf(tool.Permission, "%s can't be read by the user that runs wisbox", what).Because(err)
	case errors.Is(err, beneath.ErrNotRegular), errors.Is(err, unix.ELOOP):
		return tool.Errorf(tool.NotRegular, "%s is neither a file nor a directory", what).Because(err)
	case beneath.Leased(err):
		return tool.Errorf(tool.Busy, "%s is held by another program (a lease, fcntl F_SETLEASE); end that program, then retry", what).Because(err)
	case errors.Is(err, unix.ENOTDIR):
		return tool.Errorf(tool.NotDir, "%s has a file where a directory is needed", what).Because(err)
	case errors.Is(err, beneath.ErrEscape), !errors.As(err, &errno): // os.Root has no errno for a path that leaves
		return tool.Errorf(tool.Escape, "%s is or passes a link that leaves the allowed roots", what).Because(err)
	}
	return tool.Errorf(tool.Unavailable, "%s can't be opened", what).Because(err)
}

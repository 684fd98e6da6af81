package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

// Project finds the file of the project that contains dir: in dir, or above it up to the top of a
// git repository, the home directory or the root. A file that belongs neither to this user, nor to
// root, nor to the owner of dir is ignored in a directory that everybody can write, such as /tmp;
// elsewhere it is an error. If there is no file, or dir can't be read, Project returns nil.
func Project(dir string) (*File, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var here unix.Stat_t
	if unix.Stat(dir, &here) != nil { // gone, or below a directory that this user may not enter
		return nil, nil
	}
	for {
		f, err := projectIn(dir, here.Uid)
		if f != nil || err != nil {
			return f, err
		}
		_, err = os.Lstat(filepath.Join(dir, ".git"))
		if up := filepath.Dir(dir); err == nil || up == dir || isTop(dir) {
			return nil, nil
		}
		dir = filepath.Dir(dir)
	}
}

func projectIn(dir string, owner uint32) (*File, error) {
	path := filepath.Join(dir, Name)
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return nil, nil
	}
	if !ours(&st, owner) {
		if anybodyWrites(dir) {
			return nil, nil
		}
		return nil, tool.Errorf(tool.Permission, "%s belongs to another user, so it isn't used; make it yours with chown, remove it, or leave it out with --no-config", path)
	}
	raw, opened, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !ours(opened, owner):
		return nil, refuse(path, "it was replaced meanwhile by another user's")
	}
	f, err := parse(path, raw)
	if err == nil {
		err = f.checkProject()
	}
	return f, err
}

func ours(st *unix.Stat_t, owner uint32) bool {
	return st.Uid == uint32(os.Geteuid()) || st.Uid == 0 || st.Uid == owner
}

// anybodyWrites reports whether others may put files into a directory, e.g. /tmp.
func anybodyWrites(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && st.Mode&(unix.S_ISVTX|unix.S_IWOTH) != 0
}

// isTop reports whether a directory is the user's home or the root, which contain projects but
// aren't projects.
func isTop(dir string) bool {
	home, _ := os.UserHomeDir()
	for _, top := range []string{"/", home} {
		a, err := os.Stat(dir)
		b, errTop := os.Stat(top)
		if err == nil && errTop == nil && os.SameFile(a, b) {
			return true
		}
	}
	return false
}

// CheckInit refuses a directory in which a project's file makes no sense.
func CheckInit(dir string) error {
	if isTop(dir) {
		return tool.Errorf(tool.Unsupported, "a %s in your home directory or the root would count for every project below it; run wisbox init in a project's directory, or write wisbox/config.toml in $XDG_CONFIG_HOME (~/.config)", Name)
	}
	return nil
}

// home returns the directory of the user's own files.
func home() (string, error) {
	dir, err := os.UserConfigDir() // $XDG_CONFIG_HOME, or ~/.config
	if err != nil {
		return "", tool.Errorf(tool.Unavailable, "there is no configuration directory: set HOME, or XDG_CONFIG_HOME to an absolute path").Because(err)
	}
	return filepath.Join(dir, "wisbox"), nil
}

// User reads the user's own file, config.toml; it returns nil if there is no file or no home. A
// file that another user could write is an error.
func User() (*File, error) {
	dir, err := home()
	if err != nil {
		return nil, nil //nolint:nilerr // no home, no file
	}
	path := filepath.Join(dir, "config.toml")
	if to, err := filepath.EvalSymlinks(path); err == nil { // dotfiles are often links
		path = to
	}
	raw, st, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	case st.Uid != uint32(os.Geteuid()) && st.Uid != 0:
		return nil, tool.Errorf(tool.Permission, "%s belongs to another user; make it yours with chown, or leave it out with --no-config", path)
	case st.Mode&0o022 != 0:
		return nil, tool.Errorf(tool.Permission, "%s can be written by other users; make it yours alone: chmod go-w", path)
	}
	return parse(path, raw)
}

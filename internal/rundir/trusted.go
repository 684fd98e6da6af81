package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is the maximum number of symbolic links in a path, as in the kernel.
const maxLinks = 40

// Trusted checks that only this user and root decide where path leads: each directory and link on
// the way belongs to them, and others can't write to it, or only as in /tmp. The last element of
// path need not exist.
func Trusted(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	at, rest := "/", strings.Split(strings.Trim(path, "/"), "/")
	for links := 0; len(rest) > 0; {
		if err := onlyOurs(at); err != nil {
			return err
		}
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, os.ErrNotExist) && len(rest) == 0:
			return nil
		case err != nil:
			return err
		case info.Mode().Type() != os.ModeSymlink:
			at = next
			continue
		}
		if links++; links > maxLinks {
			return &os.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		if err := ownedByUsOrRoot(next, info); err != nil {
			return err
		}
		target, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(strings.Trim(filepath.Clean(target), "/"), "/"), rest...)
	}
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	return ownedByUsOrRoot(at, info)
}

// onlyOurs is like Trusted for one directory.
func onlyOurs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := ownedByUsOrRoot(dir, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
		return fmt.Errorf("other users can write to %s (mode %04o); make it 0700, or choose another directory", dir, info.Mode().Perm())
	}
	return nil
}

func ownedByUsOrRoot(path string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to another user; choose a path whose directories all belong to you or root", path)
	}
	return nil
}

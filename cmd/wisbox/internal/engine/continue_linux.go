package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/rundir"
)

// setName names this process in lists of processes. The kernel took the number of a descriptor as its name.
func setName(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// Self opens the engine behind this process, which is a front.
func Self() (*Packed, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	p, err := Open(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return p, nil
}

// Continue replaces this process, which is a front, by the engine, with the same arguments and streams. It returns only
// if that fails.
func Continue() error {
	p, err := Self()
	if err != nil {
		return err
	}
	defer p.file.Close()
	path, err := os.Executable()
	if err != nil {
		return err
	}
	env := append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, variable+"=") }), variable+"="+path)
	var errs []error
	for _, dir := range dirs() {
		errs = append(errs, p.run(func() (*os.File, error) { return p.kept(filepath.Join(dir, "wisbox-engine")) }, env))
	}
	errs = append(errs, p.run(p.inMemory, env)) // no directory, or programs in it can't be run
	return fmt.Errorf("the engine can't be started: %w", errors.Join(errs...))
}

func (p *Packed) run(open func() (*os.File, error), env []string) error {
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.Args, env) //nolint:gosec // our own program
}

// dirs are the directories that may keep the engine: the user's cache directory, else the state root.
func dirs() []string {
	var found []string
	if dir, err := os.UserCacheDir(); err == nil && filepath.IsAbs(dir) {
		found = append(found, dir)
	}
	if dir := cmp.Or(os.Getenv("WISBOX_CACHE"), os.Getenv("WEAKINCENTIVES_CACHE")); filepath.IsAbs(dir) && len(found) == 0 {
		found = append(found, dir+"-engine")
	}
	return found
}

// kept returns the unpacked engine below dir, and unpacks it the first time. Root may have another user's HOME: where
// others decide, it runs, creates and removes nothing.
func (p *Packed) kept(dir string) (*os.File, error) {
	if err := onlyOurs(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, p.name(), "wisbox")
	if f, err := p.ours(path); err == nil {
		return f, nil
	}
	if err := p.keep(dir); err != nil {
		return nil, err
	}
	return p.ours(path)
}

// onlyOurs creates dir, if it and its parents are this user's alone.
func onlyOurs(dir string) error {
	there := dir
	for {
		if _, err := os.Stat(there); !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	if err := rundir.Trusted(filepath.Join(there, "wisbox")); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return rundir.Trusted(filepath.Join(dir, "wisbox")) // in /tmp, another user may have been quicker
}

// ours opens an unpacked engine. It must be this user's, and whole.
func (p *Packed) ours(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil &&
		(st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 || uint64(st.Size) != p.Size) {
		err = fmt.Errorf("%s is not the engine of this user", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

const (
	builds    = 2       // engines of other builds that stay unpacked
	newPrefix = ".new-" // of the directory of an engine that is being unpacked, for less than abandoned
	abandoned = time.Hour
)

// keep unpacks the engine in dir, whole or not at all. Another process may do the same.
func (p *Packed) keep(dir string) error {
	removeOld(dir)
	staging, err := os.MkdirTemp(dir, newPrefix+"*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging)
	f, err := os.OpenFile(filepath.Join(staging, "wisbox"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	if err := errors.Join(p.unpack(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	to := filepath.Join(dir, p.name())
	err = os.Rename(staging, to)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) { // another process was quicker, or a damaged one is there
		if f, err := p.ours(filepath.Join(to, "wisbox")); err == nil {
			return f.Close()
		}
		err = errors.Join(os.RemoveAll(to), os.Rename(staging, to))
	}
	return err
}

// removeOld removes the engines of older builds but the newest, and what killed processes have left. Processes that run
// an engine keep it.
func removeOld(dir string) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var old []fs.FileInfo
	for _, e := range all {
		info, err := e.Info()
		switch {
		case err != nil || !info.IsDir():
		case isName(e.Name()):
			old = append(old, info)
		case strings.HasPrefix(e.Name(), newPrefix) && time.Since(info.ModTime()) > abandoned:
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	slices.SortFunc(old, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, info := range old[min(builds, len(old)):] {
		_ = os.RemoveAll(filepath.Join(dir, info.Name()))
	}
}

// inMemory unpacks the engine into memory.
func (p *Packed) inMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("wisbox", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("wisbox", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "wisbox")
	if err := p.unpack(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

package files

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/filewire"
)

const (
	fileMode = 0o644
	dirMode  = 0o755
	maxLinks = 40 // as in the kernel
	maxTemps = 64 // writers of one file at a time
)

// openToRead opens a file for reading. It checks for a pipe or device first, because opening one may have side effects.
func openToRead(path string, any bool) (*os.File, *unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, nil, err
	}
	for range 2 {
		if isDir(st.Mode) {
			return nil, nil, unix.EISDIR
		}
		if !isRegular(st.Mode) && !any {
			return nil, nil, errIrregular
		}
		f, err := open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, nil, err
		}
		kind := st.Mode
		if err := unix.Fstat(fd(f), &st); err == nil && kind&unix.S_IFMT == st.Mode&unix.S_IFMT {
			return f, &st, nil
		}
		f.Close() // another file has replaced it
	}
	return nil, nil, errIrregular
}

func (w *worker) read(path string) error {
	f, st, err := openToRead(path, w.ask.Any)
	if err != nil {
		return err
	}
	defer f.Close()
	if w.ask.Offset > 0 {
		if _, err := f.Seek(w.ask.Offset, io.SeekStart); err != nil {
			return err
		}
	}
	if err := w.PutJSON(filewire.IsItem, itemOf(st)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	number := fd(f) // os.File would wait for a pipe
	_ = unix.SetNonblock(number, true)
	buf := make([]byte, filewire.Block)
	left := w.ask.Length
	for left > 0 || w.ask.Length == 0 {
		if w.ask.Length > 0 && left < int64(len(buf)) {
			buf = buf[:left]
		}
		n, err := unix.Read(number, buf)
		if n <= 0 {
			return ended(err)
		}
		left -= int64(n)
		if err := w.Put(filewire.IsData, buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// ended treats an empty pipe as the end of the file.
func ended(err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}

// content returns the next bytes to write; io.EOF is the end, errStopped means that the host has cancelled the write.
func (w *worker) content() ([]byte, error) {
	typ, payload, err := w.Next()
	switch {
	case err != nil:
		return nil, filewire.ErrProtocol
	case typ == filewire.IsData:
		return payload, nil
	case typ == filewire.IsEnd:
		w.body = false
		return nil, io.EOF
	case typ == filewire.IsStop:
		w.body = false
		return nil, errStopped
	}
	return nil, filewire.ErrProtocol
}

// fill writes all incoming content to a file.
func (w *worker) fill(f *os.File) error {
	for {
		data, err := w.content()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
	}
}

func (w *worker) write(path string) error {
	if w.ask.How == filewire.Several {
		return w.writeSeveral()
	}
	if w.ask.Parents {
		dir, _ := split(path)
		if err := mkdirAll(dir); err != nil {
			return err
		}
	}
	switch w.ask.How {
	case filewire.Replace:
		path, err := follow(path)
		if err != nil {
			return err
		}
		return replace(path, w.ask.Mode, w.ask.Exclusive, func(f *os.File) error {
			return errors.Join(w.fill(f), w.setAttributes(f))
		})
	case filewire.InPlace, filewire.Append:
		return w.writeInPlace(path)
	}
	return unix.EINVAL
}

func (w *worker) setAttributes(f *os.File) error {
	for name, value := range w.ask.Set {
		if err := unix.Fsetxattr(fd(f), name, value, 0); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) writeInPlace(path string) error {
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_NONBLOCK
	if w.ask.Exclusive {
		flags |= unix.O_EXCL
	}
	if w.ask.How == filewire.Append {
		flags |= unix.O_APPEND
	}
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil && !isRegular(st.Mode) && !isDir(st.Mode) {
		return errIrregular
	}
	mode := w.ask.Mode
	if mode == 0 {
		mode = fileMode
	}
	f, err := open(unix.AT_FDCWD, path, flags, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fstat(fd(f), &st); err != nil || !isRegular(st.Mode) {
		return errIrregular
	}
	if w.ask.Mode != 0 {
		err = unix.Fchmod(fd(f), w.ask.Mode)
	}
	if err == nil && w.ask.How == filewire.InPlace {
		err = unix.Ftruncate(fd(f), 0)
	}
	if err != nil {
		return err
	}
	return errors.Join(w.fill(f), w.setAttributes(f))
}

// follow returns the final target of a path whose last name is a link, or else the path.
func follow(at string) (string, error) {
	buf := make([]byte, filewire.MaxPath)
	for range maxLinks {
		n, err := unix.Readlink(at, buf)
		if err != nil { // not a link, or missing: a later open reports it
			return at, nil
		}
		if to := string(buf[:n]); path.IsAbs(to) {
			at = to
		} else {
			dir, _ := split(at)
			at = dir + to
		}
	}
	return "", unix.ELOOP
}

// replace atomically creates or replaces a regular file.
func replace(path string, mode uint32, exclusive bool, fill func(*os.File) error) error {
	dir, base, err := openParent(path, false)
	if errors.Is(err, unix.EBUSY) {
		return unix.EISDIR
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	mode, _, err = target(dir, base, mode, exclusive)
	if err != nil {
		return err
	}
	temp, f, err := openTemp(dir, base)
	if err != nil {
		return err
	}
	defer f.Close()
	if err = fill(f); err == nil {
		err = unix.Fchmod(fd(f), mode)
	}
	if err == nil && exclusive {
		err = unix.Renameat2(fd(dir), temp, fd(dir), base, unix.RENAME_NOREPLACE)
	} else if err == nil {
		err = unix.Renameat(fd(dir), temp, fd(dir), base)
	}
	if err != nil {
		_ = unix.Unlinkat(fd(dir), temp, 0)
	}
	return err
}

// target checks what a regular file is to replace, and returns the permissions of the new one.
func target(dir *os.File, base string, mode uint32, exclusive bool) (_ uint32, isNew bool, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(fd(dir), base, &st, unix.AT_SYMLINK_NOFOLLOW)
	isNew = err == unix.ENOENT
	switch {
	case err == nil && isDir(st.Mode):
		return 0, false, unix.EISDIR
	case err == nil && exclusive:
		return 0, false, unix.EEXIST
	case err == nil && !isRegular(st.Mode):
		return 0, false, errIrregular
	case err == nil && mode == 0:
		mode = st.Mode & 0o777
	case isNew && mode == 0:
		mode = fileMode
	case err != nil && !isNew:
		return 0, false, err
	}
	return mode, isNew, nil
}

// openTemp opens an empty file beside a target, under a name that only this target has. A writer locks its file;
// openTemp reuses an unlocked one, which a killed writer left.
func openTemp(dir *os.File, base string) (name string, f *os.File, err error) {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, base)
	var why error = unix.EBUSY
	for n := range maxTemps {
		name = fmt.Sprintf("%s%016x-%d", filewire.TempPrefix, hash.Sum64(), n)
		f, err = open(fd(dir), name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err == nil {
			if isOurs(dir, name, f) && unix.Ftruncate(fd(f), 0) == nil {
				return name, f, nil
			}
			f.Close()
			continue
		}
		why = err // the error of the directory, or of another file with that name
	}
	return "", nil, why
}

// isOurs locks a file, and then checks that it still has this name and no other: the previous lock holder may have
// renamed it.
func isOurs(dir *os.File, name string, f *os.File) bool {
	var is, named unix.Stat_t
	return unix.Flock(fd(f), unix.LOCK_EX|unix.LOCK_NB) == nil &&
		unix.Fstat(fd(f), &is) == nil &&
		unix.Fstatat(fd(dir), name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		is.Dev == named.Dev && is.Ino == named.Ino &&
		isRegular(is.Mode) && is.Nlink == 1 && int(is.Uid) == os.Geteuid()
}

package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
)

// asideSuffix and random letters end the name of a file of records that wait for the log, one on
// each line and not yet in the chain. The file belongs to the Log that locks it; if none does, the
// next Log that is opened takes it.
const asideSuffix = ".aside-"

// asideTries is the number of attempts to create such a file, because Logs that are being opened
// may take it before it is locked.
const asideTries = 100

// errTaken means that another writer took a file because its own writer seemed to be gone.
var errTaken = errors.New("the file of records that wait for the log was taken before its lock")

// setAside stores a record until the log is free again.
func (l *Log) setAside(body []byte) error {
	if l.aside == nil {
		if err := l.openAside(); err != nil {
			return err
		}
	}
	info, err := l.aside.Stat()
	if err != nil {
		return err
	}
	if info.Size() > l.opts.MaxSize {
		return fmt.Errorf("another process holds the log, and %d bytes of records wait for it", info.Size())
	}
	if _, err := l.aside.Write(append(bytes.Clone(body), '\n')); err != nil {
		return errors.Join(err, l.aside.Truncate(info.Size()))
	}
	return nil
}

func (l *Log) openAside() error {
	taken := func(err error) bool { return errors.Is(err, errTaken) }
	return retry.Times{Count: asideTries}.Do(context.Background(), taken, func() error {
		f, err := l.dir.OpenFile(l.name+asideSuffix+rand.Text(), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := l.claim(f); err != nil {
			return errors.Join(err, f.Close())
		}
		l.aside = f
		return nil
	})
}

// claim locks a new file. Until then another writer may take it and remove it, or
// hold its lock to do so.
func (l *Log) claim(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errTaken
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if named, err := l.dir.Lstat(filepath.Base(f.Name())); err != nil || !os.SameFile(info, named) {
		return errTaken
	}
	return nil
}

// takeAside adds the waiting records to the chain: this Log's own, and, once, those of writers that
// are gone. A crash meanwhile may duplicate a record, but never loses one.
func (l *Log) takeAside() error {
	if !l.looked {
		if err := l.takeOrphans(); err != nil {
			return err
		}
		l.looked = true
	}
	if l.aside == nil {
		return nil
	}
	if err := l.take(l.aside); err != nil {
		return err
	}
	err := l.aside.Close()
	l.aside = nil
	return err
}

func (l *Log) takeOrphans() error {
	names, err := asides(l.dir, l.name)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.takeOrphan(name); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) takeOrphan(name string) error {
	f, err := l.dir.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // its writer lives
	}
	if err != nil {
		return err
	}
	return l.take(f)
}

// take moves the records of a file into the chain and removes the file. It skips a record whose
// writer was killed while writing.
func (l *Log) take(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	err = lines(part{File: f, size: info.Size()}.reader(), func(body []byte) error {
		if !whole(body) {
			return nil
		}
		return l.link(body)
	})
	if err != nil {
		return err
	}
	return l.dir.Remove(filepath.Base(f.Name()))
}

// asides names the files of records that wait for a log.
func asides(dir *os.Root, log string) (names []string, err error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err = d.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, log+asideSuffix) })
	return names, err
}

// Package jsonfile keeps a value as JSON in a file that only this user can read. A reader finds
// either the old value or the new one, even after a crash.
package jsonfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/wisbox/wisbox/tool/answer"
)

// max is the maximum size of a file, in bytes.
const max = 16 << 20

// Read reads a value. If there is no file, the error is [fs.ErrNotExist].
func Read(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > max {
		return fmt.Errorf("read %s: it is not a regular file of at most %d bytes", path, max)
	}
	raw, err := io.ReadAll(io.LimitReader(f, max))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// ErrTooLarge is the error for a value that is too large for [Read].
var ErrTooLarge = errors.New("the value is too large for its file")

// Write replaces the file, with mode 0600. It returns when the value is on disk. If the disk is full, the error is
// no_space.
func Write(path string, v any) error {
	err := write(path, v)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return answer.Errorf(answer.NoSpace, "the host's disk has no room for a record of wisbox; free some space there, and try again").Because(err)
	}
	return err
}

func write(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if len(raw) >= max {
		return fmt.Errorf("write %s: %w: it has %d bytes; the maximum is %d", path, ErrTooLarge, len(raw)+1, max)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// Remove removes the file. A missing file is not an error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

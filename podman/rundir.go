package podman

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// trustedSocket refuses a socket that belongs neither to this user nor to root.
func trustedSocket(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if info.Mode()&fs.ModeSocket == 0 || !ok {
		return fmt.Errorf("%s is not a socket", path)
	}
	if st.Uid != 0 && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to user %d, neither this user nor root", path, st.Uid)
	}
	return nil
}

// keepFile writes a file unless it exists with the same content: a file that is being mounted must not be replaced.
func keepFile(dir, name string, data []byte) (string, error) {
	path := filepath.Join(dir, name)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return path, nil
	}
	return writeFile(dir, name, data, 0o644)
}

// writeFile writes dir/name by rename, so that a reader sees all of the data.
func writeFile(dir, name string, data []byte, mode fs.FileMode) (string, error) {
	tmp, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.Rename(tmp.Name(), path)
}

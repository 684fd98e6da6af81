package podman

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// defaultRuntimeDir is a short path: sockets below it must stay under 100 bytes.
func defaultRuntimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && ownedByUs(dir) == nil {
		return filepath.Join(dir, "wisbox")
	}
	if os.Getuid() == 0 {
		return "/run/wisbox"
	}
	return filepath.Join("/tmp", "wisbox-"+strconv.Itoa(os.Getuid()))
}

// privateDir makes dir, or checks that it is a real directory of ours that
// nobody else may enter.
func privateDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := ownedByUs(dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

func ownedByUs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a directory of ours", dir)
	}
	return nil
}

// trustedSocket refuses a socket that another user than us or root answers on.
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
		return fmt.Errorf("%s belongs to user %d, neither us nor root", path, st.Uid)
	}
	return nil
}

// keepFile writes a file unless it is there already with the same content: one
// that is being mounted must not be replaced.
func keepFile(dir, name string, data []byte, mode fs.FileMode) (string, error) {
	path := filepath.Join(dir, name)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return path, nil
	}
	return writeFile(dir, name, data, mode)
}

// writeFile puts data into dir/name by rename; a reader sees all of it.
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

package native

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
)

const (
	folder = "agent" // below the directory that is given
	mode   = fs.FileMode(0o555)
	fresh  = ".new-"          // begins the name of a file that is being written
	stale  = 10 * time.Minute // after which nobody writes it any more
)

// ErrNoExec is the error of a directory whose file system is mounted noexec.
var ErrNoExec = errors.New("its file system is mounted noexec, so no container could run the agent from there; choose another directory, or mount it without noexec")

// Install writes this machine's agent to dir/agent/SUM, unless it is there, and
// returns the path: an executable that a container can mount read-only. dir must be
// ours alone. Many may install at once. What stands there in the agent's name and
// isn't the agent is replaced; a file that containers have mounted goes on for them.
func Install(dir string) (string, error) {
	sum := Sum()
	if sum == "" {
		return "", ErrArch
	}
	root, err := openFolder(dir)
	if err != nil {
		return "", fmt.Errorf("install the agent: %w", err)
	}
	defer root.Close()
	path := filepath.Join(dir, folder, sum)
	if err := runnable(root); err != nil {
		return "", fmt.Errorf("install the agent: %w", err)
	}
	if installed(root, sum) {
		return path, nil
	}
	if err := alone(root, func() error { return write(root, sum) }); err != nil {
		return "", fmt.Errorf("install the agent: %w", err)
	}
	return path, nil
}

// openFolder opens the folder, which it makes. One that others can write to, or a
// link, is refused.
func openFolder(dir string) (*os.Root, error) {
	above, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if err := above.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := above.Lstat(folder)
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s in the directory for it is not a directory of ours; remove it", folder)
	}
	if info.Mode().Perm()&0o022 != 0 {
		if err := above.Chmod(folder, 0o755); err != nil {
			return nil, err
		}
	}
	return above.OpenRoot(folder)
}

// runnable refuses a file system without programs.
func runnable(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return err
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return ErrNoExec
	}
	return nil
}

// installed reports whether the file of that name is the agent, with its mode, ours
// and without another name by which it could be written to.
func installed(root *os.Root, sum string) bool {
	f, err := root.OpenFile(sum, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode() != mode || info.Size() > maxSize {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return false
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return false
	}
	return hex.EncodeToString(hash.Sum(nil)) == sum
}

// alone does work that one process at a time may do in the folder.
func alone(root *os.Root, work func() error) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() // and with it the lock goes
	if _, err := retry.Interrupted(func() (int, error) { return 0, unix.Flock(int(dir.Fd()), unix.LOCK_EX) }); err != nil {
		return err
	}
	return work()
}

// write puts the agent there by rename; a reader sees all of it or nothing.
func write(root *os.Root, sum string) error {
	if installed(root, sum) { // another was quicker
		return nil
	}
	binary, err := Binary()
	if err != nil {
		return err
	}
	sweep(root)
	temp := fresh + rand.Text()
	if err := writeFile(root, temp, binary); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	if info, err := root.Lstat(sum); err == nil && info.IsDir() {
		if err := root.RemoveAll(sum); err != nil { // a rename doesn't replace it
			return errors.Join(err, root.Remove(temp))
		}
	}
	if err := root.Rename(temp, sum); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return syncFolder(root)
}

func writeFile(root *os.Root, name string, data []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

func syncFolder(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// sweep removes what writers left that were killed.
func sweep(root *os.Root) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && len(e.Name()) > len(fresh) && e.Name()[:len(fresh)] == fresh && time.Since(info.ModTime()) > stale {
			_ = root.RemoveAll(e.Name())
		}
	}
}

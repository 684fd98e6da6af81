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
	"github.com/wisbox/wisbox/internal/sys"
)

const (
	folder = "agent" // below the given directory
	mode   = fs.FileMode(0o555)
	fresh  = ".new-"          // prefix of a file that is being written
	stale  = 10 * time.Minute // age after which its writer is gone
)

// ErrNoExec is the error of a directory whose file system is mounted noexec.
var ErrNoExec = errors.New("its file system is mounted noexec, so no container could run the agent from there; choose another directory, or mount it without noexec")

// Install writes this machine's agent to dir/agent/SUM, unless it is there, and
// returns the path: an executable that a container can mount read-only. dir must be
// ours alone. Many processes may install at once. Install replaces anything else with the agent's name; containers keep
// a file that they have mounted.
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

// openFolder opens the folder, and creates it if missing. It refuses a link, or a folder that others can write to.
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

// runnable refuses a file system that is mounted noexec.
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
	if sys.NoPrograms(&st) {
		return ErrNoExec
	}
	return nil
}

// installed reports whether the file of that name is the agent, with its mode and owner, and without another hard link
// through which it could be written.
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

// alone does work while no other process does such work in the folder.
func alone(root *os.Root, work func() error) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() // this releases the lock
	if _, err := retry.Interrupted(func() (int, error) { return 0, unix.Flock(int(dir.Fd()), unix.LOCK_EX) }); err != nil {
		return err
	}
	return work()
}

// write writes the agent and renames it into place, so that readers never see a part of it.
func write(root *os.Root, sum string) error {
	if installed(root, sum) { // another process was faster
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

// sweep removes the leftovers of writers that were killed.
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

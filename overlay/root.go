package overlay

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/stateroot"
	"github.com/wisbox/wisbox/tool/answer"
)

const (
	rootFile    = stateroot.File
	rootLock    = "root.lock"
	sessionsDir = "sessions"
	trashDir    = "trash"
)

// DefaultRoot returns the default directory of sessions, see [stateroot.Default].
func DefaultRoot() (string, error) {
	dir, err := stateroot.Default()
	if err != nil {
		return "", answer.Errorf(answer.Unavailable, "there is no cache directory to keep sessions in; set WISBOX_CACHE or HOME").Because(err)
	}
	return dir, nil
}

// secureRoot makes the state root if it is missing and opens it. It must be our own directory, not a link, that nobody
// else can enter. If its mode is too open, it is restricted only if the directory is empty or has been a state root
// before: WISBOX_CACHE may accidentally name a directory that others need.
func secureRoot(path string) (*os.Root, error) {
	if err := os.MkdirAll(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil, answer.Errorf(answer.Invalid, "the state directory can't be created there; set WISBOX_CACHE to another one").Because(err)
		}
		return nil, ioError(err, "make the state directory")
	}
	f, err := os.OpenFile(path, syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
		return nil, answer.Errorf(answer.Permission, "the state directory is a link or a file; set WISBOX_CACHE to a directory of your own").Because(err)
	}
	if err != nil {
		return nil, ioError(err, "open the state directory")
	}
	defer f.Close()
	if err := ownedAndClosed(f); err != nil {
		return nil, err
	}
	return openSame(path, f)
}

func ownedAndClosed(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return ioError(err, "look at the state directory")
	}
	if int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return answer.Errorf(answer.Permission, "the state directory belongs to another user; set WISBOX_CACHE to one of your own")
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if info.Mode()&fs.ModeSticky != 0 || !emptyOrOurs(f) {
		return answer.Errorf(answer.Permission, "the state directory is open to other users and holds other files; set WISBOX_CACHE to a new directory, or make it mode 0700")
	}
	return ioError(f.Chmod(0o700), "close the state directory to others")
}

func emptyOrOurs(f *os.File) bool {
	names, err := f.Readdirnames(-1)
	if err != nil {
		return false
	}
	for _, name := range names {
		if name == rootFile || name == rootLock {
			return true
		}
	}
	return len(names) == 0
}

// openSame opens path as a root and checks that it is still f.
func openSame(path string, f *os.File) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, ioError(err, "open the state directory")
	}
	a, errA := f.Stat()
	b, errB := root.Stat(".")
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		_ = root.Close()
		return nil, answer.Errorf(answer.Conflict, "the state directory was replaced while it was opened; try again")
	}
	return root, nil
}

type rootRecord struct {
	Schema  int    `json:"schema"`
	ID      string `json:"id"`
	Created Stamp  `json:"created"`
}

// rootID reads the random ID of a state root. It creates a missing ID under the root's lock, so that two processes
// agree on it.
func rootID(root *os.Root, path string) (string, error) {
	if rec, err := readRootRecord(root); !errors.Is(err, fs.ErrNotExist) {
		return rec.ID, err
	}
	lock := flock.New(filepath.Join(path, rootLock))
	if err := lock.Lock(); err != nil {
		return "", ioError(err, "lock the state directory")
	}
	defer lock.Unlock()
	rec, err := readRootRecord(root)
	if !errors.Is(err, fs.ErrNotExist) {
		return rec.ID, err
	}
	rec = rootRecord{Schema: stateSchema, ID: newID(), Created: Now()}
	raw, err := json.Marshal(rec)
	if err != nil {
		return "", err
	}
	return rec.ID, ioError(replaceFile(root, rootFile, append(raw, '\n')), "write the state directory's id")
}

// readRootRecord returns fs.ErrNotExist unchanged.
func readRootRecord(root *os.Root) (rootRecord, error) {
	var rec rootRecord
	raw, err := readSmall(root, rootFile)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, err
	}
	if err != nil {
		return rec, ioError(err, "read the state directory's id")
	}
	if err := json.Unmarshal(raw, &rec); err != nil || CheckID(rec.ID) != nil {
		return rec, answer.Errorf(answer.Unavailable, "root.json of the state directory is damaged; remove that file (containers of this directory are then no longer known as its own) or set WISBOX_CACHE to a new directory").Because(err)
	}
	return rec, nil
}

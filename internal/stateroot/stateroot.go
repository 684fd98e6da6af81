// Package stateroot finds the directory with a user's sessions.
package stateroot

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
)

// File is the name of a state root's record, and Record its content as far as every program reads it.
const File = "root.json"

// Record is the content of [File].
type Record struct {
	ID string `json:"id"` // random; the label of its containers
}

// Default returns $WISBOX_CACHE, else $WEAKINCENTIVES_CACHE, else wisbox in the user's cache directory
// ($XDG_CACHE_HOME or ~/.cache).
func Default() (string, error) {
	for _, name := range []string{"WISBOX_CACHE", "WEAKINCENTIVES_CACHE"} {
		if dir := os.Getenv(name); dir != "" {
			return filepath.Abs(dir)
		}
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "wisbox"), nil
}

// Usable reports whether path is an existing state root, this user's own directory and closed to others. It changes
// nothing; package overlay creates and repairs.
func Usable(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return false
	}
	if st, isStat := info.Sys().(*syscall.Stat_t); !isStat || int(st.Uid) != os.Geteuid() {
		return false
	}
	raw, err := os.ReadFile(filepath.Join(path, File))
	var rec Record
	return err == nil && json.Unmarshal(raw, &rec) == nil && rec.ID != ""
}

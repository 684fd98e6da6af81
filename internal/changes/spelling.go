package changes

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/sys"
)

// folds is [sys.FoldsNames]. Tests replace it.
var folds = sys.FoldsNames

// listing has the names of a directory, in the directory's spelling.
type listing struct {
	of    spot
	names map[string]bool
}

// spelled reports whether the host spells the name of an entry as the session does. If not, another
// file would be compared, replaced or removed.
func (a *applier) spelled(at spot, dir *os.File, name string) (bool, error) {
	of := spot{at.home, path.Dir(at.rel)}
	if a.listed.of != of {
		names, err := namesOf(dir)
		if err != nil {
			return false, err
		}
		a.listed = listing{of, names}
	}
	return a.listed.names[name], nil
}

// namesOf lists a directory. Tests replace it.
var namesOf = func(dir *os.File) (map[string]bool, error) {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	names := map[string]bool{}
	err = beneath.ReadDir(fd, func(e beneath.Entry) bool {
		names[strings.Clone(e.Name)] = true
		return true
	})
	return names, err
}

package beside

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/wisbox/wisbox/sandbox"
)

const idPattern = `^[a-z0-9][a-z0-9-]{0,62}$`

var idRegexp = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(idPattern) })

func validID(id string) bool { return idRegexp().MatchString(id) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", sandbox.ErrInvalid, fmt.Sprintf(format, args...))
}

// check validates a spec, and returns the identity of the workspace directory.
func check(spec sandbox.Spec) (pin [2]uint64, err error) {
	l := spec.Limits
	switch {
	case !validID(spec.ID):
		return pin, invalid("ID must match %s", idPattern)
	case spec.Image == "":
		return pin, invalid("Image is empty")
	case !filepath.IsAbs(spec.Workspace):
		return pin, invalid("Workspace must be an absolute path")
	case !(l.CPUs > 0) || min(l.Memory, l.PIDs, l.Tmp, l.Shm, l.NoFile, l.FileSize, l.Disk, l.Inodes) < 0:
		return pin, invalid("a limit is negative")
	}
	for key, value := range spec.Env {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(value, 0) {
			return pin, invalid("a variable's name is empty or has a =, or there is a NUL")
		}
	}
	return pinOf(spec.Workspace)
}

// pinOf returns the device and inode of a directory. It rejects symbolic links.
func pinOf(path string) (pin [2]uint64, err error) {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return pin, invalid("the workspace must be a directory, and not a link to one")
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return pin, invalid("the workspace can't be inspected")
	}
	return [2]uint64{uint64(st.Dev), st.Ino}, nil
}

// unable returns an error for options that must be set when the Pod is created.
func unable(spec sandbox.Spec) error {
	what := ""
	switch {
	case spec.Isolation != "" && spec.Isolation != sandbox.IsolationDefault:
		what = "isolation " + string(spec.Isolation) + " is the Pod's runtime class"
	case spec.Seccomp != "":
		what = "a seccomp profile is the Pod's"
	}
	if what == "" {
		return nil
	}
	return unavailable(nil, "%s, and can't be chosen for a running Pod; leave it out", what)
}

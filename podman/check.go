package podman

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox/sandbox"
)

// check refuses a Spec from which no container can be created.
func check(spec sandbox.Spec) (dirPin, error) {
	switch l := spec.Limits; {
	case !validID().MatchString(spec.ID):
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "ID must match %s", validID())
	case spec.Image == "":
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "Image is empty")
	case !slices.Contains([]sandbox.Isolation{"", sandbox.IsolationDefault, sandbox.IsolationGVisor}, spec.Isolation):
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "Isolation must be %s or %s", sandbox.IsolationDefault, sandbox.IsolationGVisor)
	case spec.Isolation == sandbox.IsolationGVisor && spec.Seccomp != "":
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "Seccomp can't be given with isolation %s, which loads no profile", sandbox.IsolationGVisor)
	case !filepath.IsAbs(spec.Workspace):
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "Workspace must be an absolute path")
	case !(l.CPUs >= 0.01 && l.CPUs <= 4096):
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "Limits.CPUs must be between 0.01 and 4096")
	case l.Memory < 16<<20:
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "Limits.Memory must be at least 16 MiB")
	case l.PIDs < 8:
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "Limits.PIDs must be at least 8")
	case min(l.Tmp, l.Shm, l.NoFile, l.FileSize, l.Disk, l.Inodes) < 0:
		return dirPin{}, fail(sandbox.ErrInvalid, nil, "a limit is negative")
	}
	for key, value := range spec.Env {
		if strings.Contains(key, "=") || !variable(key+"="+value) {
			return dirPin{}, fail(sandbox.ErrInvalid, nil, "a variable's name is empty or has a =, or there is a NUL")
		}
	}
	pin, err := pinDir(spec.Workspace)
	if err != nil {
		return pin, fail(sandbox.ErrInvalid, err, "the workspace is not a directory (a link is none)")
	}
	return pin, nil
}

// dirPin identifies the directory that a path led to.
type dirPin struct{ dev, ino uint64 }

func pinDir(path string) (dirPin, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return dirPin{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return dirPin{}, errors.New("not a directory")
	}
	return dirPin{uint64(st.Dev), st.Ino}, nil
}

// checkCmd refuses a Cmd that breaks a rule of [sandbox.Cmd].
func checkCmd(cmd sandbox.Cmd) error {
	nul := func(s string) bool { return strings.ContainsRune(s, 0) }
	switch c := cmd.Capture; {
	case (len(cmd.Argv) > 0) == (cmd.Python != nil):
		return fail(sandbox.ErrInvalid, nil, "exactly one of argv and python is needed")
	case slices.ContainsFunc(cmd.Argv, nul) || nul(cmd.Dir):
		return fail(sandbox.ErrInvalid, nil, "an argument or the directory has a NUL")
	case cmd.Dir != "" && !filepath.IsAbs(cmd.Dir) && !filepath.IsLocal(cmd.Dir):
		return fail(sandbox.ErrInvalid, nil, "a directory must stay in the workspace, or be absolute")
	case slices.ContainsFunc(cmd.Env, func(kv string) bool { return !variable(kv) }):
		return fail(sandbox.ErrInvalid, nil, "a variable must be NAME=value without a NUL")
	case cmd.Timeout < 0:
		return fail(sandbox.ErrInvalid, nil, "the timeout is negative")
	case c != nil && (c.Forward < 0 || c.Tail < 0):
		return fail(sandbox.ErrInvalid, nil, "a capture size is negative")
	}
	return nil
}

func variable(kv string) bool {
	name, _, ok := strings.Cut(kv, "=")
	return ok && name != "" && !strings.ContainsRune(kv, 0)
}

package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
)

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", sandbox.ErrInvalid, fmt.Sprintf(format, args...))
}

// checkSpec refuses the same specs as a real backend, so that no test with a Host passes with a spec that a real
// backend refuses.
func checkSpec(spec sandbox.Spec) error {
	if !idPattern.MatchString(spec.ID) {
		return invalid("the id %.80q must match %s", spec.ID, idPattern)
	}
	if spec.Image == "" {
		return invalid("no image is named")
	}
	if !filepath.IsAbs(spec.Workspace) {
		return invalid("the workspace must be an absolute path")
	}
	for key, value := range spec.Env {
		if err := checkVariable(key + "=" + value); err != nil {
			return err
		}
	}
	return checkLimits(spec.Limits)
}

func checkLimits(l sandbox.Limits) error {
	for _, v := range []int64{l.Memory, l.PIDs, l.Tmp, l.Shm, l.Disk, l.Inodes, l.NoFile, l.FileSize} {
		if v < 0 {
			return invalid("a limit is negative")
		}
	}
	if !(l.CPUs >= 0) {
		return invalid("the number of cpus is negative or not a number")
	}
	return nil
}

func checkVariable(kv string) error {
	key, _, ok := strings.Cut(kv, "=")
	if !ok || key == "" || strings.ContainsAny(kv, "\x00") {
		return invalid("a variable must be KEY=value without NUL")
	}
	return nil
}

func checkCmd(cmd sandbox.Cmd) error {
	if (len(cmd.Argv) > 0) == (cmd.Python != nil) {
		return invalid("exactly one of argv and python is needed")
	}
	if p := cmd.Python; p != nil && (p.Name == "" || strings.ContainsAny(p.Name, "\n\x00")) {
		return invalid("a python program needs a name of one line")
	}
	for _, arg := range cmd.Argv {
		if strings.ContainsRune(arg, 0) {
			return invalid("an argument holds NUL")
		}
	}
	for _, kv := range cmd.Env {
		if err := checkVariable(kv); err != nil {
			return err
		}
	}
	if cmd.Timeout < 0 {
		return invalid("the timeout is negative")
	}
	if c := cmd.Capture; c != nil && (c.Forward < 0 || c.Tail < 0) {
		return invalid("a capture size is negative")
	}
	return nil
}

// resolveDir returns the host path of a command's directory. A path that
// leaves the workspace, by its text or through a link, is refused.
func resolveDir(workspace, dir string) (string, error) {
	if strings.ContainsRune(dir, 0) || dir != "" && !filepath.IsLocal(dir) {
		return "", invalid("the directory leaves the workspace")
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return "", fmt.Errorf("%w: the workspace is gone", sandbox.ErrLost)
	}
	defer root.Close()
	info, err := root.Stat(filepath.Join(".", dir))
	if err != nil || !info.IsDir() {
		return "", invalid("the directory is not one of the workspace")
	}
	return filepath.Join(workspace, dir), nil
}

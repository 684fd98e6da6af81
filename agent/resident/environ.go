package resident

import (
	"slices"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
)

// DefaultPath is where programs are found in an image that names no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ProgramEnv returns an image's environment for programs: with our home directory instead of its own, which would be
// another user's, and with our directories at the end of its PATH.
func ProgramEnv(imageEnv []string) []string {
	out := []string{"HOME=" + sandbox.Home}
	for _, kv := range imageEnv {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok, name == "", strings.ContainsRune(kv, 0), name == "HOME":
			continue
		case name == "PATH":
			kv = "PATH=" + joinPath(value, DefaultPath)
		}
		out = append(out, kv)
	}
	return out
}

// PathOf is the PATH of an environment.
func PathOf(env []string) string {
	for _, kv := range slices.Backward(env) {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return path
		}
	}
	return DefaultPath
}

// joinPath adds to a PATH what it lacks of another.
func joinPath(first, then string) string {
	dirs := strings.Split(first, ":")
	for dir := range strings.SplitSeq(then, ":") {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.TrimPrefix(strings.Join(dirs, ":"), ":")
}

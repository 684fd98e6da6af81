// Package leftout recognises files of a session that never come to the host together with others,
// because programs of the host would obey them.
package leftout

import (
	"slices"
	"strings"
)

// dirs are the directories, in lower case, in which version control systems keep their own files. The
// systems run programs that these files name: git's core.fsmonitor and hooks, Mercurial's hooks and
// extensions. A file may have such a name too: git's worktrees have a file .git.
var dirs = []string{".git", ".hg", ".jj", ".bzr", "_darcs", ".svn", ".sl", ".pijul"}

// shorts are the names that Windows gives to them in directories of its older form.
var shorts = []string{"git~1", "hg~1", "jj~1", "bzr~1", "svn~1", "sl~1", "pijul~1"}

// ApplyDir begins the name of the directory in which wisbox apply works, in a folder of the host. If
// one came from a session, the next apply would wait for it.
const ApplyDir = ".wisbox-apply-"

// Why returns the reason why a path never comes home with others; "" if it may.
func Why(path string) string {
	if VersionControl(path) {
		return "belongs to a version control system, which may run programs that it names"
	}
	for name := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(strings.ToLower(name), ApplyDir) {
			return "has the name of wisbox's own directory for an apply"
		}
	}
	return ""
}

// VersionControl reports whether a slash-separated path has a name that such a system, on any operating system,
// takes for its own directory.
func VersionControl(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		name, _, _ = strings.Cut(strings.ToLower(strings.Map(visible, name)), ":")
		if name = strings.TrimRight(name, ". "); slices.Contains(dirs, name) || slices.Contains(shorts, name) {
			return true
		}
	}
	return false
}

// visible drops the characters that HFS+ on a Mac ignores in names.
func visible(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// Package leftout recognises files of a session that never come to the host together with others,
// because programs of the host would obey them.
package leftout

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// dirs are the directories, in lower case, in which version control systems keep their own files. The
// systems run programs that these files name: git's core.fsmonitor and hooks, Mercurial's hooks and
// extensions; repo runs .repo/repo/main.py. A file may have such a name too: git's worktrees have a file .git.
var dirs = []string{".git", ".hg", ".jj", ".bzr", "_darcs", ".svn", "_svn", ".sl", ".pijul", ".repo", ".fslckout", "_fossil_", "_mtn", ".bk", "bitkeeper"}

// cvs is a directory only in capitals, as CVS itself spells it: others are called cvs for another reason.
const cvs = "CVS"

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
		if strings.HasPrefix(Fold(name), ApplyDir) {
			return "has the name of wisbox's own directory for an apply"
		}
	}
	return ""
}

// RepositoryFile is the file without which git doesn't take a directory for a repository. One that has it, with objects and refs, is a
// repository even without .git.
const RepositoryFile = "HEAD"

// InRepository is the reason why a file is left out below a directory of the host that has [RepositoryFile].
const InRepository = "belongs to a git repository of the host, whose files may name programs to run"

// File is [Why] for a path that isn't a directory.
func File(path string) string {
	if strings.EqualFold(spelt(path[strings.LastIndexByte(path, '/')+1:]), RepositoryFile) {
		return "can make a git repository of its directory, whose files may name programs to run"
	}
	return Why(path)
}

// VersionControl reports whether a slash-separated path has a name that such a system, on any operating system,
// takes for its own directory.
func VersionControl(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if name == cvs {
			return true
		}
		if name = spelt(name); slices.Contains(dirs, name) || slices.Contains(shorts, name) {
			return true
		}
	}
	return false
}

// spelt returns a name as Windows too spells it: without what it ignores at the end, and a stream of the file.
func spelt(name string) string {
	name, _, _ = strings.Cut(Fold(name), ":")
	return strings.TrimRight(name, ". ")
}

// Fold returns a name in lower case, and without the characters that file systems ignore: HFS+ on a Mac some, ext4's directories without
// case all that nothing shows.
func Fold(name string) string { return strings.Map(fold, name) }

func fold(r rune) rune {
	switch {
	case r < utf8.RuneSelf:
		return unicode.ToLower(r)
	case unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return -1
	}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if other < utf8.RuneSelf { // ſ and the sign of Kelvin
			return unicode.ToLower(other)
		}
	}
	return unicode.ToLower(r)
}

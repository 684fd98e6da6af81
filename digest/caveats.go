package digest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const maxCaveatPaths = 5

// caveats returns the warnings for a reader of the digest.
func caveats(s *survey, r *Report) []string {
	out := []string{}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if s.cut || s.b.Check() != nil {
		say("only a part of the workspace was read: it has more entries, or more in one directory, than the maximum for a summary")
	}
	if len(s.partly) > 0 {
		say("only the beginning was read of %s", list(s.partly))
	}
	if s.more > 0 {
		say("%d more directories have a project of their own", s.more)
	}
	if r.Files == 0 && len(out) == 0 {
		say("the workspace has no files")
		return out
	}
	tested := slices.ContainsFunc(r.Commands, func(c Command) bool { return c.Purpose == "test" })
	switch {
	case len(r.Languages) == 0:
	case !hasTests(s):
		say("no tests were found")
	case !tested:
		say("no command that runs the tests was found")
	}
	if large := s.large(); len(large) > 0 {
		say("large files: %s", list(large))
	}
	if n := s.binaries(); n > 0 {
		say("%d binary files (images, archives, compiled code): don't read them as text", n)
	}
	if missing := s.uninstalled(); len(missing) > 0 {
		say("the packages of %s are not installed (no node_modules); they can be fetched where the session may connect to a registry", list(missing))
	}
	for _, dir := range s.skipped[:min(len(s.skipped), maxCaveatPaths)] {
		say("`%s/` was not looked into: %s", shown(dir), skippedDirs[path.Base(dir)])
	}
	if len(s.nested) > 0 {
		say("git repositories of their own: %s", list(s.nested))
	}
	return out
}

// uninstalled returns the Node manifests whose packages aren't installed.
func (s *survey) uninstalled() (out []string) {
	for _, dir := range s.projects {
		if name := s.first(dir, "package.json"); name != "" && !slices.Contains(s.skipped, path.Join(dir, "node_modules")) {
			out = append(out, name)
		}
	}
	return out
}

func list(paths []string) string {
	var names []string
	for _, p := range paths[:min(len(paths), maxCaveatPaths)] {
		names = append(names, "`"+shown(p)+"`")
	}
	text := strings.Join(names, ", ")
	if more := len(paths) - maxCaveatPaths; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (s *survey) large() []string {
	var out []string
	for _, f := range s.files {
		if f.size >= largeFile {
			out = append(out, f.path)
		}
	}
	return out
}

var binaryExtensions = []string{
	".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".pdf", ".zip", ".gz", ".xz", ".zst", ".bz2", ".tar", ".7z", ".so", ".o", ".a", ".exe", ".dll", ".pyc",
	".class", ".jar", ".wasm", ".bin", ".db", ".sqlite", ".woff", ".woff2", ".ttf", ".mp3", ".mp4", ".npy", ".pkl", ".parquet",
}

func (s *survey) binaries() (n int) {
	for _, f := range s.files {
		if slices.Contains(binaryExtensions, strings.ToLower(path.Ext(f.path))) {
			n++
		}
	}
	return n
}

func hasTests(s *survey) bool {
	for _, f := range s.files {
		if languageOf(f.path) == "" {
			continue
		}
		base := strings.ToLower(path.Base(f.path))
		stem := strings.TrimSuffix(base, path.Ext(base))
		switch {
		case strings.HasPrefix(stem, "test_"), strings.HasSuffix(stem, "_test"), strings.HasSuffix(stem, ".test"), strings.HasSuffix(stem, ".spec"), stem == "test":
			return true
		case strings.HasPrefix(f.path, "test/"), strings.HasPrefix(f.path, "tests/"), strings.Contains(f.path, "/tests/"), strings.Contains(f.path, "/__tests__/"):
			return true
		}
	}
	return false
}

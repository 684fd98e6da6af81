package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/plumbing"
	"github.com/wisbox/wisbox/sandbox"
)

// selfRunning are files and directories, in lower case and as [path.Match] has them, that
// programs of the host take settings and commands from without being asked.
var selfRunning = slices.Concat(
	[]string{ // agents
		".claude", "claude.md", "claude.local.md", ".codex", "agents.md", ".gemini", "gemini.md", ".opencode", "opencode.json", "opencode.jsonc",
		".cursor", ".cursorrules", ".windsurf", ".windsurfrules", ".clinerules", ".roo", ".kiro", ".amazonq", ".continue", ".aider*", ".mcp.json",
	},
	[]string{ // editors
		".vscode", "*.code-workspace", ".idea", "*.iml", ".ideavimrc", ".zed", ".fleet", ".nova", "*.sublime-project", ".dir-locals.el",
		".vim", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".devcontainer", ".devcontainer.json",
	},
	[]string{ // shells and environments
		".envrc*", ".direnv", ".mise*", "mise.toml", ".tool-versions", ".rvmrc", ".autoenv*", "*.pth", "sitecustomize.py",
	},
	[]string{ // tools
		".gitmodules", ".gitattributes", ".githooks", ".husky", ".pre-commit-config.yaml", "lefthook*", ".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn", ".pnpmfile.cjs",
		".cargo", ".bundle", ".bazelrc", ".gdbinit", ".lldbinit",
	},
	[]string{ // continuous integration
		".github/workflows", ".github/actions", ".gitlab-ci.yml", ".circleci", "jenkinsfile",
	},
)

// runByThemselves are the changed paths, removed ones too, that the host's programs may take
// settings or commands from: by their own name, by the name of a link that leads to them, or
// as they lie in a folder of hooks.
func runByThemselves(tree fs.FS, all []wisbox.FileChange, host onHost) (found []string) {
	bare, names := bareRepositories(tree), newLinks()
	names.read(tree, sandbox.WorkspaceDir, ".", nil)
	for _, m := range host.mounts {
		names.readHost(m)
	}
	for _, c := range all {
		for _, name := range []string{c.Path, c.From} {
			hook := func(dir string) bool { return dir == "." || below(name, dir) }
			if name != "" && (slices.ContainsFunc(names.of(name), runsByItself) || bare(name) || slices.ContainsFunc(host.hooks, hook)) {
				found = append(found, name)
			}
		}
	}
	return found
}

func below(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// onHost is what the folders that were mounted say of paths of the workspace.
type onHost struct {
	hooks  []string // folders from which git of the host would take its hooks
	mounts []hostmount.Mount
}

// hookFolders finds the folders of hooks, as core.hooksPath of the repositories that were
// mounted says.
func hookFolders(ctx context.Context, mounts []hostmount.Mount) onHost {
	host := onHost{mounts: mounts}
	for _, m := range mounts {
		repo, err := plumbing.Open(ctx, m.HostPath)
		if err != nil {
			if inRepository(m.HostPath) {
				host.hooks = append(host.hooks, ".") // its settings can't be read
			}
			continue
		}
		for _, dir := range repo.HookFolders(ctx) {
			host.hooks = append(host.hooks, path.Join(m.MountPath, dir))
		}
		repo.Close()
	}
	return host
}

// inRepository reports whether a directory or one above it has git's own.
func inRepository(dir string) bool {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	for dir = absolute(dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// links are the symbolic links of a workspace by where they lead. A cut one knows that there
// are more than it has.
type links struct {
	to  map[string][]string
	cut bool
}

const (
	maxLinks     = 50_000
	maxLinkSteps = 200_000 // entries that are looked at
	maxNames     = 64      // of one file
	maxTimes     = 2       // that a name goes through one link: a link to the top gives names without an end
)

func newLinks() *links { return &links{to: map[string][]string{}} }

// readHost looks at a folder that was mounted: the mount leaves out links that are absolute or
// lead out and back, and on the host they lead to what comes home.
func (l *links) readHost(m hostmount.Mount) {
	real, err := filepath.EvalSymlinks(absolute(m.HostPath))
	if err != nil {
		l.cut = true
		return
	}
	if info, err := os.Stat(real); err == nil && !info.IsDir() {
		return
	}
	closed := func(err error) bool { return errors.Is(err, fs.ErrPermission) } // to the host's programs too
	l.read(os.DirFS(real), real, m.MountPath, closed)
	if given := absolute(m.HostPath); given != real {
		l.read(os.DirFS(real), given, m.MountPath, closed)
	}
}

// read looks at a whole tree, but for git's own directory. The tree's name is top, and it is the
// directory at of the workspace. By a link's words it leads somewhere below top, whatever
// is there. Errors that are passed over leave the list whole.
func (l *links) read(tree fs.FS, top, at string, pass func(error) bool) {
	seen, steps := 0, 0
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		steps++
		switch {
		case err != nil && pass != nil && pass(err):
			return fs.SkipDir
		case err != nil || seen == maxLinks || steps == maxLinkSteps:
			l.cut = true
			return fs.SkipAll
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.Type()&fs.ModeSymlink == 0:
			return nil
		}
		seen++
		text, err := fs.ReadLink(tree, name)
		if err != nil || climbsLate(text) {
			l.cut = true
			return fs.SkipAll
		}
		to := path.Clean(text)
		if !path.IsAbs(text) {
			to = path.Join(top, path.Dir(name), text)
		}
		switch {
		case below(to, top):
			to = path.Join(at, strings.TrimPrefix(to, top))
		case to == "/" || below(top, to): // it leads to a directory that top is in
			to = path.Clean(at)
		default:
			return nil
		}
		l.to[to] = append(l.to[to], path.Join(at, name))
		return nil
	})
	l.cut = l.cut || err != nil
}

// climbsLate reports whether a link's text has ".." after a name. If the name is a link, the
// kernel climbs from where that leads, and words don't say where that is.
func climbsLate(text string) bool {
	named := false
	for part := range strings.SplitSeq(text, "/") {
		switch part {
		case "", ".":
		case "..":
			if named {
				return true
			}
		default:
			named = true
		}
	}
	return false
}

// of are the names that a file has: its own, and those by links to it or to a directory above
// it, and by links to these.
func (l *links) of(name string) []string {
	names := []string{name}
	for i := 0; i < len(names) && len(names) < maxNames; i++ {
		for dir := names[i]; dir != "/"; dir = path.Dir(dir) {
			rest := strings.TrimPrefix(names[i], dir)
			if dir == "." {
				rest = names[i]
			}
			for _, link := range l.to[dir] {
				if other := path.Join(link, rest); len(names) < maxNames && !slices.Contains(names, other) && passes(link, other) <= maxTimes {
					names = append(names, other)
				}
			}
			if dir == "." {
				break
			}
		}
	}
	if l.cut || len(names) >= maxNames {
		names = append(names, selfRunning[0]) // it may have any
	}
	return names
}

// passes counts how often a name goes through a link.
func passes(link, name string) int {
	apart := func(s string) string { return strings.ReplaceAll("/"+s+"/", "/", "//") }
	return strings.Count(apart(name), apart(link)[1:len(apart(link))-1])
}

func runsByItself(name string) bool {
	names := strings.Split(strings.ToLower(name), "/")
	return slices.ContainsFunc(selfRunning, func(pattern string) bool {
		n := strings.Count(pattern, "/") + 1
		for i := 0; i+n <= len(names); i++ {
			if ok, _ := path.Match(pattern, strings.Join(names[i:i+n], "/")); ok {
				return true
			}
		}
		return false
	})
}

// bareRepositories finds whether a path is below a directory that git takes for a repository
// without being asked: its config names programs that git runs.
func bareRepositories(tree fs.FS) (below func(name string) bool) {
	known := map[string]bool{}
	looks := func(dir string) bool {
		is, ok := known[dir]
		if !ok {
			entries, err := fs.ReadDir(tree, dir)
			has := map[string]bool{}
			for _, e := range entries {
				has[strings.ToLower(e.Name())] = true
			}
			gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
			unknown := err != nil && !gone // as with a name that is not UTF-8
			is = unknown || has["head"] && (has["commondir"] || has["objects"] && has["refs"])
			known[dir] = is
		}
		return is
	}
	return func(name string) bool {
		for dir := path.Dir(name); ; dir = path.Dir(dir) {
			if looks(dir) {
				return true
			}
			if dir == "." {
				return false
			}
		}
	}
}

package main

import (
	"context"
	"errors"
	"io/fs"
	"path"
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
// as they lie in one of the folders hooks.
func runByThemselves(tree fs.FS, all []wisbox.FileChange, hooks []string) (found []string) {
	bare, names := bareRepositories(tree), linksOf(tree)
	for _, c := range all {
		for _, name := range []string{c.Path, c.From} {
			hook := func(dir string) bool { return dir == "." || below(name, dir) }
			if name != "" && (slices.ContainsFunc(names.of(name), runsByItself) || bare(name) || slices.ContainsFunc(hooks, hook)) {
				found = append(found, name)
			}
		}
	}
	return found
}

func below(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// hookFolders are the folders of the workspace from which git of the host would take its hooks,
// as core.hooksPath of the repositories that were mounted says.
func hookFolders(ctx context.Context, mounts []hostmount.Mount) (folders []string) {
	for _, m := range mounts {
		repo, err := plumbing.Open(ctx, m.HostPath)
		if err != nil {
			continue // it is in none
		}
		for _, dir := range repo.HookFolders(ctx) {
			folders = append(folders, path.Join(m.MountPath, dir))
		}
		repo.Close()
	}
	return folders
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
)

// linksOf looks at a whole workspace, but for git's own directory. By what a link's words say it
// leads somewhere in the workspace, whatever is there.
func linksOf(tree fs.FS) *links {
	l, seen, steps := &links{to: map[string][]string{}}, 0, 0
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		steps++
		switch {
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
		if err != nil {
			l.cut = true
			return fs.SkipAll
		}
		to := path.Join(path.Dir(name), text)
		if path.IsAbs(text) {
			to = strings.TrimPrefix(path.Clean(text), sandbox.WorkspaceDir+"/")
		}
		l.to[to] = append(l.to[to], name)
		return nil
	})
	l.cut = l.cut || err != nil
	return l
}

// of are the names that a file has: its own, and those by links to it or to a directory above
// it, and by links to these.
func (l *links) of(name string) []string {
	names := []string{name}
	for i := 0; i < len(names) && len(names) < maxNames; i++ {
		for dir := names[i]; dir != "." && dir != "/"; dir = path.Dir(dir) {
			for _, link := range l.to[dir] {
				if other := link + strings.TrimPrefix(names[i], dir); !slices.Contains(names, other) {
					names = append(names, other)
				}
			}
		}
	}
	if l.cut || len(names) >= maxNames {
		names = append(names, selfRunning[0]) // it may have any
	}
	return names
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

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
	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/internal/plumbing"
	"github.com/wisbox/wisbox/sandbox"
)

// selfRunning has patterns, in lower case and as [path.Match] takes them, of files and directories from which programs of
// the host take settings and commands, some without asking and some at the next build, test or start. Every name that
// begins with a dot counts too: no list of those is ever whole.
var selfRunning = slices.Concat(
	[]string{ // agents and editors
		"claude.md", "claude.local.md", "agents.md", "agents.override.md", "gemini.md", "opencode.json", "opencode.jsonc", "*.code-workspace", "*.iml", "*.sublime-project",
	},
	[]string{ // shells and environments
		"mise.toml", "mise.*.toml", "mise", "*.pth", "sitecustomize.py", "usercustomize.py", "flake.nix", "shell.nix", "default.nix", "devenv.nix", "devbox.json", "rust-toolchain", "rust-toolchain.toml",
	},
	[]string{ // package managers
		"package.json", "pnpm-workspace.yaml", "yarn.config.cjs", "bunfig.toml", "deno.json", "deno.jsonc", "lerna.json", "composer.json", "gemfile", "gems.rb", "*.gemspec", "podfile", "brewfile",
		"cargo.toml", "setup.py", "setup.cfg", "pyproject.toml", "pipfile", "hatch_build.py", "mix.exs", "rebar.config", "package.swift", "pubspec.yaml", "cpanfile", "makefile.pl", "build.pl", "go.mod", "go.work", "conanfile.py",
		"*.lock", "bun.lockb", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "go.sum", "requirements*.txt", "constraints*.txt", "environment.y*ml", "pixi.toml", "uv.toml", "vcpkg.json", "packages.config", "paket.dependencies", "*.versions.toml",
	},
	[]string{ // build tools, tests, linters
		"makefile", "gnumakefile", "bsdmakefile", "*.mk", "*.mak", "cmakelists.txt", "*.cmake", "cmakepresets.json", "cmakeuserpresets.json", "meson.build", "configure", "configure.ac", "autogen.sh", "sconstruct", "sconscript", "wscript", "*.ninja",
		"build.rs", "build.zig", "build.xml", "pom.xml", "mvnw*", "gradlew*", "*.gradle", "*.gradle.kts", "gradle.properties", "gradle-wrapper.*", "build.sbt", "*.sbt", "build.sc", "project.clj", "deps.edn", "*.bzl", "build.bazel", "module.bazel", "workspace.bazel",
		"*.csproj", "*.fsproj", "*.vbproj", "*.sln", "*.props", "*.targets", "nuget.config", "global.json", "*.cabal", "stack.yaml", "cabal.project", "setup.hs", "dune-project", "*.opam",
		"rakefile", "*.rake", "guardfile", "fastfile", "justfile", "taskfile.y*ml", "tasks.py", "noxfile.py", "tox.ini", "pytest.ini", "conftest.py", "fabfile.py", "dodo.py", "gulpfile.*", "gruntfile.*", "*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts", "*.config.mts",
		"turbo.json", "nx.json", "project.json", "tsconfig*.json", "biome.json*", "lefthook*", "xmake.lua", "premake*.lua",
		"makefile.am", "makefile.in", "*.m4", "*.vcxproj", "*.slnx", "*.pbxproj", "*.xcconfig", "*.rsp", "build.cake", "psakefile.ps1", "magefile.go", "cakefile", "jakefile*", "thorfile", "capfile", "dangerfile", "berksfile", "appraisals", "pavement.py", "pants.toml",
		"*.conf.js", "*.conf.ts", "nodemon.json", "angular.json", "ember-cli-build.js", "webpack.mix.js", "dprint.json", "treefmt.toml", "book.toml", "mkdocs.y*ml", "conf.py", "_config.y*ml", "phpunit.xml*", "phpstan.neon*", "rector.php", "captainhook.json", "grumphp.y*ml",
	},
	[]string{ // containers and continuous integration
		"dockerfile*", "*.dockerfile", "containerfile*", "*compose*.y*ml", "vagrantfile", "procfile*", "tiltfile", "skaffold.yaml", "earthfile", "jenkinsfile*", "azure-pipelines*.y*ml", "bitbucket-pipelines.yml", "appveyor.yml", "cloudbuild.yaml", "buildspec.y*ml", "wisbox.toml",
		"ansible.cfg", "*.tf", "serverless.y*ml", "wrangler.toml", "wrangler.json*", "firebase.json", "netlify.toml", "vercel.json", "pulumi.y*ml", "helmfile.y*ml", "kustomization.y*ml", "docker-bake.*",
	},
)

// runByThemselves returns the changed paths, including removed ones, from which the host's programs
// may take settings or commands: because of their own name, the name of a link that leads to them,
// or their place in a folder of hooks.
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

// onHost describes the mounted folders of the host.
type onHost struct {
	hooks  []string // folders from which git on the host would take its hooks
	mounts []hostmount.Mount
}

// hookFolders finds the folders of hooks by core.hooksPath of the mounted repositories.
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

// inRepository reports whether a directory or one above it has a .git.
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

// links maps targets to the symbolic links of a workspace. If it is cut, there are more links than
// it has.
type links struct {
	to  map[string][]string
	cut bool
}

const (
	maxLinks     = 50_000
	maxLinkSteps = 200_000 // entries to read
	maxNames     = 64      // of one file
	maxTimes     = 2       // passes of a name through one link: a link to the top gives endless names
)

func newLinks() *links { return &links{to: map[string][]string{}} }

// readHost reads a mounted folder: the mount skips links that are absolute or lead out of it and
// back, but on the host such links may lead to changed files.
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

// read reads the links of a whole tree except for .git. The tree's root is called top; it is the
// directory at of the workspace. A link counts if its text leads below top, whether or not its
// target exists. Errors for which pass returns true don't mark the list as cut.
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
		case to == "/" || below(top, to): // it leads to a directory that contains top
			to = path.Clean(at)
		default:
			return nil
		}
		l.to[to] = append(l.to[to], path.Join(at, name))
		return nil
	})
	l.cut = l.cut || err != nil
}

// climbsLate reports whether a link's text has ".." after a name. If that name is itself a link,
// the kernel climbs from its target, which the text doesn't show.
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

// of returns the names of a file: its own, and those through links to it or to a directory above
// it, and through links to these.
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
		names = append(names, ".any") // it may have any
	}
	return names
}

// passes counts how often a name goes through a link.
func passes(link, name string) int {
	apart := func(s string) string { return strings.ReplaceAll("/"+s+"/", "/", "//") }
	return strings.Count(apart(name), apart(link)[1:len(apart(link))-1])
}

func runsByItself(name string) bool {
	names := strings.Split(leftout.Fold(name), "/")
	if slices.ContainsFunc(names, func(part string) bool { return strings.HasPrefix(part, ".") && part != "." && part != ".." }) {
		return true
	}
	return slices.ContainsFunc(selfRunning, func(pattern string) bool {
		return slices.ContainsFunc(names, func(part string) bool { ok, _ := path.Match(pattern, part); return ok })
	})
}

// bareRepositories returns a function that reports whether a path is below a directory that git
// takes for a bare repository: its config names programs that git runs without asking.
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

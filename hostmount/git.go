package hostmount

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/sys"
	"sync"
)

// A linked worktree and a submodule have a file .git, which names a git folder elsewhere by a path of the host. In a
// workspace that path leads nowhere. So the copy gets a folder .git of its own, with the content of that git folder and,
// for a worktree, of the repository's folder that it shares with others.
//
// The file's author may be hostile, so a git folder is copied only if it names the directory back, which git itself wrote there,
// if it belongs to the source's owner, and if it lies below an allowed root, unless the mount allows others.

const gitName = ".git"

// gitPlace has the paths of the git folders of a directory. common is "" for a submodule.
type gitPlace struct{ own, common string }

// gitFile plans what the copy has in place of a file .git. handled is false if the file is copied as it is.
func (p *plan) gitFile(ctx context.Context, dir *beneath.Handle, at *place, dst string, st *unix.Stat_t) (handled bool, err error) {
	text := p.small(join(at.src, gitName))
	name, ok := strings.CutPrefix(text, "gitdir:")
	if !ok {
		return false, nil
	}
	source, err := sys.PathOf(p.src.tree.Dir())
	if err != nil {
		return false, err
	}
	host, err := sys.PathOf(dir.File)
	if err != nil {
		return false, err
	}
	name = strings.TrimSpace(name)
	own := resolved(host, name)
	if rel, inside := below(source, own); inside {
		if !filepath.IsAbs(name) {
			return false, nil
		}
		here, _ := below(source, host)
		back, err := filepath.Rel(here, rel)
		if err != nil {
			return false, err
		}
		return true, p.add(&item{dst: dst, text: "gitdir: " + back + "\n", size: int64(len("gitdir: " + back + "\n")), mode: uint32(st.Mode) & 0o777, mtime: st.Mtim, plan: p})
	}
	git, ok := gitPlaceOf(host, own, p.src.owner)
	if !ok {
		p.skip(dst, GitUnknown)
		return true, nil
	}
	for _, folder := range []string{git.common, git.own} {
		if folder == "" {
			continue
		}
		if why, err := p.gitFolder(ctx, folder, dst, join(at.rel, gitName), git); why != "" || err != nil {
			p.skip(dst, why)
			return true, err
		}
	}
	return true, nil
}

// gitFolder plans the content of a git folder below dst.
func (p *plan) gitFolder(ctx context.Context, folder, dst, rel string, git gitPlace) (Reason, error) {
	src, err := findSource(Mount{HostPath: folder}, p.roots)
	if err != nil && p.mount.GitFolders {
		root, failed := openRoot(folder, mountSource, false)
		if failed != nil {
			return GitOutside, nil
		}
		defer root.close()
		src, err = root.source(".")
	}
	if err != nil {
		return GitOutside, nil
	}
	part := &plan{
		mount: Mount{}, at: p.at, src: src, budget: p.budget, all: p.all, census: p.census, firsts: map[uint64]*item{},
		report: MountReport{MountPath: p.report.MountPath, Skipped: map[Reason]int64{}},
	}
	p.parts = append(p.parts, part)
	part.refused = func(name string, dir bool) (Reason, bool) {
		if !git.has(folder, name) {
			return "", true
		}
		why := p.filter.refuses(join(rel, name), dir)
		return why, why != ""
	}
	if err := part.walkFrom(ctx, &place{dst: dst}); err != nil {
		return "", err
	}
	for _, it := range part.items {
		if it.src != "config" && it.src != "config.worktree" {
			continue
		}
		charged := it.size
		if it.first != nil {
			charged, it.first = 0, nil
		}
		it.text = withoutPlaces(part.small(it.src))
		if err := part.charge(int64(len(it.text)) - charged); err != nil {
			return "", err
		}
		it.size = int64(len(it.text))
	}
	return "", nil
}

// has reports whether the copy's folder has a name of one of the git folders, see gitrepository-layout(5).
func (g gitPlace) has(folder, name string) bool {
	top, _, _ := strings.Cut(name, "/")
	switch {
	case top == "worktrees" || g.common == "":
		return top != "worktrees"
	case folder == g.own:
		return !slices.Contains([]string{"gitdir", "commondir", "locked"}, name)
	case slices.Contains([]string{"logs/HEAD", "info/sparse-checkout"}, name):
		return false
	case slices.Contains([]string{"bisect", "worktree", "rewritten"}, path.Base(name)) && slices.Contains([]string{"refs", "logs/refs"}, path.Dir(name)):
		return false
	}
	return slices.Contains([]string{"objects", "refs", "packed-refs", "config", "hooks", "info", "logs", "shallow", "rr-cache", "lfs", "description"}, top)
}

// gitPlaceOf checks that a git folder names the directory host back, and belongs to its owner.
func gitPlaceOf(host, own string, owner uint32) (gitPlace, bool) {
	git := gitPlace{own: own}
	if back := readSmall(filepath.Join(own, "gitdir")); back != "" { // a linked worktree
		common := resolved(own, readSmall(filepath.Join(own, "commondir")))
		git.common = common
		if resolved(own, filepath.Dir(back)) != host || filepath.Base(back) != gitName || filepath.Dir(own) != filepath.Join(common, "worktrees") {
			return git, false
		}
	} else { // a submodule
		tree := coreWorktree(readSmall(filepath.Join(own, "config")))
		if tree == "" || resolved(own, tree) != host {
			return git, false
		}
	}
	for _, folder := range []string{git.own, git.common} {
		var st unix.Stat_t
		if folder != "" && (unix.Stat(folder, &st) != nil || st.Uid != owner || st.Mode&unix.S_IFMT != unix.S_IFDIR) {
			return git, false
		}
	}
	return git, true
}

// resolved returns a path of a git file, relative to dir, with its links resolved.
func resolved(dir, name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return filepath.Clean(name)
}

const maxGitFile = 64 << 10 // bytes of .git, gitdir, commondir or config

// small returns the text of a small file of the source, "" if it can't be read.
func (p *plan) small(name string) string {
	f, err := p.src.tree.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	return head(f)
}

func readSmall(name string) string {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return strings.TrimSpace(head(f))
}

func head(r io.Reader) string {
	text, err := io.ReadAll(io.LimitReader(r, maxGitFile))
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return string(text)
}

var (
	gitSection = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*\[\s*([^\]"]*?)\s*\]`) })
	gitSetting = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*?))?\s*$`) })
)

// gitSettings calls do for each line of a git configuration, with the setting in it, if it has one.
func gitSettings(text string, do func(line, section, name, value string)) {
	section := ""
	for line := range strings.Lines(text) {
		rest := line
		if found := gitSection().FindStringSubmatch(line); found != nil {
			section, rest = strings.ToLower(found[1]), line[len(found[0]):]
		} else if strings.HasPrefix(strings.TrimSpace(line), "[") {
			section, rest = "other", ""
		}
		name, value := "", ""
		if found := gitSetting().FindStringSubmatch(rest); found != nil {
			name, value = strings.ToLower(found[1]), found[2]
		}
		do(line, section, name, value)
	}
}

func coreWorktree(config string) (tree string) {
	gitSettings(config, func(_, section, name, value string) {
		if section == "core" && name == "worktree" {
			tree = strings.Trim(value, `"`)
		}
	})
	return tree
}

// withoutPlaces removes the settings that say where the working tree is: it is around the folder.
func withoutPlaces(config string) string {
	var out strings.Builder
	gitSettings(config, func(line, section, name, _ string) {
		place := section == "core" && (name == "worktree" || name == "bare") || section == "extensions" && name == "relativeworktrees"
		switch {
		case !place:
			out.WriteString(line)
		case strings.HasPrefix(strings.TrimSpace(line), "["): // the setting is on the section's own line
			out.WriteString("[" + section + "]\n")
		}
	})
	return out.String()
}

// borrows reports whether a file of the source lists directories of objects, one of which is not in the source.
func (p *plan) borrows(rel string) bool {
	objects, ok := strings.CutSuffix("/"+rel, "/objects/info/alternates")
	if !ok {
		return false
	}
	source, err := sys.PathOf(p.src.tree.Dir())
	if err != nil {
		return false
	}
	at := filepath.Join(source, objects, "objects")
	for line := range strings.Lines(p.small(rel)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if _, inside := below(source, resolved(at, line)); !inside || filepath.IsAbs(line) {
			return true
		}
	}
	return false
}

package hostmount_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

// git runs git in a directory of the host.
func (h *host) git(dir string, args ...string) string {
	h.t.Helper()
	out, err := h.tryGit(dir, args...)
	require.NoError(h.t, err, "git %v: %s", args, out)
	return out
}

func (h *host) tryGit(dir string, args ...string) (string, error) {
	if _, err := exec.LookPath("git"); err != nil {
		hosttest.Lacks(h.t, "git is missing")
	}
	cmd := exec.Command("git", args...)
	cmd.Dir = h.path(dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// project makes a repository with a commit on main.
func (h *host) project(dir string) {
	h.mkdir(dir)
	h.git(dir, "init", "-q", "-b", "main")
	h.write(dir+"/f", "one\n")
	h.git(dir, "add", ".")
	h.git(dir, "commit", "-qm", "first")
}

// only copies one mount, as if a person had typed it.
func (h *host) only(dir string, options ...string) (*hostmount.Report, error) {
	m := h.parse(strings.Join(append([]string{dir}, options...), ","))
	m.GitFolders = true
	opts := *h.opts
	opts.AllowedRoots = []string{m.HostPath}
	return hostmount.Copy(h.t.Context(), []hostmount.Mount{m}, &opts)
}

// works checks that git works in the copy, apart from the host: its own repositories are gone.
func (h *host) works(branch string) {
	h.t.Helper()
	assert.Equal(h.t, branch, h.git("workspace", "branch", "--show-current"))
	h.git("workspace", "fsck", "--strict")
	h.write("workspace/new", "new\n")
	h.git("workspace", "add", "new")
	h.git("workspace", "commit", "-qm", "of the session")
	assert.Equal(h.t, "of the session", h.git("workspace", "log", "-1", "--format=%s"))
	assert.Empty(h.t, h.git("workspace", "status", "--porcelain"))
	assert.NotContains(h.t, h.git("workspace", "config", "--list", "--local"), "core.worktree")
}

func TestALinkedWorktreeHasARepositoryOfItsOwn(t *testing.T) {
	for _, bare := range []bool{false, true} {
		h := newHost(t)
		h.project("main")
		h.git("main", "branch", "other")
		common := "main/.git"
		if bare {
			h.git(".", "clone", "-q", "--bare", "main", "bare.git")
			common = "bare.git"
		}
		h.git(common, "worktree", "add", "-q", "-b", "feature", h.path("tree"))
		h.git(common, "worktree", "add", "-q", h.path("second"), "other")
		h.write("tree/f", "two\n")
		h.write("tree/staged", "s\n")
		h.git("tree", "add", "staged")
		h.git("tree", "config", "user.name", "somebody")
		before := h.git(common, "rev-parse", "--all")

		r, err := h.only("tree")
		require.NoError(t, err)
		assert.Empty(t, r.Mounts[0].Skipped)
		assert.Positive(t, r.Files)
		assert.Equal(t, "M f\nA  staged", h.git("workspace", "status", "--porcelain"))
		assert.Equal(t, "somebody", h.git("workspace", "config", "user.name"))
		assert.Contains(t, h.git("workspace", "branch", "--format=%(refname:short)"), "other")
		assert.Equal(t, h.git("tree", "rev-parse", "HEAD"), h.git("workspace", "rev-parse", "HEAD"))
		assert.Equal(t, h.path("workspace"), h.git("workspace", "rev-parse", "--show-toplevel"))
		assert.NotContains(t, h.git("workspace", "worktree", "list"), h.path("tree"))
		require.NoError(t, os.RemoveAll(h.path("second")))
		h.git("workspace", "commit", "-aqm", "all")
		assert.Equal(t, before, h.git(common, "rev-parse", "--all"), "the host's repository")
		require.NoError(t, os.RemoveAll(h.path(common)))
		h.works("feature")
	}
}

func TestASubmoduleAloneHasARepositoryOfItsOwn(t *testing.T) {
	h := newHost(t)
	h.project("lib")
	h.project("main")
	h.git("main", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", h.path("lib"), "sub")
	h.git("main/sub", "checkout", "-qb", "work")
	_, err := h.only("main/sub")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(h.path("main")))
	h.works("work")

	h = newHost(t)
	h.project("lib")
	h.project("main")
	h.git("main", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", h.path("lib"), "sub")
	_, err = h.only("main")
	require.NoError(t, err)
	assert.Equal(t, "gitdir: ../.git/modules/sub", strings.TrimSpace(h.read("workspace/sub/.git")), "with its project it needs no other")
	h.git("workspace/sub", "status")
}

// A worktree in its own project names the host's path of a folder that is copied too.
func TestAWorktreeInTheMountFindsTheMountsRepository(t *testing.T) {
	h := newHost(t)
	h.project("main")
	h.git("main", "worktree", "add", "-q", "-b", "feature", h.path("main/.trees/a"))
	_, err := h.only("main")
	require.NoError(t, err)
	assert.Equal(t, "gitdir: ../../.git/worktrees/a\n", h.read("workspace/.trees/a/.git"))
	require.NoError(t, os.Rename(h.path("main"), h.path("away")))
	assert.Equal(t, "feature", h.git("workspace/.trees/a", "branch", "--show-current"))
}

func TestAGitFolderElsewhereIsCopiedByTheRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
		change  func(h *host)
		has     bool
		reason  hostmount.Reason
		kind    tool.Kind
	}{
		{"below an allowed root", nil, func(h *host) { h.opts.AllowedRoots = []string{h.path("tree"), h.path("main")} }, true, "", ""},
		{"outside of the roots", nil, func(h *host) { h.opts.AllowedRoots = []string{h.path("tree")} }, false, hostmount.GitOutside, ""},
		{"excluded", []string{"exclude=.git"}, nil, false, hostmount.Excluded, ""},
		{"excluded in part", []string{"exclude=.git/logs/**"}, nil, true, hostmount.Excluded, ""},
		{"not included", []string{"include=*.py"}, nil, false, hostmount.NotIncluded, ""},
		{"too large", []string{"max-bytes=2000"}, nil, false, "", tool.TooLarge},
		{"a repository that is gone", nil, func(h *host) { require.NoError(h.t, os.RemoveAll(h.path("main"))) }, false, hostmount.GitUnknown, ""},
		{"a worktree that was moved", nil, func(h *host) {
			h.write("main/.git/worktrees/tree/gitdir", h.path("was/.git")+"\n")
		}, false, hostmount.GitUnknown, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.project("main")
			h.git("main", "worktree", "add", "-q", "-b", "feature", h.path("tree"))
			typed := h.opts.AllowedRoots
			if c.change != nil {
				c.change(h)
			}
			m := h.parse(strings.Join(append([]string{"tree"}, c.options...), ","))
			if typed[0] == h.opts.AllowedRoots[0] {
				m.GitFolders, h.opts.AllowedRoots = true, []string{m.HostPath}
			}
			r, err := hostmount.Copy(t.Context(), []hostmount.Mount{m}, h.opts)
			assert.Equal(t, c.kind, tool.KindOf(err), "%v", err)
			_, there := os.Lstat(h.path("workspace/.git"))
			assert.Equal(t, c.has, there == nil)
			if err == nil && c.reason != "" {
				assert.Positive(t, r.Mounts[0].Skipped[c.reason], r.Mounts[0].Skipped)
			}
		})
	}
}

// A file .git is its author's: it can't name another repository of the host.
func TestAFileGitBringsInNoOtherRepository(t *testing.T) {
	for name, text := range map[string]string{
		"a repository":           "gitdir: {}/victim/.git",
		"another's worktree":     "gitdir: {}/victim/.git/worktrees/tree",
		"another's submodule":    "gitdir: {}/victim/.git/modules/sub",
		"a folder":               "gitdir: {}/secret",
		"a relative path":        "gitdir: ../../victim/.git",
		"the root":               "gitdir: /",
		"a device":               "gitdir: /dev",
		"a FIFO":                 "gitdir: {}/fifos",
		"a folder made for this": "gitdir: {}/allowed/forged/worktrees/x",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.project("lib")
			h.project("victim")
			h.git("victim", "worktree", "add", "-q", "-b", "feature", h.path("tree"))
			h.git("victim", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", h.path("lib"), "sub")
			h.mkdir("fifos")
			for _, fifo := range []string{"gitdir", "commondir", "config"} {
				require.NoError(t, unix.Mkfifo(h.path("fifos/"+fifo), 0o644))
			}
			h.write("allowed/forged/worktrees/x/gitdir", h.path("allowed/mine/.git"))
			h.write("allowed/forged/worktrees/x/commondir", h.path("victim/.git"))
			h.write("allowed/mine/.git", strings.ReplaceAll(text, "{}", h.dir)+"\n")
			h.write("allowed/mine/f", "f")
			r, err := h.only("allowed/mine")
			require.NoError(t, err)
			assert.Equal(t, map[hostmount.Reason]int64{hostmount.GitUnknown: 1}, r.Mounts[0].Skipped)
			assert.NoFileExists(t, h.path("workspace/.git"))
			assert.NoDirExists(t, h.path("workspace/.git"))
		})
	}
	h := newHost(t)
	h.write("allowed/repo/sub/.git", "not a link of git\n")
	h.mustCopy("allowed/repo")
	assert.Equal(t, "not a link of git\n", h.read("workspace/sub/.git"))
}

func TestAGitFolderOfAnotherOwnerIsNotCopied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file another owner; tests run as root too")
	}
	h := newHost(t)
	h.project("main")
	h.git("main", "worktree", "add", "-q", "-b", "feature", h.path("tree"))
	require.NoError(t, os.Lchown(h.path("main/.git"), 12345, 12345))
	r, err := h.only("tree")
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Mounts[0].Skipped[hostmount.GitUnknown])
}

func TestARepositoryThatBorrowsObjectsSaysSo(t *testing.T) {
	h := newHost(t)
	h.project("main")
	h.git(".", "clone", "-q", "--shared", "main", "shared")
	r, err := h.only("shared")
	require.NoError(t, err)
	assert.Equal(t, map[hostmount.Reason]int64{hostmount.GitBorrowed: 1}, r.Mounts[0].Skipped)
	assert.NoFileExists(t, h.path("workspace/.git/objects/info/alternates"), "it has a path of the host")

	h = newHost(t)
	h.project("both/main")
	h.git("both", "clone", "-q", "--shared", "main", "shared")
	h.write("both/shared/.git/objects/info/alternates", "# near\n../../../main/.git/objects\n")
	r, err = h.only("both")
	require.NoError(t, err)
	assert.Empty(t, r.Mounts[0].Skipped)
	h.git("workspace/shared", "fsck")
}

func TestThePreviewShowsAGitFolder(t *testing.T) {
	h := newHost(t)
	h.project("main")
	h.git("main", "worktree", "add", "-q", "-b", "feature", h.path("tree"))
	m := h.parse("tree")
	m.GitFolders = true
	r, err := hostmount.Preview(t.Context(), []hostmount.Mount{m}, &hostmount.Options{AllowedRoots: []string{m.HostPath}})
	require.NoError(t, err)
	var paths []string
	for _, e := range r.Mounts[0].Entries {
		paths = append(paths, e.Path)
	}
	assert.Contains(t, paths, ".git/HEAD")
	assert.Contains(t, paths, filepath.Join(".git", "refs", "heads", "feature"))
	assert.NotContains(t, paths, ".git/gitdir")
	require.Len(t, r.Mounts, 1)
}

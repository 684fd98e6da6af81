package changes_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/changes"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

// git runs git in the host's folder, for the test itself.
func (h *home) git(args ...string) string {
	cmd := exec.Command("git", append([]string{"-C", h.host, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(h.t, err, "git %v: %s", args, out)
	return strings.TrimSuffix(string(out), "\n")
}

func (h *home) commit(format string) {
	h.git("init", "-q", "--object-format="+format)
	h.git("add", "-A", "-f", ".")
	h.git("commit", "-qm", "first")
}

func (h *home) branch(opts changes.BranchOptions) (*changes.Branched, error) {
	homes, err := hostmount.OpenHomes(h.mounts, &hostmount.Options{AllowedRoots: []string{h.host}})
	require.NoError(h.t, err)
	defer hostmount.CloseHomes(homes)
	set, free := h.set(h.given, changes.Options{All: true})
	defer free()
	left := budget.New(context.Background(), changes.Limits)
	defer left.Close()
	opts.Name, opts.Message = "box", "changes"
	return set.Branch(left, homes, opts)
}

// remake replaces the content of the workspace.
func (h *home) remake() {
	t := h.t
	require.NoError(t, os.RemoveAll(filepath.Join(h.dir, "d")))
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "d"), []byte("was a directory"), 0o644))
	require.NoError(t, os.Remove(filepath.Join(h.dir, "f")))
	require.NoError(t, os.MkdirAll(filepath.Join(h.dir, "f/g"), 0o755))
	require.NoError(t, os.Symlink("../a", filepath.Join(h.dir, "f/g/link")))
	require.NoError(t, os.Chmod(filepath.Join(h.dir, "a"), 0o755))
	for _, name := range []string{"new\nline", "n\xff\xfe", ":(top)x", `"quote"\`, "-dash", " blank ", "ünï", "empty", strings.Repeat("l", 255)} {
		text := name
		if name == "empty" {
			text = ""
		}
		require.NoError(t, os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644))
	}
}

// TestABranchIsWhatGitWouldCommit uses any names, links, modes, and directories that become files,
// in both object formats.
func TestABranchIsWhatGitWouldCommit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			h, free := newHome(t, t.TempDir(), files("a", "d/x", "d/y/z", "f", "stays"))
			defer free()
			h.commit(format)
			h.remake()
			done, err := h.branch(changes.BranchOptions{})
			require.NoError(t, err)
			assert.Empty(t, done.Conflicts)
			assert.Equal(t, h.git("rev-parse", "box"), done.Commit)
			assert.Equal(t, h.git("rev-parse", "HEAD"), h.git("rev-parse", "box^"))
			assert.Empty(t, h.git("status", "--porcelain"), "the working tree and the index stay")
			h.git("fsck", "--strict")

			copied := filepath.Join(t.TempDir(), "copied")
			require.NoError(t, exec.Command("cp", "-a", h.dir, copied).Run())
			require.NoError(t, os.Rename(filepath.Join(h.host, ".git"), filepath.Join(copied, ".git")))
			h.host = copied
			h.git("add", "-A", "-f", ".")
			assert.Equal(t, h.git("write-tree"), h.git("rev-parse", "box^{tree}"))
		})
	}
}

func TestABranchRefusesWhatTheBaseHasOtherwise(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("a", "b", "sub/x", "untracked/f"))
	defer free()
	h.git("init", "-q", filepath.Join(h.host, "sub"))
	h.git("-C", "sub", "add", ".")
	h.git("-C", "sub", "commit", "-qm", "first")
	h.hostWrite("new", "the host's")
	h.hostWrite("a", "the host's")
	h.hostWrite("b", "as the session has it")
	h.git("init", "-q")
	h.git("add", "a", "b", "new", "sub")
	h.git("commit", "-qm", "first")
	for name, text := range map[string]string{"a": "s", "b": "as the session has it", "new": "s", "sub/x": "s", "untracked/f": "s", "new2": "s"} {
		require.NoError(t, os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644))
	}
	done, err := h.branch(changes.BranchOptions{})
	require.NoError(t, err)
	var names []string
	for _, c := range done.Conflicts {
		names = append(names, c.Path)
	}
	assert.Equal(t, []string{"a", "new", "sub/x"}, names)
	assert.Equal(t, int64(1), done.Already)
	assert.Empty(t, done.Commit)
	assert.Empty(t, h.git("branch", "--list", "box"))

	_, err = h.branch(changes.BranchOptions{From: "--help"})
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
}

// TestABranchLeavesNothingOfRootsInAPersonsRepository needs root.
func TestABranchLeavesNothingOfRootsInAPersonsRepository(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can work for another user")
	}
	const person = 1234
	top, err := os.MkdirTemp("", "branch") // accessible to the person
	require.NoError(t, err)
	defer os.RemoveAll(top)
	require.NoError(t, os.Chmod(top, 0o755))
	h, free := newHome(t, top, files("a", "d/.gitignore"))
	defer free()
	h.hostWrite("d/.gitignore", "out\n")
	h.commit("sha1")
	require.NoError(t, exec.Command("chown", "-R", "1234:1234", h.host).Run())
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "a"), []byte("2"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "d/out"), []byte("2"), 0o644))
	defer syscall.Umask(syscall.Umask(0o077))
	done, err := h.branch(changes.BranchOptions{})
	require.NoError(t, err)
	assert.Equal(t, int64(1), done.Ignored)
	require.NoError(t, filepath.Walk(h.host, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		assert.EqualValues(t, person, info.Sys().(*syscall.Stat_t).Uid, path)
		return nil
	}))
	assert.NotEmpty(t, h.git("rev-parse", "box"))
}

// TestABranchThatFindsNoRoomChangesNothing, and the next one removes what a killed one left.
func TestABranchThatFindsNoRoomChangesNothing(t *testing.T) {
	top := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(top, "host"), 0o755))
	hosttest.Tmpfs(t, filepath.Join(top, "host"), "size=4m")
	h, free := newHome(t, top, files("a"))
	defer free()
	h.commit("sha1")
	objects := filepath.Join(h.host, ".git/objects")
	list := func() (all []string) {
		require.NoError(t, filepath.WalkDir(objects, func(path string, _ os.DirEntry, err error) error {
			all = append(all, path)
			return err
		}))
		return all
	}
	before := list()
	big := make([]byte, 1<<20) // that can't be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(big)
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "a"), big, 0o644))
	filler := filepath.Join(h.host, ".git/filler")
	fill(t, filler, 512<<10)

	_, err := h.branch(changes.BranchOptions{})
	assert.Equal(t, tool.NoSpace, tool.KindOf(err), "%v", err)
	assert.NotContains(t, err.Error(), h.host)
	assert.Equal(t, before, list())
	assert.Empty(t, h.git("branch", "--list", "box"))

	killed := filepath.Join(objects, "tmp_objdir-wisbox-killed/pack")
	require.NoError(t, os.MkdirAll(killed, 0o755))
	require.NoError(t, os.Remove(filler))
	_, err = h.branch(changes.BranchOptions{})
	require.NoError(t, err)
	assert.NoDirExists(t, killed)
	assert.NotEmpty(t, h.git("rev-parse", "box"))
	h.git("fsck", "--strict")
}

// fill leaves some bytes of a file system.
func fill(t *testing.T, name string, left int64) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	size := int64(0)
	for block := make([]byte, 4096); err == nil; size += int64(len(block)) {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, errors.Join(f.Truncate(max(0, size-left)), f.Close()))
}

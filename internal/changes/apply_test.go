package changes_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/changes"
	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool"
)

// home is a bed whose workspace is a copy of a folder of the host.
type home struct {
	*bed
	host   string
	given  string
	mounts []hostmount.Mount

	remembers bool // what it has applied, as a session does
	applied   string
}

func newHome(t require.TestingT, top string, fill func(dir string)) (*home, func()) {
	b, free := newBed(t, top)
	h := &home{bed: b, host: filepath.Join(top, "host")}
	require.NoError(t, os.MkdirAll(h.host, 0o755))
	fill(h.host)
	copyTree(t, h.host, b.dir)
	h.given = b.snapshot()
	h.mounts = []hostmount.Mount{{HostPath: h.host, MountPath: "."}}
	return h, free
}

func (h *home) apply(dry bool) (*changes.Applied, error) {
	return h.applyWith(changes.ApplyOptions{DryRun: dry})
}

func (h *home) applyWith(opts changes.ApplyOptions) (*changes.Applied, error) {
	homes, err := hostmount.OpenHomes(h.mounts, &hostmount.Options{AllowedRoots: []string{h.host}})
	require.NoError(h.t, err)
	defer hostmount.CloseHomes(homes)
	ctx, now := context.Background(), h.snapshot()
	between, err := h.store.Between(ctx, h.given, now)
	require.NoError(h.t, err)
	defer between.Close()
	which := changes.Options{All: true}
	if h.applied != "" {
		which.Applied, err = h.store.Between(ctx, h.applied, now)
		require.NoError(h.t, err)
		defer which.Applied.Close()
	}
	left := budget.New(ctx, changes.Limits)
	defer left.Close()
	set, err := changes.Of(left, between, which)
	require.NoError(h.t, err)
	done, err := set.Apply(left, homes, opts)
	if h.remembers && err == nil && !opts.DryRun && len(done.Conflicts) == 0 {
		info, err := h.store.Graft(ctx, cmp.Or(h.applied, h.given), now, done.Brought(), "applied")
		require.NoError(h.t, err)
		h.applied = info.ID
	}
	return done, err
}

// hostWrite writes a file of the host, as a person would.
func (h *home) hostWrite(name, text string) {
	require.NoError(h.t, os.MkdirAll(filepath.Dir(filepath.Join(h.host, name)), 0o755))
	require.NoError(h.t, os.WriteFile(filepath.Join(h.host, name), []byte(text), 0o644))
}

func files(names ...string) func(string) {
	return func(dir string) {
		for _, name := range names {
			_ = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
			_ = os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o644)
		}
	}
}

// untouched asserts that the host's folder is unchanged, without files of ours.
func (h *home) untouched(before map[string]string) {
	assert.Equal(h.t.(assert.TestingT), before, tree(h.t, h.host))
}

// TestAnApplyMakesTheHostsFolderTheWorkspace uses random trees, except for links that may lead out;
// a second apply has nothing to do.
func TestAnApplyMakesTheHostsFolderTheWorkspace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, err := os.MkdirTemp("", "apply")
		require.NoError(t, err)
		defer os.RemoveAll(top)
		h, free := newHome(t, top, func(dir string) {
			for range rapid.IntRange(0, 12).Draw(t, "before") {
				change(t, dir)
			}
		})
		defer free()
		for range rapid.IntRange(1, 12).Draw(t, "after") {
			change(t, h.dir)
		}
		before, want := tree(t, h.host), tree(t, h.dir)
		plan, err := h.apply(true)
		require.NoError(t, err)
		h.untouched(before)
		if len(plan.Conflicts) > 0 {
			t.Fatalf("conflicts: %+v", plan.Conflicts)
		}
		done, err := h.apply(false)
		if tool.KindOf(err) == tool.Conflict { // a skipped link keeps its directory
			h.untouched(before)
			return
		}
		require.NoError(t, err)
		for _, o := range done.LeftOut {
			delete(want, o.Path)
			require.True(t, strings.HasPrefix(o.Reason, "it is a link that may lead out"), o.Reason)
		}
		have := tree(t, h.host)
		for _, o := range done.LeftOut {
			require.Equal(t, before[o.Path], have[o.Path])
			delete(have, o.Path)
		}
		require.Equal(t, want, have)
		again, err := h.apply(false)
		require.NoError(t, err)
		require.Empty(t, again.Changes)
		require.Empty(t, again.Conflicts)
	})
}

// TestAnApplyGoesOnWhereTheLastOneEnded with random changes between several applies, among them those
// that undo a change.
func TestAnApplyGoesOnWhereTheLastOneEnded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, err := os.MkdirTemp("", "apply")
		require.NoError(t, err)
		defer os.RemoveAll(top)
		h, free := newHome(t, top, func(dir string) {
			for range rapid.IntRange(0, 8).Draw(t, "before") {
				change(t, dir)
			}
		})
		defer free()
		h.remembers = true
		given := filepath.Join(top, "given")
		copyTree(t, h.dir, given)
		for range rapid.IntRange(2, 4).Draw(t, "rounds") {
			if rapid.IntRange(0, 4).Draw(t, "back") == 0 {
				names, err := os.ReadDir(h.dir)
				require.NoError(t, err)
				for _, name := range names {
					require.NoError(t, os.RemoveAll(filepath.Join(h.dir, name.Name())))
				}
				copyTree(t, given, h.dir)
			}
			for range rapid.IntRange(1, 6).Draw(t, "changes") {
				change(t, h.dir)
			}
			want := tree(t, h.dir)
			done, err := h.apply(false)
			if tool.KindOf(err) == tool.Conflict { // a skipped link keeps its directory
				return
			}
			require.NoError(t, err)
			require.Empty(t, done.Conflicts)
			if len(done.LeftOut) > 0 {
				return
			}
			require.Equal(t, want, tree(t, h.host))
		}
	})
}

// TestAFileThatBecameADirectoryIsNoConflictLater and the reverse, also without a record of the apply.
func TestAFileThatBecameADirectoryIsNoConflictLater(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("f", "d/x", "d/e/y", "l", "other"))
	defer free()
	for _, name := range []string{"f", "l", "d"} {
		require.NoError(t, os.RemoveAll(filepath.Join(h.dir, name)))
	}
	h.write("f/new", "session\n")
	h.write("d", "session\n")
	require.NoError(t, os.Symlink("other", filepath.Join(h.dir, "l")))
	for range 2 {
		done, err := h.apply(false)
		require.NoError(t, err)
		assert.Empty(t, done.Conflicts)
		assert.Equal(t, tree(t, h.dir), tree(t, h.host))
	}
	h.write("other", "session\n")
	done, err := h.apply(false)
	require.NoError(t, err)
	assert.Empty(t, done.Conflicts)
	assert.Len(t, done.Changes, 1)
	assert.Equal(t, tree(t, h.dir), tree(t, h.host))

	h.hostWrite("d", "host\n")
	done, err = h.apply(false)
	require.NoError(t, err)
	require.Len(t, done.Conflicts, 1)
	assert.Equal(t, "d", done.Conflicts[0].Path)
}

// TestWhatAPersonChangedAfterAnApplyIsAConflict, and a merge takes what the apply wrote as the ancestor.
func TestWhatAPersonChangedAfterAnApplyIsAConflict(t *testing.T) {
	lines := func(names ...string) string { return strings.Join(names, "\n") + "\n" }
	h, free := newHome(t, t.TempDir(), func(dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(lines("1", "2", "3", "4", "5")), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "gone"), []byte("mounted\n"), 0o644))
	})
	defer free()
	h.remembers = true
	h.write("f", lines("1", "two", "3", "4", "five"))
	require.NoError(t, os.Remove(filepath.Join(h.dir, "gone")))
	_, err := h.apply(false)
	require.NoError(t, err)
	h.hostWrite("f", lines("1", "two!", "3", "4", "five"))
	h.hostWrite("gone", "another\n")
	h.write("f", lines("1", "two", "3", "four", "five"))
	h.write("gone", "back\n")
	before := tree(t, h.host)
	done, err := h.apply(false)
	require.NoError(t, err)
	require.Len(t, done.Conflicts, 2)
	assert.Contains(t, done.Conflicts[0].Reason, "--3way")
	h.untouched(before)
	require.NoError(t, os.Remove(filepath.Join(h.host, "gone")))
	done, err = h.applyWith(changes.ApplyOptions{ThreeWay: true})
	require.NoError(t, err)
	assert.Empty(t, done.Conflicts)
	assert.Equal(t, []changes.Merged{{Path: "f"}}, done.Merged)
	after := tree(t, h.host)
	assert.Equal(t, fmt.Sprintf("false %q", lines("1", "two!", "3", "four", "five")), after["f"])
	assert.Equal(t, `false "back\n"`, after["gone"])

	h.hostWrite("f", lines("1", "2", "3", "4", "5", "6")) // a revert, then an edit: the mounted file is the ancestor
	done, err = h.applyWith(changes.ApplyOptions{ThreeWay: true})
	require.NoError(t, err)
	assert.Len(t, done.Merged, 1)
	assert.Contains(t, tree(t, h.host)["f"], "two")
}

// TestFilesNamedAsAnApplysDirectoryStayAway: one in the session doesn't come home, one that came with
// a patch blocks nothing.
func TestFilesNamedAsAnApplysDirectoryStayAway(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("a", "d/b"))
	defer free()
	h.write("a", "session\n")
	h.write(".wisbox-apply-x/y", "session\n")
	h.write(".Wisbox-Apply-z", "session\n")
	done, err := h.apply(false)
	require.NoError(t, err)
	require.Len(t, done.LeftOut, 2)
	assert.Len(t, done.Changes, 1)
	h.hostWrite(".wisbox-apply-x", "of a patch\n")
	require.NoError(t, os.Mkdir(filepath.Join(h.host, ".wisbox-apply-y"), 0o755))
	h.write("a", "again\n")
	h.hostWrite("a", "a\n")
	done, err = h.apply(false)
	require.NoError(t, err)
	assert.Empty(t, done.Conflicts)
}

func TestAConflictNamesEachFileAndNothingIsWritten(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("a", "b", "c", "d/e", "same"))
	defer free()
	for _, name := range []string{"a", "b", "c", "d/e", "new", "same"} {
		h.write(name, "session\n")
	}
	h.hostWrite("a", "host\n")
	require.NoError(t, os.Remove(filepath.Join(h.host, "b")))
	h.hostWrite("new", "host\n")
	h.hostWrite("same", "session\n")
	before := tree(t, h.host)
	done, err := h.apply(false)
	require.NoError(t, err)
	h.untouched(before)
	var paths []string
	for _, c := range done.Conflicts {
		paths = append(paths, c.Path)
	}
	assert.Equal(t, []string{"a", "b", "new"}, paths)
	assert.Contains(t, done.Conflicts[0].Reason, "wisbox apply SESSION --3way")
	assert.Contains(t, done.Conflicts[1].Reason, "removed on the host")
	assert.Contains(t, done.Conflicts[2].Reason, "something else of that name")
	assert.Equal(t, int64(1), done.Already)
}

// TestNothingIsWrittenThroughALinkOfTheHost, at the end of a path or on its way.
func TestNothingIsWrittenThroughALinkOfTheHost(t *testing.T) {
	top := t.TempDir()
	h, free := newHome(t, top, files("dir/a", "b"))
	defer free()
	h.write("dir/a", "session\n")
	h.write("dir/new", "session\n")
	h.write("b", "session\n")
	files("a", "b")(filepath.Join(top, "outside"))
	require.NoError(t, os.RemoveAll(filepath.Join(h.host, "dir")))
	require.NoError(t, os.Symlink(filepath.Join(top, "outside"), filepath.Join(h.host, "dir")))
	require.NoError(t, os.Remove(filepath.Join(h.host, "b")))
	require.NoError(t, os.Symlink(filepath.Join(top, "outside/b"), filepath.Join(h.host, "b")))
	outside := tree(t, filepath.Join(top, "outside"))
	done, err := h.apply(false)
	require.NoError(t, err)
	assert.Len(t, done.Conflicts, 3)
	assert.Equal(t, outside, tree(t, filepath.Join(top, "outside")))
}

// TestASwapperGetsNothingWrittenOutside: during an apply, a directory of the host is exchanged with
// a link again and again.
func TestASwapperGetsNothingWrittenOutside(t *testing.T) {
	top := t.TempDir()
	h, free := newHome(t, top, files("dir/a", "dir/b"))
	defer free()
	files("a", "b")(filepath.Join(top, "outside"))
	require.NoError(t, os.Symlink(filepath.Join(top, "outside"), filepath.Join(h.host, "link")))
	outside := tree(t, filepath.Join(top, "outside"))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = sys.Rename(unix.AT_FDCWD, filepath.Join(h.host, "dir"), unix.AT_FDCWD, filepath.Join(h.host, "link"), sys.Exchange)
			}
		}
	}()
	for i := range 50 {
		h.write("dir/a", fmt.Sprint(i, "\n"))
		h.write(fmt.Sprintf("dir/new%d/f", i), "x\n")
		_, _ = h.apply(false) // usually a conflict
	}
	close(stop)
	<-done
	assert.Equal(t, outside, tree(t, filepath.Join(top, "outside")))
	left, err := filepath.Glob(filepath.Join(h.host, ".wisbox-apply-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestLinksThatMayLeadOutAndGitsDirectoryAreNeverWritten(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("d/e/f", ".git/config"))
	defer free()
	bad := map[string]string{
		"absolute": "/etc/passwd", "up": "../x", "d/up": "../../x", "later": "d/../../x", "hidden": "d/e/../f", "repo": ".git/hooks", "d/repo": "../.GIT/config",
	}
	for name, target := range bad {
		require.NoError(t, os.Symlink(target, filepath.Join(h.dir, name)))
	}
	for name, target := range map[string]string{"good": "d/e/f", "d/good": "../d/e", "dangling": "nowhere"} {
		require.NoError(t, os.Symlink(target, filepath.Join(h.dir, name)))
	}
	h.write(".git/config", "[core]\n\tfsmonitor = evil\n")
	h.write("sub/.git/hooks/x", "evil\n")
	h.write(".hg/hgrc", "[hooks]\nupdate = evil\n")
	h.write("sub/.jj/repo/config.toml", "evil\n")
	h.write("d/.git", "gitdir: ../evil\n")
	done, err := h.apply(false)
	require.NoError(t, err)
	assert.Len(t, done.LeftOut, len(bad))
	assert.Equal(t, int64(5), done.Git)
	assert.Len(t, done.Changes, 3)
	have := tree(t, h.host)
	assert.Equal(t, `false ".git/config\n"`, have[".git/config"])
	assert.Equal(t, "link to d/e/f", have["good"])
	assert.Len(t, have, 5)
}

// TestNoDirectoryBecomesARepository, nor is one changed: git obeys the config of a directory with HEAD.
func TestNoDirectoryBecomesARepository(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("fixture/HEAD", "fixture/config", "page/head/x"))
	defer free()
	for _, name := range []string{"new/HEAD", "new/objects/x", "new/refs/x", "new/config", "Head", "fixture/config", "fixture/hooks/x", "fixture/HEAD", "page/config"} {
		h.write(name, "session\n")
	}
	require.NoError(t, os.Symlink("page", filepath.Join(h.dir, "new/sub")))
	done, err := h.apply(false)
	require.NoError(t, err)
	assert.Len(t, done.LeftOut, 5)
	have := tree(t, h.host)
	assert.Equal(t, `false "fixture/config\n"`, have["fixture/config"])
	assert.Equal(t, `false "fixture/HEAD\n"`, have["fixture/HEAD"])
	assert.Equal(t, `false "session\n"`, have["page/config"])
	assert.Equal(t, `false "session\n"`, have["new/config"])
	assert.NotContains(t, have, "new/HEAD")
	assert.NotContains(t, have, "Head")
	assert.NotContains(t, have, "fixture/hooks/x")
}

func TestWhatAMountLeavesOutStaysOut(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("a.py", ".env", "secrets/key"))
	defer free()
	h.mounts[0].Exclude = []string{".env", "secrets"}
	for _, name := range []string{"a.py", ".env", "secrets/key", "secrets/deep/er"} {
		h.write(name, "session\n")
	}
	done, err := h.apply(false)
	require.NoError(t, err)
	assert.Len(t, done.LeftOut, 3)
	assert.Equal(t, map[string]string{"a.py": `false "session\n"`, ".env": `false ".env\n"`, "secrets/key": `false "secrets/key\n"`}, tree(t, h.host))
}

// TestAFailureAmidTheRenamesPutsAllBack: a directory that became a file has more files on the host.
func TestAFailureAmidTheRenamesPutsAllBack(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("a", "b", "dir/x", "gone/deep/y"))
	defer free()
	h.write("a", "session\n")
	h.write("new/deep/file", "session\n")
	require.NoError(t, os.RemoveAll(filepath.Join(h.dir, "gone")))
	require.NoError(t, os.RemoveAll(filepath.Join(h.dir, "dir")))
	h.write("dir", "a file now\n")
	h.hostWrite("dir/mine", "host\n")
	before := tree(t, h.host)
	_, err := h.apply(false)
	require.Error(t, err)
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	assert.Contains(t, err.Error(), "more files than were mounted")
	h.untouched(before)
	assert.NoDirExists(t, filepath.Join(h.host, "new"))
	assert.DirExists(t, filepath.Join(h.host, "gone/deep"))
	require.NoError(t, os.Remove(filepath.Join(h.host, "dir/mine")))
	_, err = h.apply(false)
	require.NoError(t, err)
	assert.Equal(t, tree(t, h.dir), tree(t, h.host))
	assert.NoDirExists(t, filepath.Join(h.host, "gone"))
}

// TestWhatAnotherApplyLeftInTheFolder: one that only prepared left nothing that anybody misses; a later one may have the
// only copy of a replaced file.
func TestWhatAnotherApplyLeftInTheFolder(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("a"))
	defer free()
	h.write("a", "session\n")
	other := filepath.Join(h.host, ".wisbox-apply-x")
	require.NoError(t, os.Mkdir(other, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(other, "1"), []byte("host\n"), 0o600))
	_, err := h.apply(false)
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	assert.Contains(t, err.Error(), `".wisbox-apply-x"`)
	assert.FileExists(t, filepath.Join(other, "1"))

	require.NoError(t, os.WriteFile(filepath.Join(other, "preparing"), nil, 0o600))
	works, err := os.Open(other)
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(works.Fd()), unix.LOCK_EX))
	_, err = h.apply(false)
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	assert.Contains(t, err.Error(), "wait")
	assert.FileExists(t, filepath.Join(other, "1"))

	require.NoError(t, works.Close()) // as if it were killed
	_, err = h.apply(false)
	require.NoError(t, err)
	assert.Equal(t, tree(t, h.dir), tree(t, h.host))
	left, err := filepath.Glob(filepath.Join(h.host, ".wisbox-apply-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestTheModeAndTheOwnerOfAFileStay(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("a", "run"))
	defer free()
	require.NoError(t, os.Chmod(filepath.Join(h.host, "a"), 0o640))
	h.write("a", "session\n")
	require.NoError(t, os.Chmod(filepath.Join(h.dir, "run"), 0o755))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(filepath.Join(h.host, "a"), 1234, 1235))
	}
	_, err := h.apply(false)
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(h.host, "a"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	info, err = os.Stat(filepath.Join(h.host, "run"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
}

func TestOfMountsThatOverlapTheDeeperHasAFile(t *testing.T) {
	top := t.TempDir()
	h, free := newHome(t, top, files("a"))
	defer free()
	files("b")(filepath.Join(top, "host/inner"))
	h.mounts = append(h.mounts, hostmount.Mount{HostPath: filepath.Join(h.host, "inner"), MountPath: "sub"}, hostmount.Mount{HostPath: filepath.Join(h.host, "a"), MountPath: "one/file"})
	h.write("sub/new", "session\n")
	h.write("sub2/new", "session\n")
	done, err := h.apply(false)
	require.NoError(t, err)
	assert.Len(t, done.Changes, 2)
	have := tree(t, h.host)
	assert.Contains(t, have, "inner/new")
	assert.Contains(t, have, "sub2/new")
}

func TestAThreeWayApplyMergesWhatTheHostChangedToo(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("clean", "clash", "same", "exec", "other"))
	defer free()
	for name, text := range map[string]string{"clean": "1\n2\n3\n4\n", "clash": "1\n2\n3\n4\n", "same": "1\n2\n", "exec": "1\n2\n3\n"} {
		h.hostWrite(name, text)
		h.write(name, text)
	}
	h.given = h.snapshot()
	h.hostWrite("clean", "one\n2\n3\n4\n")
	h.write("clean", "1\n2\n3\nfour\n")
	h.hostWrite("clash", "1\nhost\n3\n4\n")
	h.write("clash", "1\nsession\n3\n4\nmore\n")
	h.hostWrite("same", "one\n2\nmore\n")
	h.write("same", "one\n2\n")
	h.hostWrite("exec", "1\n2\n3\nhost\n")
	require.NoError(t, os.Chmod(filepath.Join(h.dir, "exec"), 0o755))
	h.hostWrite("added", "x\n")
	h.write("added", "y\n")
	h.write("new", "new\n")
	before := tree(t, h.host)

	refused, err := h.applyWith(changes.ApplyOptions{})
	require.NoError(t, err)
	for _, c := range refused.Conflicts {
		assert.Equal(t, c.Path != "added", strings.Contains(c.Reason, "--3way"), c.Path)
	}
	h.untouched(before)
	plan, err := h.applyWith(changes.ApplyOptions{ThreeWay: true, DryRun: true})
	require.NoError(t, err)
	h.untouched(before)
	done, err := h.applyWith(changes.ApplyOptions{ThreeWay: true})
	require.NoError(t, err)
	assert.Equal(t, plan.Merged, done.Merged)
	assert.Equal(t, plan.Changes, done.Changes)
	assert.Equal(t, []changes.Merged{{Path: "added", Conflicts: 1}, {Path: "clash", Conflicts: 1}, {Path: "clean"}, {Path: "exec"}}, done.Merged)
	assert.EqualValues(t, 2, done.Marked)
	assert.Empty(t, done.Conflicts)
	for name, want := range map[string]string{
		"clean": "one\n2\n3\nfour\n", "clash": "1\n<<<<<<< host\nhost\n=======\nsession\n>>>>>>> session\n3\n4\nmore\n",
		"same": "one\n2\nmore\n", "exec": "1\n2\n3\nhost\n", "added": "<<<<<<< host\nx\n=======\ny\n>>>>>>> session\n", "new": "new\n", "other": "other\n",
	} {
		raw, err := os.ReadFile(filepath.Join(h.host, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(raw), name)
	}
	info, err := os.Stat(filepath.Join(h.host, "exec"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
}

func TestAThreeWayApplyRefusesWhatItCanNotMerge(t *testing.T) {
	big := strings.Repeat("x\n", 1<<19) + "y"
	for name, c := range map[string]struct{ change func(h *home) }{
		"binary in the session":  {func(h *home) { h.hostWrite("f", "host\n"); h.write("f", "a\x00b") }},
		"binary on the host":     {func(h *home) { h.hostWrite("f", "a\x00b"); h.write("f", "session\n") }},
		"no UTF-8":               {func(h *home) { h.hostWrite("f", "host\n"); h.write("f", "\xff\n") }},
		"large":                  {func(h *home) { h.hostWrite("f", "host\n"); h.write("f", big) }},
		"removed in the session": {func(h *home) { h.hostWrite("f", "host\n"); _ = os.Remove(filepath.Join(h.dir, "f")) }},
		"removed on the host":    {func(h *home) { _ = os.Remove(filepath.Join(h.host, "f")); h.write("f", "session\n") }},
		"markers on the host": {func(h *home) {
			h.hostWrite("f", "<<<<<<< host\na\n=======\nb\n>>>>>>> session\n")
			h.write("f", "session\n")
		}},
		"half a marker":          {func(h *home) { h.hostWrite("f", "f\n>>>>>>> feature\n"); h.write("f", "session\n") }},
		"markers in the session": {func(h *home) { h.hostWrite("f", "host\n"); h.write("f", "<<<<<<< HEAD\nf\n") }},
		"a link on the host": {func(h *home) {
			_ = os.Remove(filepath.Join(h.host, "f"))
			_ = os.Symlink("/etc/passwd", filepath.Join(h.host, "f"))
			h.write("f", "session\n")
		}},
		"a link in the session": {func(h *home) {
			h.hostWrite("f", "host\n")
			_ = os.Remove(filepath.Join(h.dir, "f"))
			_ = os.Symlink("g", filepath.Join(h.dir, "f"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h, free := newHome(t, t.TempDir(), files("f"))
			defer free()
			c.change(h)
			h.write("also", "new\n")
			before := tree(t, h.host)
			done, err := h.applyWith(changes.ApplyOptions{})
			require.NoError(t, err)
			require.Len(t, done.Conflicts, 1)
			assert.NotContains(t, done.Conflicts[0].Reason, "3way")
			done, err = h.applyWith(changes.ApplyOptions{ThreeWay: true})
			require.NoError(t, err)
			require.Len(t, done.Conflicts, 1)
			assert.Equal(t, "f", done.Conflicts[0].Path)
			assert.Empty(t, done.Merged)
			h.untouched(before)
		})
	}
}

// TestAMergeOfAMergeNestsNothing while the file has markers. Once a person has removed them, the
// same lines conflict again, because the ancestor is still the mounted file.
func TestAMergeOfAMergeNestsNothing(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("f"))
	defer free()
	h.hostWrite("f", "host\n")
	h.write("f", "session\n")
	done, err := h.applyWith(changes.ApplyOptions{ThreeWay: true})
	require.NoError(t, err)
	assert.EqualValues(t, 1, done.Marked)
	before := tree(t, h.host)
	done, err = h.applyWith(changes.ApplyOptions{ThreeWay: true})
	require.NoError(t, err)
	require.Len(t, done.Conflicts, 1)
	assert.Contains(t, done.Conflicts[0].Reason, "it has conflict markers")
	h.untouched(before)
	h.hostWrite("f", "by hand\n")
	done, err = h.applyWith(changes.ApplyOptions{ThreeWay: true})
	require.NoError(t, err)
	assert.Equal(t, []changes.Merged{{Path: "f", Conflicts: 1}}, done.Merged)
}

package changes_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/changes"
	"github.com/wisbox/wisbox/snapshot"
)

// bed is a workspace with its snapshots.
type bed struct {
	t     require.TestingT
	dir   string // the workspace
	store *snapshot.Store
}

func newBed(t require.TestingT, top string) (*bed, func()) {
	var roots []*os.Root
	for _, name := range []string{"workspace", "tmp", "store"} {
		require.NoError(t, os.MkdirAll(filepath.Join(top, name), 0o700))
		root, err := os.OpenRoot(filepath.Join(top, name))
		require.NoError(t, err)
		roots = append(roots, root)
	}
	store, err := snapshot.New(&snapshot.Options{Workspace: roots[0], Tmp: roots[1], Store: roots[2]})
	require.NoError(t, err)
	return &bed{t: t, dir: filepath.Join(top, "workspace"), store: store}, func() {
		_ = store.Close()
		for _, root := range roots {
			_ = root.Close()
		}
	}
}

func (b *bed) snapshot() string {
	info, err := b.store.Create(context.Background(), nil)
	require.NoError(b.t, err)
	return info.ID
}

func (b *bed) set(from string, opts changes.Options) (*changes.Set, func()) {
	between, err := b.store.Between(context.Background(), from, b.snapshot())
	require.NoError(b.t, err)
	left := budget.New(context.Background(), changes.Limits)
	defer left.Close()
	set, err := changes.Of(left, between, opts)
	require.NoError(b.t, err)
	return set, between.Close
}

// patch returns the differences from a snapshot as a patch and as a list.
func (b *bed) patch(from string) (string, *changes.Diff) {
	set, free := b.set(from, changes.Options{All: true})
	defer free()
	var out bytes.Buffer
	left := budget.New(context.Background(), changes.Limits)
	defer left.Close()
	require.NoError(b.t, set.Patch(left, &out))
	return out.String(), set.Diff()
}

// tree returns the files of a directory with the properties that a patch carries.
func tree(t require.TestingT, top string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(top, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(top, p)
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 {
			to, err := os.Readlink(p)
			all[rel] = "link to " + to
			return err
		}
		raw, err := os.ReadFile(p)
		all[rel] = fmt.Sprintf("%v %q", info.Mode()&0o100 != 0, raw)
		return err
	}))
	return all
}

// git runs git without any configuration.
func git(t require.TestingT, dir, stdin string, args ...string) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, stdin)
}

func copyTree(t require.TestingT, from, to string) {
	require.NoError(t, os.MkdirAll(to, 0o755))
	out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func removeEmptyDirs(t require.TestingT, to string) {
	out, err := exec.Command("find", to, "-mindepth", "1", "-type", "d", "-empty", "-delete").CombinedOutput() // git has none
	require.NoError(t, err, "%s", out)
}

// Generators of trees with difficult cases for a patch. No link leads in a circle, because git
// apply follows a link that it is about to remove.
var (
	names    = rapid.SampledFrom([]string{"a", "b", "c d", "é", "tab\there", `quo"te`, `back\slash`, "new\nline", "-x", "bad\xff", " lead", "trail "})
	lines    = rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "+x\n", "-- y\n", "diff --git a/x b/x\n", "d\r\n", "\t \n"}), 0, 40)
	contents = rapid.OneOf(
		rapid.Custom(func(t *rapid.T) string { return strings.Join(lines.Draw(t, "lines"), "") }),
		rapid.Custom(func(t *rapid.T) string { return strings.Join(lines.Draw(t, "lines"), "") + "no newline" }),
		rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")) }),
		rapid.SampledFrom([]string{"", "same\ncontent\n", "\x00\x01", "latin \xe9\n", strings.Repeat("\x00", 9000)}),
	)
)

// change makes a random change to a tree.
func change(t *rapid.T, top string) {
	dir := top
	for range rapid.IntRange(0, 2).Draw(t, "depth") {
		next := filepath.Join(dir, names.Draw(t, "dir"))
		if info, err := os.Lstat(next); err == nil && !info.IsDir() {
			_ = os.Remove(next)
		}
		require.NoError(t, os.MkdirAll(next, 0o755))
		dir = next
	}
	at := filepath.Join(dir, names.Draw(t, "name"))
	switch rapid.SampledFrom([]string{"write", "write", "write", "remove", "link", "rename", "mode", "edit"}).Draw(t, "what") {
	case "write":
		_ = os.RemoveAll(at)
		mode := rapid.SampledFrom([]os.FileMode{0o644, 0o755, 0o600}).Draw(t, "mode")
		require.NoError(t, os.WriteFile(at, []byte(contents.Draw(t, "content")), mode))
	case "remove":
		_ = os.RemoveAll(at)
	case "link":
		_ = os.RemoveAll(at)
		require.NoError(t, os.Symlink(rapid.SampledFrom([]string{"t1", "../t2", "no\nwhere", "/etc/passwd", "té"}).Draw(t, "target"), at))
	case "rename":
		_ = os.Rename(at, filepath.Join(top, names.Draw(t, "new name")))
	case "mode":
		if info, err := os.Lstat(at); err == nil && info.Mode().IsRegular() {
			require.NoError(t, os.Chmod(at, info.Mode()^0o111))
		}
	case "edit":
		if raw, err := os.ReadFile(at); err == nil {
			require.NoError(t, os.WriteFile(at, append(raw, "more\n"...), 0o600))
		}
	}
}

// TestAPatchAppliedByGitGivesTheSameTree with random trees, in both directions.
func TestAPatchAppliedByGitGivesTheSameTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, err := os.MkdirTemp("", "patch")
		require.NoError(t, err)
		defer os.RemoveAll(top)
		b, free := newBed(t, top)
		defer free()
		for range rapid.IntRange(0, 12).Draw(t, "before") {
			change(t, b.dir)
		}
		before := tree(t, b.dir)
		copyTree(t, b.dir, filepath.Join(top, "copy"))
		removeEmptyDirs(t, filepath.Join(top, "copy"))
		given := b.snapshot()
		for range rapid.IntRange(1, 12).Draw(t, "after") {
			change(t, b.dir)
		}
		patch, _ := b.patch(given)
		if patch == "" {
			require.Equal(t, before, tree(t, b.dir))
			return
		}
		git(t, filepath.Join(top, "copy"), patch, "apply", "--binary", "-")
		require.Equal(t, tree(t, b.dir), tree(t, filepath.Join(top, "copy")), "%s", patch)
		git(t, filepath.Join(top, "copy"), patch, "apply", "--binary", "-R", "-")
		require.Equal(t, before, tree(t, filepath.Join(top, "copy")), "%s", patch)
	})
}

func (b *bed) write(name, text string) {
	require.NoError(b.t, os.MkdirAll(filepath.Dir(filepath.Join(b.dir, name)), 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o644))
}

func TestARenameIsARenameAndALargeFileIsBinary(t *testing.T) {
	b, free := newBed(t, t.TempDir())
	defer free()
	b.write("old.txt", "one\ntwo\n")
	b.write("gone", "x\n")
	given := b.snapshot()
	require.NoError(t, os.Rename(filepath.Join(b.dir, "old.txt"), filepath.Join(b.dir, "new.txt")))
	require.NoError(t, os.Remove(filepath.Join(b.dir, "gone")))
	b.write("large", strings.Repeat("line\n", 1<<20))
	patch, diff := b.patch(given)
	assert.Contains(t, patch, "similarity index 100%\nrename from old.txt\nrename to new.txt\n")
	assert.Contains(t, patch, "deleted file mode 100644\n")
	assert.Contains(t, patch, "GIT binary patch\nliteral 5242880\n")
	require.Len(t, diff.Changes, 3)
	assert.Equal(t, [3]changes.Status{changes.Removed, changes.Added, changes.Renamed}, [3]changes.Status{diff.Changes[0].Status, diff.Changes[1].Status, diff.Changes[2].Status})
	assert.Equal(t, int64(1), diff.RemovedLines)
}

func TestGitsOwnDirectoryAndByProductsAreLeftOut(t *testing.T) {
	b, free := newBed(t, t.TempDir())
	defer free()
	given := b.snapshot()
	for _, name := range []string{".git/config", "sub/.GIT/hooks/post-commit", "x/git~1/config", "y/.git. /config", "z/.git", "hfs/.g\u200cit/config", ".hg/hgrc", "sub/.svn/wc.db", "_darcs/prefs/defaults", ".jj/repo/config.toml", ".bzr/branch/branch.conf", "__pycache__/a.pyc", "real"} {
		b.write(name, "x\n")
	}
	set, done := b.set(given, changes.Options{})
	defer done()
	diff := set.Diff()
	require.Len(t, diff.Changes, 1)
	assert.Equal(t, "real", diff.Changes[0].Path)
	assert.Equal(t, int64(11), diff.Git)
	assert.Equal(t, int64(1), diff.Byproducts)
}

// TestAPatchIsBoundedByItsBudget: a file of holes costs no more than its budget.
func TestAPatchIsBoundedByItsBudget(t *testing.T) {
	b, free := newBed(t, t.TempDir())
	defer free()
	given := b.snapshot()
	b.write("holes", "")
	require.NoError(t, os.Truncate(filepath.Join(b.dir, "holes"), 1<<40))
	set, done := b.set(given, changes.Options{})
	defer done()
	left := budget.New(t.Context(), budget.Limits{Out: 1 << 20})
	defer left.Close()
	var out bytes.Buffer
	require.ErrorIs(t, set.Patch(left, &out), budget.ErrExceeded)
	assert.Less(t, out.Len(), 1<<20)
}

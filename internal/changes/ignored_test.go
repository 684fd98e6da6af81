package changes_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/changes"
	"github.com/wisbox/wisbox/tool"
)

func (b *bed) shown(given string, opts changes.Options) (paths []string, ignored int64) {
	ctx := context.Background()
	between, err := b.store.Between(ctx, given, b.snapshot())
	require.NoError(b.t, err)
	defer between.Close()
	if !opts.All {
		opts.Mounted = between.Old
	}
	left := budget.New(ctx, changes.Limits)
	defer left.Close()
	set, err := changes.Of(left, between, opts)
	require.NoError(b.t, err)
	diff := set.Diff()
	for _, c := range diff.Changes {
		paths = append(paths, c.Path)
	}
	return paths, diff.Ignored
}

func TestTheMountedRulesHideWhatGitWouldHide(t *testing.T) {
	b, free := newBed(t, t.TempDir())
	defer free()
	run := func(args ...string) {
		out, err := exec.Command("git", append([]string{"-C", b.dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("init", "-q")
	for name, text := range map[string]string{
		".gitignore": "node_modules/\n*.log\nbuild/*\n!build/kept\n/vendored\n", "sub/.gitignore": "!important.log\nlocal\n", ".git/info/exclude": "mine\n",
		"vendored/tracked": "x", "node_modules/old": "x", "debug.log": "x", "a.go": "x", "other/.git/HEAD": "ref: x", "vendored/own/.git/HEAD": "ref: x",
	} {
		b.write(name, text)
	}
	run("add", ".")
	run("add", "-f", "vendored/tracked")
	given := b.snapshot()
	for _, name := range []string{
		"node_modules/old", "node_modules/p/index.js", "sub/node_modules/q/x", "new.log", "debug.log", "sub/important.log", "sub/local", "build/x", "build/kept", "mine",
		"vendored/tracked", "vendored/new", "vendored/own/z.go", "other/node_modules/x", "a.go", "b.go",
	} {
		b.write(name, "session")
	}
	b.write(".gitignore", "*\n") // programs hide nothing
	paths, ignored := b.shown(given, changes.Options{})
	assert.Equal(t, []string{".gitignore", "a.go", "b.go", "build/kept", "other/node_modules/x", "sub/important.log", "vendored/own/z.go", "vendored/tracked"}, paths)
	assert.EqualValues(t, 9, ignored)
	paths, ignored = b.shown(given, changes.Options{All: true})
	assert.Len(t, paths, 17)
	assert.Zero(t, ignored)
	paths, ignored = b.shown(given, changes.Options{Below: "sub"})
	assert.Equal(t, []string{"sub/important.log"}, paths)
	assert.EqualValues(t, 2, ignored)
}

// TestWithoutAnIndexWhatWasMountedIsShown: it may be tracked.
func TestWithoutAnIndexWhatWasMountedIsShown(t *testing.T) {
	for _, index := range []string{"", "damaged"} {
		b, free := newBed(t, t.TempDir())
		defer free()
		b.write(".gitignore", "*.log\nlib/\n")
		b.write("lib/a", "x")
		b.write("old.log", "x")
		if index != "" {
			b.write(".git/index", index)
		}
		given := b.snapshot()
		for _, name := range []string{"lib/a", "lib/b", "old.log", "new.log"} {
			b.write(name, "session")
		}
		paths, ignored := b.shown(given, changes.Options{})
		assert.Equal(t, []string{"lib/a", "old.log"}, paths)
		assert.EqualValues(t, 2, ignored)
	}
}

// TestHostileRulesAndDirectoriesAreBounded: links in their place count as nothing, and a tree of
// directories costs no more than the budget.
func TestHostileRulesAndDirectoriesAreBounded(t *testing.T) {
	b, free := newBed(t, t.TempDir())
	defer free()
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(b.dir, ".gitignore")))
	require.NoError(t, os.MkdirAll(filepath.Join(b.dir, "d/.gitignore"), 0o755))
	given := b.snapshot()
	for i := range 200 {
		b.write(filepath.Join("d", string(rune('a'+i%26)), "e", filepath.Join("f", string(rune('a'+i/26))), "x"), "session")
	}
	paths, _ := b.shown(given, changes.Options{})
	assert.Len(t, paths, 200)
	between, err := b.store.Between(context.Background(), given, b.snapshot())
	require.NoError(t, err)
	defer between.Close()
	limits := changes.Limits
	limits.Memory = 4 << 10
	left := budget.New(context.Background(), limits)
	defer left.Close()
	_, err = changes.Of(left, between, changes.Options{Mounted: between.Old})
	assert.Equal(t, tool.Limit, tool.KindOf(err))
}

// TestTheRulesOfHostileFilesAreChargedAsTheyAreKept: compiled, they take a hundred times their text.
func TestTheRulesOfHostileFilesAreChargedAsTheyAreKept(t *testing.T) {
	b, free := newBed(t, t.TempDir())
	defer free()
	for i := range 3 {
		b.write(fmt.Sprintf("d%d/.gitignore", i), strings.Repeat(strings.Repeat("[!a]", 60)+"\n", 800))
	}
	given := b.snapshot()
	for i := range 3 {
		b.write(fmt.Sprintf("d%d/f", i), "session")
	}
	between, err := b.store.Between(t.Context(), given, b.snapshot())
	require.NoError(t, err)
	defer between.Close()
	limits := changes.Limits
	limits.Memory = 8 << 20
	left := budget.New(t.Context(), limits)
	defer left.Close()
	_, err = changes.Of(left, between, changes.Options{Mounted: between.Old})
	assert.Equal(t, tool.Limit, tool.KindOf(err))
}

package images

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// tree creates a directory of files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

const fromScratch = "FROM scratch\nCOPY . /\n"

func TestAContextGoesWithoutWhatItsIgnoreFileLists(t *testing.T) {
	dir := tree(t, map[string]string{
		"Containerfile": fromScratch, "a.log": "1", "keep.log": "2", "sub/deep.log": "3", "node_modules/x/y": "4", ".env": "secret", "sub/.env": "5",
		".containerignore": "\ufeff# what the image doesn't need\n\n*.log\n  !keep.log\n/.env\nnode_modules/\n",
	})
	require.NoError(t, os.Symlink("keep.log", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "absolute")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	s := newStore()
	report, err := BuildFile(t.Context(), s, &FileOptions{Context: dir, Tag: "mine"})
	require.NoError(t, err)
	assert.Equal(t, "localhost/mine:latest", report.Image)
	assert.Equal(t, sentFile, s.build.File)
	assert.Equal(t, map[string]string{labelBuilt: "localhost/mine:latest"}, s.build.Labels)
	assert.True(t, s.build.Layers)
	assert.Equal(t, []string{sentFile}, s.build.Exclude)
	assert.Equal(t, map[string]string{
		sentFile: fromScratch, "Containerfile": fromScratch, "keep.log": "2", "sub/": "", "sub/deep.log": "3", "sub/.env": "5",
		"link": "", "absolute": "", ".containerignore": s.context[".containerignore"],
	}, s.context)
	assert.Equal(t, []string{"localhost/mine:latest"}, s.prepared)
}

func TestEveryContainerfileIsSentUnderOneName(t *testing.T) {
	dir := tree(t, map[string]string{"f": "1", "Dockerfile": "FROM x"})
	elsewhere := filepath.Join(tree(t, map[string]string{"C": fromScratch}), "C")
	ignored := tree(t, map[string]string{"C": fromScratch, ".dockerignore": "C\n"})
	input := tree(t, map[string]string{"C.in": fromScratch}) // Podman runs the C preprocessor on such names
	linked := tree(t, map[string]string{})
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(linked, "Containerfile")))
	for name, opts := range map[string]*FileOptions{
		"another folder": {Context: dir, File: elsewhere},
		"ignored":        {Context: ignored, File: filepath.Join(ignored, "C")},
		"a link":         {Context: linked},
		"named as input": {Context: input, File: filepath.Join(input, "C.in")},
		"stdin":          {Context: dir, Stdin: strings.NewReader(fromScratch)},
	} {
		t.Run(name, func(t *testing.T) {
			opts.Tag = "mine"
			s := newStore()
			_, err := BuildFile(t.Context(), s, opts)
			require.NoError(t, err)
			assert.Equal(t, sentFile, s.build.File)
			assert.Equal(t, []string{sentFile}, s.build.Exclude)
			assert.Equal(t, fromScratch, s.context[sentFile])
		})
	}
	s := newStore()
	_, err := BuildFile(t.Context(), s, &FileOptions{Stdin: strings.NewReader(fromScratch), Tag: "mine"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{sentFile: fromScratch}, s.context, "there is no folder")
}

func TestTheContextIsTheFolderOfTheContainerfile(t *testing.T) {
	dir := tree(t, map[string]string{"sub/my.containerfile": fromScratch, "sub/f": "1", "g": "2", "sub/my.containerfile.containerignore": "*ignore\n"})
	s := newStore()
	_, err := BuildFile(t.Context(), s, &FileOptions{File: filepath.Join(dir, "sub/my.containerfile"), Tag: "mine"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{sentFile: fromScratch, "my.containerfile": fromScratch, "f": "1"}, s.context)
}

func TestWhatCanNotBeBuiltIsSaidBeforeAByteGoes(t *testing.T) {
	good := tree(t, map[string]string{"Containerfile": fromScratch, "f": "12345"})
	out := tree(t, map[string]string{"Containerfile": fromScratch})
	require.NoError(t, os.MkdirAll(filepath.Join(out, "d"), 0o755))
	require.NoError(t, os.Symlink("../../etc", filepath.Join(out, "d/link")))
	waits := tree(t, map[string]string{"Containerfile": fromScratch})
	require.NoError(t, syscall.Mkfifo(filepath.Join(waits, ".dockerignore"), 0o600))
	for name, c := range map[string]struct {
		opts FileOptions
		kind tool.Kind
		says string
	}{
		"not a folder":     {FileOptions{Context: good + "/none"}, tool.NotFound, "folder not found"},
		"a file for it":    {FileOptions{Context: good + "/f"}, tool.NotDir, "-f"},
		"a URL":            {FileOptions{Context: "https://example.com/x.git"}, tool.Invalid, "not a folder"},
		"no Containerfile": {FileOptions{Context: tree(t, nil)}, tool.NotFound, "neither a Containerfile nor a Dockerfile"},
		"not there":        {FileOptions{File: good + "/none"}, tool.NotFound, "file not found"},
		"a folder for it":  {FileOptions{File: good}, tool.IsDir, "name the file"},
		"empty":            {FileOptions{Stdin: strings.NewReader(" \n")}, tool.Invalid, "FROM"},
		"not text":         {FileOptions{Stdin: strings.NewReader("\x7fELF\x00")}, tool.Invalid, "not text"},
		"huge":             {FileOptions{Stdin: strings.NewReader(strings.Repeat("#", maxContainerfile+1))}, tool.TooLarge, "1 MiB"},
		"too many bytes":   {FileOptions{Context: good, MaxContext: 20}, tool.TooLarge, "--max-context"},
		"a name of ours":   {FileOptions{Context: tree(t, map[string]string{"Containerfile": fromScratch, sentFile: "FROM x"})}, tool.Invalid, "rename it"},
		"a link out of it": {FileOptions{Context: out}, tool.Escape, "d/link"},
		"bad pattern":      {FileOptions{Context: tree(t, map[string]string{"Containerfile": fromScratch, ".dockerignore": "[a\n"})}, tool.Invalid, ".dockerignore"},
		"a FIFO":           {FileOptions{Context: waits}, tool.Invalid, "make it a file"},
		"an agent's name":  {FileOptions{Context: good, Tag: "wisbox-agent:claude-1"}, tool.Exists, "choose another"},
		"a reserved name":  {FileOptions{Context: good, Tag: "wisbox"}, tool.Exists, "choose another"},
		"not a name":       {FileOptions{Context: good, Tag: "A B"}, tool.Invalid, "localhost/mine:1"},
		"wisbox's is not there": {FileOptions{Stdin: strings.NewReader("ARG A\n from --platform=linux/amd64  localhost/wisbox AS x\n")}, tool.Unavailable,
			"wisbox image build"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			_, err := BuildFile(t.Context(), s, &c.opts)
			require.Error(t, err)
			assert.Equal(t, c.kind, tool.KindOf(err), "%v", err)
			assert.ErrorContains(t, err, c.says)
			assert.Empty(t, s.builtOn)
		})
	}
}

func TestAFolderOfVeryManyFilesIsRefused(t *testing.T) {
	scan := func(ctx context.Context, most int) error {
		c := &buildContext{most: most}
		var err error
		c.root, err = os.OpenRoot(tree(t, map[string]string{"a": "1", "b/c": "2", ".containerignore": "b\n"}))
		require.NoError(t, err)
		defer c.close()
		return c.scan(ctx, "", 1<<20)
	}
	assert.NoError(t, scan(t.Context(), 3), "an ignored folder is not gone into")
	assert.Equal(t, tool.TooLarge, tool.KindOf(scan(t.Context(), 2)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, scan(ctx, 3), context.Canceled, "the scan of a large one can be ended")
}

func TestAnImageOnWisboxsStandsOnThisVersions(t *testing.T) {
	for _, from := range []string{"FROM localhost/wisbox", "FROM localhost/wisbox:latest AS x\nRUN y", "# c\nFROM a AS b\nFROM \"localhost/wisbox\"\r\n"} {
		s := newStore()
		s.images[Default] = sandbox.ImageInfo{ID: "mine"}
		s.images[Latest] = sandbox.ImageInfo{ID: "another version's"}
		_, err := BuildFile(t.Context(), s, &FileOptions{Stdin: strings.NewReader(from), Tag: "x"})
		require.NoError(t, err)
		assert.Equal(t, []string{"mine " + Latest}, s.tagged, from)
	}
	for _, from := range []string{"FROM localhost/wisbox:0123456789ab", "FROM localhost/wisboxes", "RUN echo FROM localhost/wisbox", "FROM x/localhost/wisbox"} {
		s := newStore()
		_, err := BuildFile(t.Context(), s, &FileOptions{Stdin: strings.NewReader(from), Tag: "x"})
		require.NoError(t, err)
		assert.Empty(t, s.tagged, from)
	}
}

func TestWithoutATagTheNameFollowsTheContent(t *testing.T) {
	dir := tree(t, map[string]string{"Containerfile": fromScratch, "f": "1"})
	build := func(args map[string]string) string {
		t.Helper()
		report, err := BuildFile(t.Context(), newStore(), &FileOptions{Context: dir, Args: args})
		require.NoError(t, err)
		require.Regexp(t, `^localhost/wisbox-built:[0-9a-f]{12}$`, report.Image)
		return report.Image
	}
	first := build(nil)
	assert.Equal(t, first, build(nil))
	assert.NotEqual(t, first, build(map[string]string{"A": "1"}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("2"), 0o644))
	second := build(nil)
	assert.NotEqual(t, first, second)
	require.NoError(t, os.Chmod(filepath.Join(dir, "f"), 0o755))
	assert.NotEqual(t, second, build(nil))
}

// shrinking is a builder that truncates a file of the context before reading it.
type shrinking struct {
	*store
	path string
}

func (s *shrinking) BuildImage(_ context.Context, r io.Reader, _ sandbox.ImageBuild) error {
	if err := os.Truncate(s.path, 1); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, r)
	return errors.Join(errors.New("the builder's own words"), err)
}

func TestAFileThatShrinksMeanwhileIsNamed(t *testing.T) {
	dir := tree(t, map[string]string{"Containerfile": fromScratch, "f": strings.Repeat("x", 1<<20)})
	_, err := BuildFile(t.Context(), &shrinking{newStore(), filepath.Join(dir, "f")}, &FileOptions{Context: dir, Tag: "x"})
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	assert.ErrorContains(t, err, "context: f changed")
}

// racing is a builder that fails as Podman does while another image is removed.
type racing struct {
	*store
	fails int
	sizes []int64
}

func (s *racing) BuildImage(ctx context.Context, r io.Reader, build sandbox.ImageBuild) error {
	if s.fails--; s.fails < 0 {
		return s.store.BuildImage(ctx, r, build)
	}
	n, err := io.Copy(io.Discard, r)
	s.sizes = append(s.sizes, n)
	return errors.Join(errors.New("checking if cached image exists from a previous build: getting top layer info: layer not known"), err)
}

// TestABuildIsRepeatedIfAnImageWasRemovedMeanwhile, with the whole context, but not for ever.
func TestABuildIsRepeatedIfAnImageWasRemovedMeanwhile(t *testing.T) {
	dir := tree(t, map[string]string{"Containerfile": fromScratch, "f": strings.Repeat("x", 1<<20)})
	s := &racing{store: newStore(), fails: 2}
	_, err := BuildFile(t.Context(), s, &FileOptions{Context: dir, Tag: "x"})
	require.NoError(t, err)
	assert.Len(t, s.sizes, 2)
	assert.Equal(t, s.sizes[0], s.sizes[1])
	s.fails = 10
	_, err = BuildFile(t.Context(), s, &FileOptions{Context: dir, Tag: "x"})
	require.ErrorContains(t, err, "layer not known")
	assert.Equal(t, 7, s.fails)
}

// reading is a builder that records the end of its context.
type reading struct {
	*store
	end error
}

func (s *reading) BuildImage(_ context.Context, r io.Reader, _ sandbox.ImageBuild) error {
	for tr := tar.NewReader(r); s.end == nil; {
		_, s.end = tr.Next()
	}
	return nil
}

// TestAFileThatChangesAfterTheApprovalIsNotBuilt, even if it keeps its size: the builder gets an incomplete context.
func TestAFileThatChangesAfterTheApprovalIsNotBuilt(t *testing.T) {
	dir := tree(t, map[string]string{"Containerfile": fromScratch, "f": "mine"})
	s := &reading{store: newStore()}
	_, err := BuildFile(t.Context(), s, &FileOptions{Context: dir, Approve: func(string) error {
		return os.WriteFile(filepath.Join(dir, "f"), []byte("evil"), 0o644)
	}})
	assert.Equal(t, tool.Conflict, tool.KindOf(err), "%v", err)
	assert.ErrorContains(t, err, "nothing was built; build again")
	assert.ErrorIs(t, s.end, err)
	s.end = nil
	_, err = BuildFile(t.Context(), s, &FileOptions{Context: dir, Approve: func(string) error { return nil }})
	assert.ErrorIs(t, err, sandbox.ErrNotFound, "it built nothing")
	assert.ErrorIs(t, s.end, io.EOF)
}

func TestABuilderThatReadsNothingEndsTheSending(t *testing.T) {
	s := newStore()
	s.buildErr = errors.New("no service")
	dir := tree(t, map[string]string{"Containerfile": fromScratch, "f": strings.Repeat("x", 1<<20)})
	_, err := BuildFile(t.Context(), s, &FileOptions{Context: dir, Tag: "x"})
	assert.ErrorIs(t, err, s.buildErr)
}

func TestANewBuildTakesTheOldImageWithIt(t *testing.T) {
	const tag = "localhost/mine:1"
	for name, c := range map[string]struct {
		before  sandbox.ImageInfo
		removed []string
	}{
		"a build's":          {sandbox.ImageInfo{ID: "before", Tags: []string{tag}, Labels: map[string]string{labelBuilt: tag}}, []string{"before"}},
		"it has two names":   {sandbox.ImageInfo{ID: "before", Tags: []string{tag, "localhost/b:1"}, Labels: map[string]string{labelBuilt: tag}}, nil},
		"another's":          {sandbox.ImageInfo{ID: "before", Tags: []string{tag}}, nil},
		"the same once more": {sandbox.ImageInfo{ID: "built", Tags: []string{tag}, Labels: map[string]string{labelBuilt: tag}}, nil},
	} {
		s := &shelves{store: newStore()}
		s.images[tag] = c.before
		_, err := BuildFile(t.Context(), s, &FileOptions{Stdin: strings.NewReader(fromScratch), Tag: tag})
		require.NoError(t, err)
		assert.Equal(t, c.removed, s.removed, name)
	}
}

package digest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/digest/digesttest"
	"github.com/wisbox/wisbox/tool"
)

func lay(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

func TestEveryNamedCommandRuns(t *testing.T) {
	for name, files := range digesttest.Projects {
		t.Run(name, func(t *testing.T) {
			dir := lay(t, files)
			r, err := Build(context.Background(), os.DirFS(dir))
			require.NoError(t, err)
			var lines []string
			for _, c := range r.Commands {
				lines = append(lines, c.Line)
				runs(t, dir, c)
			}
			for _, want := range digesttest.Expected[name] {
				assert.Contains(t, lines, want)
			}
			assert.NotContains(t, r.Text().Full, "evil")
			assert.NotContains(t, r.Text().Full, "release")
		})
	}
}

// runs tries a command whose tools this machine has.
func runs(t *testing.T, dir string, c Command) {
	t.Helper()
	for _, need := range c.Needs {
		if !present(need) {
			t.Logf("%s: not tried, this machine has no %s", c.Line, need)
			return
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", c.Line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOPROXY=off", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s\n%s", c.Line, out)
}

func present(need string) bool {
	if module, ok := strings.CutPrefix(need, "python3:"); ok {
		return exec.Command("python3", "-c", "import "+module).Run() == nil
	}
	_, err := exec.LookPath(need)
	return err == nil
}

func TestWhatARecipeCallsIsNamed(t *testing.T) {
	m := parseMake(digesttest.Projects["python with make"]["Makefile"])
	assert.Equal(t, []string{"make", "python3", "python3:unittest"}, m.programs("test"))
	assert.Equal(t, []string{"cc", "make"}, parseMake("CC ?= cc\nall: a.o\na.o:\n\t@mkdir -p x && $(CC) -c a.c; echo ok\n").programs("all"))
	assert.Equal(t, []string{"git", "make"}, parseMake("lint:\n\t@bad=$$(git ls-files | xargs true); scripts/x.sh\n").programs("lint"))
}

func TestTestsThatUnittestDoesNotFindAreNotNamed(t *testing.T) {
	test := "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"
	for file, named := range map[string]bool{"test_a.py": true, "tests/test_a.py": true, "demo/tests/test_a.py": false, "pkg/test_a.py": false} {
		r, err := Build(context.Background(), fstest.MapFS{file: {Data: []byte(test)}})
		require.NoError(t, err)
		assert.Equal(t, named, len(r.Commands) == 1, file)
	}
}

func TestCaveatsAndMarks(t *testing.T) {
	r, err := Build(context.Background(), os.DirFS(lay(t, digesttest.Projects["mixed"])))
	require.NoError(t, err)
	text := strings.Join(r.Caveats, "\n")
	assert.Contains(t, text, "large files: `data/big.csv`")
	assert.Contains(t, text, "1 binary files")
	r, err = Build(context.Background(), os.DirFS(lay(t, digesttest.Projects["python with make"])))
	require.NoError(t, err)
	for _, c := range r.Commands {
		assert.Equal(t, c.Line == "make test", c.CI, c.Line)
	}
}

func TestTheResolutionOrder(t *testing.T) {
	ctx := context.Background()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	files := os.DirFS(lay(t, digesttest.Projects["go"]))
	var kept *Text
	var log bytes.Buffer
	opts := &Options{Files: files, Overrides: Dir{Root: root}, Tag: "v2",
		Kept: func(context.Context) (*Text, error) { return kept, nil }, Keep: func(_ context.Context, text *Text) error { kept = text; return nil }, Log: slog.New(slog.NewTextHandler(&log, nil))}
	d := New(opts)
	source := func() Source {
		_, s, err := d.Get(ctx)
		require.NoError(t, err)
		return s
	}
	assert.Equal(t, FromFiles, source())
	require.NoError(t, d.Set(ctx, Text{Full: "for all"}, Global))
	assert.Equal(t, FromOverrides, source())
	require.NoError(t, d.Set(ctx, Text{Full: "mine"}, Session))
	assert.Equal(t, FromSession, source())
	assert.Equal(t, "mine", kept.Full)
	require.NoError(t, d.Clear(ctx))
	assert.Nil(t, kept)
	assert.Equal(t, FromOverrides, source())
	assert.Empty(t, log.String())

	d = New(&Options{Overrides: Dir{Root: root}, Log: opts.Log})
	assert.Equal(t, FromPlaceholder, source(), "another tag is another digest")
	assert.Contains(t, log.String(), "level=WARN")
}

func TestOptimizeStoresWhatTheProducerWrites(t *testing.T) {
	ctx := context.Background()
	d := New(&Options{Files: os.DirFS(lay(t, digesttest.Projects["go"]))})
	out, err := d.Optimize(ctx, func(_ context.Context, now Text, r *Report) (Text, error) {
		assert.Contains(t, now.Full, "go test ./...")
		assert.NotEmpty(t, r.Commands)
		return Text{Summary: "short", Full: "long"}, nil
	}, Session)
	require.NoError(t, err)
	assert.Equal(t, Optimized{Digest: Text{Summary: "short", Full: "long"}, Scope: Session, SectionKey: SectionKey}, out)
	_, err = d.Optimize(ctx, func(context.Context, Text, *Report) (Text, error) { return Text{}, errors.New("no model") }, Session)
	require.ErrorContains(t, err, "no model")
	_, err = d.Optimize(ctx, func(context.Context, Text, *Report) (Text, error) { return Text{Full: "x"}, nil }, Global)
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	text, source, err := d.Get(ctx)
	require.NoError(t, err)
	assert.Equal(t, FromSession, source)
	assert.Equal(t, "short", text.at(Summary))
}

func TestTheTool(t *testing.T) {
	d := New(&Options{Files: os.DirFS(lay(t, digesttest.Projects["python with make"]))})
	call := func(args string) (Answer, error) {
		res, err := d.Tools()[0].Call(context.Background(), json.RawMessage(args))
		if err != nil {
			return Answer{}, err
		}
		return res.Value.(Answer), nil
	}
	a, err := call(`{}`)
	require.NoError(t, err)
	assert.Equal(t, FromFiles, a.Source)
	assert.Contains(t, a.Digest, "Makefile")
	a, err = call(`{"set":"my own","level":"summary"}`)
	require.NoError(t, err)
	assert.Equal(t, Answer{Digest: "my own", Level: Summary, Source: FromSession, SectionKey: SectionKey}, a)
	a, err = call(`{"set":""}`)
	require.NoError(t, err)
	assert.Equal(t, FromFiles, a.Source)
	_, err = call(`{"level":"all"}`)
	assert.Equal(t, "level", tool.AsError(err).Field)
	_, err = call(`{"set":"` + strings.Repeat("x", maxText+1) + `"}`)
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
}

func TestNothingOfAHostileTreeReachesThePrompt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := fstest.MapFS{}
		name := rapid.StringMatching(`[a-z\x60\n*\[\]éA-Z .-]{1,12}`)
		for range rapid.IntRange(1, 8).Draw(t, "files") {
			dir, base := name.Draw(t, "dir"), rapid.SampledFrom([]string{"Makefile", "package.json", "pyproject.toml", "go.mod", "x.py", "test_x.py", "x.go"}).Draw(t, "base")
			content := rapid.SampledFrom([]string{"`evil`:\n\tevil\ntest: evil\n", `{"scripts":{"test":"evil","lint":"` + "`evil`" + `","e v":"x"}}`, "[tool.evil]\n", "import evil\ndef test_evil(): pass\n", "\x00"}).Draw(t, "content")
			p := base
			if rapid.Bool().Draw(t, "deep") {
				p = dir + "/" + base
			}
			if fs.ValidPath(p) {
				files[p] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
			}
		}
		r, err := Build(context.Background(), files)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(r.Text().Full, "\n") {
			if strings.Count(line, "`")%2 != 0 {
				t.Fatalf("open code span: %q", line)
			}
		}
		for _, c := range r.Commands {
			if strings.ContainsAny(c.Line, "`\n$\"'*") {
				t.Fatalf("command %q", c.Line)
			}
		}
	})
}

func FuzzMakefilesAreNeverBelieved(f *testing.F) {
	f.Add(digesttest.Projects["c with make"]["Makefile"])
	f.Add("a b: c ; d\nx := y\n\tz\n$(q): w\n")
	f.Fuzz(func(t *testing.T, text string) {
		m := parseMake(text)
		for _, target := range m.order {
			for _, p := range m.programs(target) {
				require.True(t, plain(strings.TrimPrefix(p, "python3:")), p)
			}
		}
	})
}

func TestThisRepositoryIsDescribed(t *testing.T) {
	r, err := Build(context.Background(), os.DirFS(".."))
	require.NoError(t, err)
	var lines []string
	for _, c := range r.Commands {
		lines = append(lines, c.Line)
	}
	assert.Contains(t, lines, "go test ./...")
	assert.Contains(t, lines, "make test")
}

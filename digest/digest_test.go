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
	"github.com/wisbox/wisbox/internal/budget"
	_ "github.com/wisbox/wisbox/internal/properties"
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

// runs runs a command if this machine has its tools.
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

func parsed(t testing.TB, text string) *makefile {
	b := budget.New(t.Context(), project)
	t.Cleanup(b.Close)
	return parseMake(b, text)
}

func TestWhatARecipeCallsIsNamed(t *testing.T) {
	m := parsed(t, digesttest.Projects["python with make"]["Makefile"])
	assert.Equal(t, []string{"make", "python3", "python3:unittest"}, m.programs("test"))
	assert.Equal(t, []string{"cc", "make"}, parsed(t, "CC ?= cc\nall: a.o\na.o:\n\t@mkdir -p x && $(CC) -c a.c; echo ok\n").programs("all"))
	assert.Equal(t, []string{"git", "make"}, parsed(t, "lint:\n\t@bad=$$(git ls-files | xargs true); scripts/x.sh\n").programs("lint"))
}

func TestTestsThatUnittestDoesNotFindAreNotNamed(t *testing.T) {
	test := "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"
	for file, named := range map[string]bool{"test_a.py": true, "tests/test_a.py": true, "demo/tests/test_a.py": false, "pkg/test_a.py": false} {
		r, err := Build(context.Background(), fstest.MapFS{file: {Data: []byte(test)}, "app.py": {}})
		require.NoError(t, err)
		assert.Equal(t, named, len(r.Commands) == 1, file)
	}
}

func TestTestsOfAnUnknownStyleGetTheConfiguredCommandOrACaveat(t *testing.T) {
	const pytest, caveat = "python3 -m pytest", "no command that runs the tests was found"
	table := "[project]\nname = \"a\"\n[tool.pytest.ini_options]\npython_functions = \"check_*\"\n"
	for name, c := range map[string]struct {
		config, settings, test string
		line, caveat           string
	}{
		"a table":                {"pyproject.toml", table, "def check_it(): pass\n", pytest, ""},
		"no function at all":     {"pyproject.toml", table, "from cases import *\n", pytest, ""},
		"pytest.ini":             {"pytest.ini", "[pytest]\n", "def check_it(): pass\n", pytest, ""},
		"tox.ini":                {"tox.ini", "[pytest]\n", "def check_it(): pass\n", pytest, ""},
		"setup.cfg":              {"setup.cfg", "[tool:pytest]\n", "def check_it(): pass\n", pytest, ""},
		"nothing configured":     {"pyproject.toml", "[project]\nname = \"a\"\n", "def check_it(): pass\n", "", caveat},
		"a name in a text":       {"pyproject.toml", "[project]\ntext = \"\"\"\n[tool.pytest]\n\"\"\"\n", "def check_it(): pass\n", "", caveat},
		"a name without a score": {"pyproject.toml", "[project]\nname = \"a\"\n", "def testIt(): pass\n", pytest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Build(context.Background(), os.DirFS(lay(t, map[string]string{c.config: c.settings, "tests/test_a.py": c.test, "a.py": ""})))
			require.NoError(t, err)
			line := ""
			for _, c := range r.Commands {
				if c.Purpose == "test" && c.Line != "tox" {
					line = c.Line
				}
			}
			assert.Equal(t, c.line, line)
			assert.Equal(t, c.caveat, strings.Join(r.Caveats, "; "))
		})
	}
}

func TestProjectsInMountedFoldersAreNamedWithTheirDirectory(t *testing.T) {
	test := "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"tests and a package": {
			map[string]string{"src/README.md": "", "src/app/__init__.py": "", "src/tests/__init__.py": "", "src/tests/test_a.py": test, "data/x.csv": "1"},
			[]string{"(cd src && python3 -m unittest discover -s tests -t .)"},
		},
		"pytest": {map[string]string{"src/test_a.py": "def test_a(): pass\n"}, []string{"(cd src && python3 -m pytest)"}},
		"two": {
			map[string]string{"a/go.mod": "module a\n", "a/a.go": "package a\n", "b/Makefile": "test:\n\ttrue\n", "b/x/y/z/package.json": `{"scripts":{"test":"node x"}}`},
			[]string{"go -C a build ./...", "make -C b test", "go -C a vet ./...", "(cd b/x/y/z && npm test)"},
		},
		"more files of configuration": {
			map[string]string{"x.py": "", "svc/setup.py": "", "svc/tests/test_a.py": test, "lib/tox.ini": ""},
			[]string{"tox", "(cd svc && python3 -m unittest discover -s tests)"},
		},
		"hidden, and material of tests": {map[string]string{"x.py": "", ".ci/Makefile": "test:\n\ttrue\n", "a/testdata/go.mod": "", "a/testdata/x.go": "", "_a/tox.ini": ""}, nil},
		"tests beside what they test":   {map[string]string{"lib/a.py": "", "tests/test_a.py": test}, []string{"python3 -m unittest discover -s tests"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Build(context.Background(), os.DirFS(lay(t, c.files)))
			require.NoError(t, err)
			var lines []string
			for _, c := range r.Commands {
				lines = append(lines, strings.Replace(c.Line, "(cd lib && tox)", "tox", 1))
			}
			assert.ElementsMatch(t, c.want, lines)
		})
	}
}

func TestALegalPathIsNotTooDeep(t *testing.T) {
	r, err := Build(context.Background(), fstest.MapFS{strings.Repeat("d/", 15) + "x.py": {}})
	require.NoError(t, err)
	assert.Equal(t, 1, r.Files)
	assert.Equal(t, []string{"no tests were found"}, r.Caveats)
}

func TestACIFileOfAMountedFolderMarksItsCommands(t *testing.T) {
	r, err := Build(context.Background(), fstest.MapFS{
		"src/Makefile": {Data: []byte("test:\n\ttrue\nlint:\n\ttrue\n")}, "src/.gitlab-ci.yml": {Data: []byte("x:\n  script: make test\n")},
	})
	require.NoError(t, err)
	require.Len(t, r.Commands, 2)
	assert.True(t, r.Commands[0].CI, r.Commands[0].Line)
	assert.False(t, r.Commands[1].CI, r.Commands[1].Line)
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
	require.NoError(t, d.Clear(ctx, Session))
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
	out, err := d.Optimize(ctx, func(_ context.Context, now Text, r *Report) (Draft, error) {
		assert.Contains(t, now.Full, "go test ./...")
		assert.NotEmpty(t, r.Commands)
		return Draft{Digest: Text{Summary: "short", Full: "long"}, Response: "said"}, nil
	}, Session)
	require.NoError(t, err)
	assert.Equal(t, Optimized{Response: "said", Digest: Text{Summary: "short", Full: "long"}, Scope: Session, SectionKey: SectionKey}, out)
	_, err = d.Optimize(ctx, func(context.Context, Text, *Report) (Draft, error) { return Draft{}, errors.New("no model") }, Session)
	require.ErrorContains(t, err, "no model")
	_, err = d.Optimize(ctx, func(context.Context, Text, *Report) (Draft, error) { return Draft{Digest: Text{Full: "x"}}, nil }, Global)
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	text, source, err := d.Get(ctx)
	require.NoError(t, err)
	assert.Equal(t, FromSession, source)
	assert.Equal(t, "short", text.at(Summary))
}

func TestAModelIsShownWhatTellsOfTheWorkspace(t *testing.T) {
	files := fstest.MapFS{
		"src/README.md": {Data: []byte("# Shop\nSells things.\n" + strings.Repeat("x", 10_000))}, "src/Makefile": {Data: []byte("test:\n\tpytest\n")},
		"src/secret/deep.txt": {Data: []byte("not shown")}, "src/a`b": {},
	}
	d := New(&Options{Files: files})
	var prompt string
	response := "A shop.\n\n---\n\n# Shop\nRun `make -C src test`.\n"
	out, err := d.Optimize(t.Context(), d.Written(func(_ context.Context, p string) (string, error) { prompt = p; return response, nil }), Session)
	require.NoError(t, err)
	assert.Equal(t, response, out.Response)
	assert.Equal(t, Text{Summary: "A shop.\n", Full: "# Shop\nRun `make -C src test`.\n"}, out.Digest)
	for _, part := range []string{"Sells things.", `"cut": true`, "make -C src test", "src/secret/deep.txt", "src/a?b", "follow no instruction"} {
		assert.Contains(t, prompt, part)
	}
	assert.NotContains(t, prompt, "not shown")
	assert.Less(t, len(prompt), 100<<10)
	text, source, err := d.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, FromSession, source)
	assert.Equal(t, out.Digest, text)
}

func TestAModelsAnswerIsReadAsOneOrTwoParts(t *testing.T) {
	for answer, want := range map[string]Text{
		"only this":                     {Full: "only this\n"},
		"```markdown\na\n---\nb\n```\n": {Summary: "a\n", Full: "b\n"},
		"\n---\nb":                      {Full: "---\nb\n"},
		"a\r\n---\r\nb":                 {Summary: "a\n", Full: "b\n"},
	} {
		got, err := readDraft(answer)
		require.NoError(t, err)
		assert.Equal(t, want, got, answer)
	}
	for _, empty := range []string{"", " \n", "```\n```"} {
		_, err := readDraft(empty)
		assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	}
}

func TestTheDigestOfAllSessionsIsTakenBack(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	d := New(&Options{Overrides: Dir{Root: root}})
	require.NoError(t, d.Clear(t.Context(), Global), "there is none")
	require.NoError(t, d.Set(t.Context(), Text{Full: "for all"}, Global))
	require.NoError(t, d.Clear(t.Context(), Global))
	_, source, err := d.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, FromPlaceholder, source)
	assert.Equal(t, tool.Invalid, tool.KindOf(d.Clear(t.Context(), "all")))
	assert.Equal(t, tool.Unsupported, tool.KindOf(New(nil).Clear(t.Context(), Global)))
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
		for line := range strings.SplitSeq(r.Text().Full, "\n") {
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
		m := parsed(t, text)
		for target := range m.rules {
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

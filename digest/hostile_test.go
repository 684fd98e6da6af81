package digest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// workspace is a workspace that is expensive to examine.
type workspace struct {
	files map[string]string
	more  func(t *testing.T, dir string)
	wide  string // one of wides, in place of files
	says  string // text that the digest must contain in any case
	whole bool   // it isn't cut
}

// hostile returns workspaces that make a summary expensive, each in another way.
func hostile() map[string]workspace {
	return map[string]workspace{
		"substitutions":                  {files: map[string]string{"Makefile": powers(40, "x") + "test:\n\techo $(A0)\n\tpytest\n"}, says: "make test"},
		"substitutions of nothing":       {files: map[string]string{"Makefile": powers(40, "") + "test:\n\techo $(A0)\n"}, says: "make test"},
		"substitutions in prerequisites": {files: map[string]string{"Makefile": powers(40, "x ") + "test: $(A0)\n\ttrue\n"}, says: "make test"},
		"a variable of itself":           {files: map[string]string{"Makefile": "A = $(A)$(A)$(A)$(A)\ntest: $(A)\n\t$(A)\n"}, says: "make test"},
		"targets times recipe lines": {files: map[string]string{
			"Makefile": "test " + words("t", 15_000) + ":\n" + strings.Repeat("\ta\n", 50_000),
		}, says: "make test"},
		"targets times prerequisites": {files: map[string]string{
			"Makefile": "test:\n" + strings.Repeat(words("t", 300)+": "+words("p", 300)+"\n", 60),
		}, says: "make test"},
		"100,000 targets":           {files: map[string]string{"Makefile": "test: a\n\n" + lines("t%d:", 100_000)}, says: "make test"},
		"rules of one target":       {files: map[string]string{"Makefile": strings.Repeat("test: a b c\n\tx;y;z\n", 20_000)}, says: "make test"},
		"a chain of targets":        {files: map[string]string{"Makefile": "test: t0\n" + chain(20_000)}, says: "make test"},
		"a line of separators":      {files: map[string]string{"Makefile": "test:\n" + strings.Repeat("\t"+strings.Repeat(";", 1000)+"\n", 250)}, says: "make test"},
		"programs without end":      {files: map[string]string{"Makefile": "test:\n" + lines("\tprogram%d", 20_000)}, says: "make test"},
		"a continued line of 1 MB":  {files: map[string]string{"Makefile": "test: a \\\n" + strings.Repeat("b \\\n", 1<<18)}, says: "make test"},
		"a line of 1 MB":            {files: map[string]string{"Makefile": "test:\n\ttrue\n" + strings.Repeat("a ", 1<<19)}, says: "make test"},
		"define, foreach and calls": {files: map[string]string{"Makefile": "define R\n" + strings.Repeat("$(foreach x,$(wildcard **/*),$(call R,$(patsubst %,%$(x),$(x))))\n", 3000) + "endef\n$(eval $(call R))\ninclude Makefile */Makefile $(wildcard *)\ntest:\n\ttrue\n"}, says: "make test"},
		"many Makefiles": {files: func() map[string]string {
			all := map[string]string{"Makefile": "test:\n\ttrue\n"}
			for i := range 60 {
				all[fmt.Sprintf("p%02d/Makefile", i)] = powers(40, "") + "test:\n\techo $(A0)\n" + strings.Repeat("\ta;b;c;d\n", 20_000)
			}
			return all
		}(), says: "make test"},

		"package.json with scripts without end": {files: map[string]string{"package.json": `{"scripts":{"test":"node x",` + lines(`"s%d":"",`, 20_000) + `"z":""}}`}, says: "npm"},
		"package.json with a script of 250 KB":  {files: map[string]string{"package.json": `{"scripts":{"test":"` + strings.Repeat("a&&b;c|", 35_000) + `"}}`}, says: "npm test"},
		"package.json of programs":              {files: map[string]string{"package.json": `{"scripts":{"test":"` + lines("p%d;", 4000, " ") + `","build":"` + lines("q%d;", 4000, " ") + `"}}`}, says: "npm test"},
		"package.json of 10 MB":                 {files: map[string]string{"package.json": strings.Repeat("[", 10<<20)}, says: "only the beginning was read of `package.json`"},
		"JSON nested 100,000 deep":              {files: map[string]string{"package.json": `{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`}, whole: true},

		"TOML nested 100,000 deep": {files: map[string]string{"pyproject.toml": "x = " + strings.Repeat("[", 100_000) + "\n[tool.ruff]\n"}, says: "ruff", whole: true},
		"TOML of one long key":     {files: map[string]string{"pyproject.toml": "[tool.ruff]\n" + strings.Repeat("a.", 100_000) + "b = 1\n"}, says: "ruff", whole: true},
		"TOML of many keys":        {files: map[string]string{"pyproject.toml": "[tool.ruff]\n" + lines("k%d=1", 25_000)}, says: "ruff", whole: true},
		"TOML of many tables":      {files: map[string]string{"pyproject.toml": "[tool.ruff]\n" + lines("[t%d]", 25_000)}, says: "ruff", whole: true},
		"TOML of arrays":           {files: map[string]string{"pyproject.toml": "[tool.ruff]\nx = [" + strings.Repeat("[],{},", 40_000) + "]\n"}, says: "ruff", whole: true},
		"setup.cfg, tox.ini":       {files: map[string]string{"setup.cfg": strings.Repeat("[flake8]\n", 1<<18), "tox.ini": strings.Repeat("[", 1<<21)}, says: "flake8"},

		"CI files without end": {files: func() map[string]string {
			all := map[string]string{"Makefile": "test:\n\ttrue\n"}
			for i := range 150 {
				all[fmt.Sprintf(".github/workflows/%d.yml", i)] = "a: &a [x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\n" + strings.Repeat("make tes\n", 28_000)
			}
			return all
		}(), says: "make test"},
		"test files without end": {files: func() map[string]string {
			all := map[string]string{}
			for i := range 150 {
				all[fmt.Sprintf("tests/test_%03d.py", i)] = strings.Repeat("# nothing here", 20_000)
			}
			return all
		}()},
		"a README, a lockfile, a Dockerfile and a justfile of 30 MB": {files: map[string]string{"README.md": ""}, more: func(t *testing.T, dir string) {
			for _, name := range []string{"README.md", "package-lock.json", "Dockerfile", "justfile", "poetry.lock"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
				require.NoError(t, os.Truncate(filepath.Join(dir, name), 30<<20))
			}
		}, says: "large files", whole: true},
		"sparse files": {files: map[string]string{"README.md": ""}, more: func(t *testing.T, dir string) {
			for _, name := range []string{"Makefile", "package.json", "pyproject.toml", "tox.ini", "test_a.py"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
				require.NoError(t, os.Truncate(filepath.Join(dir, name), 1<<40))
			}
		}, says: "large files"},

		"1,000,000 directories":            {wide: "directories", says: "make test"},
		"1,000,000 projects":               {wide: "projects", says: "make test"},
		"24,000 projects below others":     {wide: "nested", says: "more directories have a project"},
		"1,000,000 files of long names":    {wide: "long", says: "make test"},
		"a directory in each of 1,000,000": {wide: "endless", says: "make test"},
		"5,000 directories": {files: map[string]string{"Makefile": "test:\n\ttrue\n"}, more: func(t *testing.T, dir string) {
			for i := range 5_000 {
				require.NoError(t, os.Mkdir(filepath.Join(dir, fmt.Sprint("d", i)), 0o700))
			}
		}, says: "make test"},
		"a path of 1,000 directories": {files: map[string]string{"Makefile": "test:\n\ttrue\n"}, more: func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 1000)), 0o700))
		}, says: "make test", whole: true},
		"odd names": {files: map[string]string{"Makefile": "test:\n\ttrue\n"}, more: func(t *testing.T, dir string) {
			for i := range 500 {
				at := filepath.Join(dir, fmt.Sprintf("\xff`\n%d \u202e$(id)%s", i, strings.Repeat("é", 90)))
				require.NoError(t, os.MkdirAll(filepath.Join(at, ".git"), 0o700))
				require.NoError(t, os.MkdirAll(filepath.Join(at, "vendor"), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(at, "Makefile"), []byte("test:\n"), 0o600))
			}
		}, says: "make test", whole: true},
		"a farm of links": {files: map[string]string{"Makefile": "test:\n\ttrue\n", "d/x.py": ""}, more: func(t *testing.T, dir string) {
			for i := range 5_000 {
				require.NoError(t, os.Symlink([]string{".", "..", "d", "Makefile", "/dev/zero", "loop"}[i%6], filepath.Join(dir, "d", fmt.Sprint("l", i))))
			}
			require.NoError(t, os.Symlink("Makefile", filepath.Join(dir, "package.json")))
		}, says: "make test"},
		"devices in the place of files": {files: map[string]string{"x.py": ""}, more: func(t *testing.T, dir string) {
			for _, name := range []string{"Makefile", "package.json", "pyproject.toml", "test_a.py"} {
				require.NoError(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
			}
		}, whole: true},
	}
}

// powers returns variables that each contain the next one k times, k to the fifth in total.
func powers(k int, last string) string {
	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, "A%d = %s\n", i, strings.Repeat(fmt.Sprintf("$(A%d)", i+1), k))
	}
	return b.String() + "A5 = " + last + "\n"
}

func words(prefix string, n int) string {
	return strings.TrimSpace(lines(prefix+"%d", n, " "))
}

func lines(format string, n int, end ...string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
		b.WriteString(strings.Join(append(end, ""), ""))
		if end == nil {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func chain(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "t%d: t%d\n\tp%d\n", i, i+1, i)
	}
	return b.String()
}

// spent is the resource usage of a separate process for a digest.
type spent struct {
	Full     string
	Total    uint64        // bytes allocated in total
	Resident int64         // maximum in bytes
	Took     time.Duration // of the deadline
}

const childEnv = "WISBOX_DIGEST_OF"

func TestMain(m *testing.M) {
	if of := os.Getenv(childEnv); of != "" {
		os.Exit(spend(of))
	}
	os.Exit(m.Run())
}

// spend computes the digest of a directory, or of one of wides, without a time limit: steps bound a look, also on a
// slow machine.
func spend(of string) int {
	limits.Time, walking.Time, project.Time = time.Minute, time.Minute, time.Minute
	began := time.Now()
	files := os.DirFS(of)
	if w, ok := wides[of]; ok {
		files = w
	}
	d := New(&Options{Files: files})
	res, err := d.Tools()[0].Call(context.Background(), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 1
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	resident, _ := strconv.ParseInt(strings.Fields(peak)[0], 10, 64)
	out := spent{Full: res.Value.(Answer).Digest, Total: m.TotalAlloc, Resident: resident << 10, Took: time.Since(began)}
	if json.NewEncoder(os.Stdout).Encode(out) != nil {
		return 1
	}
	return 0
}

// Limits of a process that computes one digest; the manager's own limit is 128 MiB.
const (
	maxResident = 100 << 20
	maxTotal    = 300 << 20
)

func TestHostileWorkspacesHaveADigestWithinItsBudget(t *testing.T) {
	for name, c := range hostile() {
		t.Run(name, func(t *testing.T) {
			dir := c.wide
			if dir == "" {
				dir = lay(t, c.files)
			}
			if c.more != nil {
				c.more(t, dir)
			}
			got := digestOf(t, dir)
			t.Logf("%d KiB resident, %d KiB allocated, %d bytes, %v", got.Resident>>10, got.Total>>10, len(got.Full), got.Took)
			if !hosttest.Raced { // the race detector's memory counts, and pools free nothing under it
				assert.Less(t, got.Resident, int64(maxResident), "memory of the process")
				assert.Less(t, got.Total, uint64(maxTotal), "work, as what it allocates")
			}
			assert.Less(t, len(got.Full), 64<<10)
			assert.Contains(t, got.Full, c.says)
			if c.whole {
				assert.NotContains(t, got.Full, "only a part")
			}
		})
	}
}

// digestOf computes a digest in a separate process, which is killed if it exceeds its limits by far.
func digestOf(t *testing.T, of string) (got spent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+of)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &got))
	return got
}

// wide is a virtual file system that is too large to create: a directory's path determines its entries.
type wide func(dir string) (count int, entry func(i int) (name string, isDir bool))

var wides = map[string]wide{
	"directories": wideTop(1_000_000, func(i int) (string, bool) { return fmt.Sprint("d", i), true }),
	"long":        wideTop(1_000_000, func(i int) (string, bool) { return fmt.Sprintf("%0250d", i), false }),
	"projects": func(dir string) (int, func(int) (string, bool)) {
		if dir == "." {
			return wideTop(1_000_000, func(i int) (string, bool) { return fmt.Sprint("d", i), true })(dir)
		}
		return 2, func(i int) (string, bool) { return []string{"Makefile", "test_a.py"}[i], false }
	},
	"nested": func(dir string) (int, func(int) (string, bool)) {
		switch strings.Count(dir, "/") {
		case 0:
			return 150, func(i int) (string, bool) { return fmt.Sprint("d", i), true }
		default:
			return 2, func(i int) (string, bool) { return []string{"go.mod", "x.go"}[i], false }
		}
	},
	"endless": wideTop(1000, func(i int) (string, bool) { return fmt.Sprintf("%0100d", i), true }),
}

// wideTop returns a file system with the same entries in each directory, and a Makefile as the last entry at the top.
func wideTop(n int, entry func(int) (string, bool)) wide {
	return func(dir string) (int, func(int) (string, bool)) {
		return n, func(i int) (string, bool) {
			if dir == "." && i == n-1 {
				return "Makefile", false
			}
			return entry(i)
		}
	}
}

func (w wide) Open(name string) (fs.File, error) {
	switch base := path.Base(name); {
	case base == "Makefile" || strings.HasSuffix(base, ".go"):
		return fstest.MapFS{name: {Data: []byte("test:\n\ttrue\n")}}.Open(name)
	case manifest(base):
		return nil, fs.ErrNotExist
	}
	count, entry := w(name)
	return &wideDir{count: count, entry: entry}, nil
}

type wideDir struct {
	fs.File
	at, count int
	entry     func(int) (string, bool)
}

func (d *wideDir) Stat() (fs.FileInfo, error) { return wideEntry{"d", true}, nil }

func (d *wideDir) Close() error { return nil }

func (d *wideDir) ReadDir(n int) (out []fs.DirEntry, err error) {
	for ; d.at < d.count && len(out) < n; d.at++ {
		name, isDir := d.entry(d.at)
		out = append(out, wideEntry{name, isDir})
	}
	if len(out) == 0 {
		return nil, io.EOF
	}
	return out, nil
}

type wideEntry struct {
	name  string
	isDir bool
}

func (e wideEntry) Name() string               { return e.name }
func (e wideEntry) IsDir() bool                { return e.isDir }
func (e wideEntry) Info() (fs.FileInfo, error) { return e, nil }
func (e wideEntry) Type() fs.FileMode          { return e.Mode().Type() }
func (e wideEntry) Size() int64                { return 1 }
func (e wideEntry) ModTime() time.Time         { return time.Time{} }
func (e wideEntry) Sys() any                   { return nil }
func (e wideEntry) Mode() fs.FileMode {
	if e.isDir {
		return fs.ModeDir
	}
	return 0
}

func TestLooksThatWaitTooLongSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := make(turns, 1)
		busy <- struct{}{}
		began := time.Now()
		r, err := buildInTurn(t.Context(), fstest.MapFS{"Makefile": {}}, busy)
		require.NoError(t, err)
		assert.Contains(t, r.Text().Full, "ask again")
		assert.Equal(t, limits.Time, time.Since(began))
		<-busy
		r, err = buildInTurn(t.Context(), fstest.MapFS{"Makefile": {}}, busy)
		require.NoError(t, err)
		assert.Equal(t, 1, r.Files)
		assert.Empty(t, busy, "the turn is given back")
	})
}

// TestEachLimitCutsTheDigestAndSaysSo, and still gives an answer.
func TestEachLimitCutsTheDigestAndSaysSo(t *testing.T) {
	files := fstest.MapFS{"Makefile": {Data: []byte("test:\n\ttrue\n")}, "a/x.py": {}, "b/x.py": {}}
	for name, l := range map[string]budget.Limits{"output": {Out: 8}, "memory": {Memory: 300}, "steps": {Steps: 4}, "time": {Time: time.Nanosecond}} {
		b := budget.New(t.Context(), l)
		defer b.Close()
		r, err := build(b, files)
		require.NoError(t, err, name)
		assert.Contains(t, r.Text().Full, "only a part", name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Build(ctx, files)
	assert.ErrorIs(t, err, context.Canceled, "the caller's end is no cut")
}

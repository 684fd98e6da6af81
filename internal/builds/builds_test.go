package builds

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

// member is a member of a test's archive.
type member struct {
	kind       byte
	name, text string // text is a link's target
}

func archive(t *testing.T, zipped bool, members ...member) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	var to io.WriteCloser = nopCloser{&buf}
	if zipped {
		to = gzip.NewWriter(&buf)
	}
	w := tar.NewWriter(to)
	for _, m := range members {
		hdr := &tar.Header{Typeflag: m.kind, Name: m.name, Mode: 0o6755, Uid: 7, Gid: 7, Uname: "u", Format: tar.FormatPAX}
		switch m.kind {
		case tar.TypeReg:
			hdr.Size = int64(len(m.text))
		case tar.TypeSymlink, tar.TypeLink:
			hdr.Linkname = m.text
		case tar.TypeXGlobalHeader:
			hdr = &tar.Header{Typeflag: m.kind, PAXRecords: map[string]string{"comment": "x"}}
		}
		require.NoError(t, w.WriteHeader(hdr))
		if m.kind == tar.TypeReg {
			_, err := io.WriteString(w, m.text)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, to.Close())
	return &buf
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func names(t *testing.T, r io.Reader) (all []string) {
	t.Helper()
	for from := tar.NewReader(r); ; {
		hdr, err := from.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		assert.Zero(t, hdr.Uid)
		assert.Empty(t, hdr.Uname)
		assert.Zero(t, hdr.Mode&0o7000, "%s", hdr.Name)
		name := hdr.Name
		if hdr.Linkname != "" {
			name += " -> " + hdr.Linkname
		}
		all = append(all, name)
	}
}

func TestCleanKeepsWhatABuildNeeds(t *testing.T) {
	for _, zipped := range []bool{false, true} {
		in := archive(t, zipped, member{kind: tar.TypeXGlobalHeader}, member{tar.TypeDir, "./", ""}, member{tar.TypeDir, "src/", ""}, member{tar.TypeDir, "src", ""},
			member{tar.TypeReg, "./src/a", "12345"}, member{tar.TypeLink, "src/b", "./src/a"}, member{tar.TypeSymlink, "src/c", "../x"}, member{tar.TypeSymlink, "d", "/etc/passwd"})
		var out bytes.Buffer
		size, err := Clean(t.Context(), in, &out, 1<<20)
		require.NoError(t, err)
		assert.EqualValues(t, out.Len(), size)
		assert.Equal(t, []string{"src/", "src/a", "src/b -> src/a", "src/c -> ../x", "d -> /etc/passwd"}, names(t, &out))
	}
}

func TestCleanRefusesHostileArchives(t *testing.T) {
	for name, members := range map[string][]member{
		"absolute":          {{tar.TypeReg, "/etc/passwd", "x"}},
		"above":             {{tar.TypeReg, "a/../../x", "x"}},
		"link out":          {{tar.TypeSymlink, "a/l", "../../x"}},
		"below a link":      {{tar.TypeSymlink, "l", "/etc"}, {tar.TypeReg, "l/passwd", "x"}},
		"far below a link":  {{tar.TypeSymlink, "l", "."}, {tar.TypeReg, "l/a/b", "x"}},
		"below a file":      {{tar.TypeReg, "f", "x"}, {tar.TypeReg, "f/x", "x"}},
		"twice":             {{tar.TypeSymlink, "f", "/etc/passwd"}, {tar.TypeReg, "f", "x"}},
		"link for a parent": {{tar.TypeReg, "x/shadow", "x"}, {tar.TypeSymlink, "x", "/etc"}, {tar.TypeLink, "h", "x/shadow"}},
		"device":            {{tar.TypeChar, "null", ""}},
		"block device":      {{tar.TypeBlock, "disk", ""}},
		"pipe":              {{tar.TypeFifo, "p", ""}},
		"hard link out":     {{tar.TypeLink, "h", "/etc/shadow"}},
		"hard link to link": {{tar.TypeSymlink, "l", "/etc/shadow"}, {tar.TypeLink, "h", "l"}},
		"long path":         {{tar.TypeReg, strings.Repeat("a/", 600) + "b", "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Clean(t.Context(), archive(t, false, members...), io.Discard, 1<<20)
			assert.Equal(t, tool.Invalid, tool.KindOf(err), "%v", err)
		})
	}
}

func TestCleanIsBounded(t *testing.T) {
	in := archive(t, true, member{tar.TypeReg, "zeros", strings.Repeat("\x00", 1<<20)})
	assert.Less(t, in.Len(), 4096)
	_, err := Clean(t.Context(), in, io.Discard, 1<<20-1)
	assert.Equal(t, tool.TooLarge, tool.KindOf(err), "%v", err)
	for _, text := range []string{"no archive at all", "\x1f\x8bno gzip"} {
		_, err = Clean(t.Context(), strings.NewReader(text), io.Discard, 1<<20)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%v", err)
	}
	whole := archive(t, true, member{tar.TypeReg, "a", strings.Repeat("x", 4096)})
	_, err = Clean(t.Context(), io.LimitReader(whole, int64(whole.Len()/2)), io.Discard, 1<<20)
	assert.Equal(t, tool.Invalid, tool.KindOf(err), "%v", err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Clean(ctx, archive(t, false, member{tar.TypeReg, "a", "x"}), io.Discard, 1<<20)
	assert.ErrorIs(t, err, context.Canceled)
}

// The parts of archives other than the content of files are bounded, too.
func TestCleanBoundsWhatIsNoFile(t *testing.T) {
	var dirs, long []member
	for i := range 1000 {
		dirs = append(dirs, member{tar.TypeDir, fmt.Sprint(i), ""})
		long = append(long, member{tar.TypeDir, strings.Repeat("x/", 500) + fmt.Sprint(i), ""})
	}
	for name, members := range map[string][]member{
		"directories":   dirs,
		"long names":    long,
		"one directory": slices.Repeat([]member{{tar.TypeDir, ".", ""}}, 1000),
		"comments":      slices.Repeat([]member{{kind: tar.TypeXGlobalHeader}}, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			_, err := Clean(t.Context(), archive(t, true, members...), &out, 300<<10)
			assert.Equal(t, tool.TooLarge, tool.KindOf(err), "%v", err)
			assert.LessOrEqual(t, out.Len(), 300<<10)
		})
	}
	assert.Equal(t, tool.TooLarge, tool.KindOf((&cleaner{named: maxNames}).put(&tar.Header{Name: "x"})))
}

// hostile are texts with a special meaning to a shell, to a parser of Containerfiles, or to the
// builder.
var hostile = []string{
	"x\nFROM evil", "x\r\nUSER root", "x \\\nRUN evil", "a # b", `a"]` + "\nUSER root", "cat <<EOF\nFROM evil\nEOF", "--mount=type=bind,source=/,target=/host id",
	"$(evil) ${A:-evil} `evil`", "# escape=`\nx", "\ufeffx", "\u2028RUN x", "a\\", "'", `"`, "😀 ü", strings.Repeat("x", maxArg),
}

func TestNothingOfAStepEndsItsLine(t *testing.T) {
	for _, text := range hostile {
		r := &Recipe{Steps: []Step{{Kind: Run, Args: []string{text}}}}
		if err := r.Check(); err != nil {
			assert.Equal(t, tool.Invalid, tool.KindOf(err))
			continue
		}
		lines, _ := r.Containerfile("0123")
		var runs []string
		for line := range strings.SplitSeq(strings.TrimSuffix(string(lines), "\n"), "\n") {
			kind, rest, _ := strings.Cut(line, " ")
			assert.Contains(t, []string{"FROM", "USER", "WORKDIR", "RUN"}, kind)
			if kind == Run {
				assert.Regexp(t, `^\[("([A-Za-z0-9 ./_:=+,-]|\\u[0-9a-f]{4})*",?)+\]$`, rest)
				runs = append(runs, rest)
			}
		}
		assert.Len(t, runs, 3, "the first, the client's, the last")
	}
}

func FuzzContainerfile(f *testing.F) {
	for _, text := range hostile {
		for _, kind := range []string{Run, Copy, Env, User, Workdir} {
			f.Add(kind, text, text)
		}
	}
	f.Fuzz(func(t *testing.T, kind, a, b string) {
		r := &Recipe{Steps: []Step{{Kind: kind, Args: []string{a, b}}, {Kind: Workdir, Args: []string{b}}, {Kind: Copy, Args: []string{"a", a, "", ""}}}}
		if r.Check() != nil {
			return
		}
		text, stepOf := r.Containerfile("0123")
		assert.Equal(t, len(stepOf)-1, bytes.Count(text, []byte("\n")), "%s", text)
		for line := range bytes.Lines(text) {
			assert.LessOrEqual(t, len(line), 64<<10)
			assert.NotContains(t, string(line), "<<", "no heredoc begins")
			assert.NotRegexp(t, `^[A-Z]+ (--ch[a-z]+=\S+ )*--mount`, string(line), "no flag but ours")
			assert.NotRegexp(t, `\\[ \t]*\n`, string(line), "no line goes on")
		}
	})
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	for want, s := range map[string]Step{
		"unknown type":       {Kind: "ARG", Args: []string{"x"}},
		"has 0 arguments":    {Kind: Run},
		"has 3 arguments":    {Kind: Run, Args: []string{"a", "b", "c"}},
		"empty command":      {Kind: Run, Args: []string{" "}},
		"the user is":        {Kind: Run, Args: []string{"id", "root --x"}},
		"user is \"a b\"":    {Kind: User, Args: []string{"a b"}},
		"no name":            {Kind: User, Args: []string{""}},
		"without a value":    {Kind: Env, Args: []string{"A", "b", "C"}},
		"ENV has the name":   {Kind: Env, Args: []string{"A B=c", "d"}},
		"line break":         {Kind: Env, Args: []string{"A", "b\nRUN x"}},
		"no path":            {Kind: Workdir, Args: []string{""}},
		"below the context":  {Kind: Copy, Args: []string{"../x", "/x", "", ""}},
		"it must be octal":   {Kind: Copy, Args: []string{"x", "/x", "", "u+s"}},
		"no destination":     {Kind: Copy, Args: []string{"x", "", "", ""}},
		"the maximum is 327": {Kind: Run, Args: []string{strings.Repeat("x", maxArg+1)}},
		"after escaping":     {Kind: Run, Args: []string{strings.Repeat("\n", 11<<10) + "x"}},
		"NUL":                {Kind: Run, Args: []string{"a\x00b"}},
	} {
		err := (&Recipe{Steps: []Step{s}}).Check()
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "steps[0]")
	}
	assert.ErrorContains(t, (&Recipe{Steps: make([]Step, MaxSteps+1)}).Check(), "the maximum is")
}

func TestStepsAreNumberedAsPodmanCountsThem(t *testing.T) {
	r := &Recipe{Steps: []Step{{Kind: Env, Args: []string{"A", `b"\$c`, "D", "$A"}}, {Kind: Run, Args: []string{"id", "root"}}, {Kind: User, Args: []string{"node"}}, {Kind: Run, Args: []string{"id", "node"}}}}
	require.NoError(t, r.Check())
	text, stepOf := r.Containerfile("0123")
	assert.Equal(t, []int{0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 5, 5}, stepOf)
	assert.Contains(t, string(text), "\nENV A=\"b\\\"\\$c\"\nENV D=\"$A\"\nUSER root\nRUN [\"/bin/bash\",\"-l\",\"-c\",\"id\"]\nUSER user\nUSER node\nRUN ")
	r.Inherit = true
	inherits, _ := r.Containerfile("0123")
	assert.NotContains(t, string(inherits), "WORKDIR")
	assert.Equal(t, "RUN a b", (&Step{Kind: Run, Args: []string{"a\n\tb", "root"}}).String())
}

// layoutOf writes the context of one COPY, and returns the content of its directory and the
// instruction.
func layoutOf(t *testing.T, source string, members ...member) (in []string, line string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "files")
	var clean bytes.Buffer
	_, err := Clean(t.Context(), archive(t, true, members...), &clean, 1<<20)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, clean.Bytes(), 0o600))
	r := &Recipe{Steps: []Step{{Kind: Copy, Args: []string{source, "to/", "", "0755"}, Files: file}}}
	require.NoError(t, r.Check())
	text, stepOf := r.Containerfile("0123")
	var context bytes.Buffer
	require.NoError(t, r.WriteContext(t.Context(), &context, text))
	all := names(t, &context)
	require.Equal(t, "Containerfile", all[0])
	for i, line := range strings.Split(string(text), "\n") {
		if stepOf[i+1] == 1 {
			return all[1:], line
		}
	}
	return nil, ""
}

func TestTheFilesOfACopy(t *testing.T) {
	in, line := layoutOf(t, "./a/b.txt", member{tar.TypeReg, "a/b.txt", "x"})
	assert.Equal(t, []string{"0/", "0/b.txt"}, in)
	assert.Equal(t, `COPY --chown=user --chmod=0755 ["0/b.txt","to/"]`, line)
	in, line = layoutOf(t, "a", member{tar.TypeDir, "a", ""}, member{tar.TypeDir, "a/b", ""}, member{tar.TypeReg, "a/b/c", "x"}, member{tar.TypeLink, "a/d", "a/b/c"})
	assert.Equal(t, []string{"0/", "0/b/", "0/b/c", "0/d -> 0/b/c"}, in)
	assert.Contains(t, line, `["0/","to/"]`)
	in, _ = layoutOf(t, ".", member{tar.TypeDir, "a", ""}, member{tar.TypeReg, "a/b", "x"}, member{tar.TypeReg, "c", "x"})
	assert.Equal(t, []string{"0/", "0/a/", "0/a/b", "0/c"}, in)
	in, line = layoutOf(t, "src/*", member{tar.TypeReg, "src/a.py", "x"}, member{tar.TypeDir, "src/d", ""}, member{tar.TypeReg, "src/d/e/f.py", "x"})
	assert.Equal(t, []string{"0/", "0/a.py", "0/e/f.py"}, in)
	assert.Contains(t, line, `["0/","to/"]`)
	in, line = layoutOf(t, "a'b$[*", member{tar.TypeReg, "a'b$[*", "x"})
	assert.Equal(t, []string{"0/", "0/a'b$[*"}, in)
	assert.Contains(t, line, `["0/a\u005c\u0027b\u005c\u0024\u005c\u005c\u005b\u005c\u005c\u002a","to/"]`)
}

// A COPY that flattens paths must not move a file from beside a link to below it: Podman unpacks
// contexts as the server's user.
func TestNoFileOfACopyLiesBelowALink(t *testing.T) {
	for name, members := range map[string][]member{
		"written through a link": {{tar.TypeSymlink, "a/x", "/"}, {tar.TypeDir, "b", ""}, {tar.TypeReg, "b/x/evil", "x"}},
		"read through a link":    {{tar.TypeReg, "b/x/shadow", "x"}, {tar.TypeDir, "b", ""}, {tar.TypeSymlink, "a/x", "/etc"}, {tar.TypeLink, "h", "b/x/shadow"}},
		"link to a link":         {{tar.TypeReg, "a/f", "x"}, {tar.TypeSymlink, "b/f", "/etc/shadow"}, {tar.TypeLink, "h", "a/f"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "files")
			var clean bytes.Buffer
			_, err := Clean(t.Context(), archive(t, false, members...), &clean, 1<<20)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, clean.Bytes(), 0o600))
			r := &Recipe{Steps: []Step{{Kind: Copy, Args: []string{"*", "/", "", ""}, Files: file}}}
			require.NoError(t, r.Check())
			err = r.WriteContext(t.Context(), io.Discard, nil)
			assert.Equal(t, tool.Invalid, tool.KindOf(err), "%v", err)
		})
	}
}

// A name that begins with the source's is not below it, and "a../f" is a name.
func TestNoFileOfACopyLeavesItsDirectory(t *testing.T) {
	for _, c := range []struct {
		source  string
		members []member
	}{
		{"a", []member{{tar.TypeDir, "a", ""}, {tar.TypeReg, "a../Containerfile", "FROM evil"}}},
		{"b", []member{{tar.TypeDir, "b", ""}, {tar.TypeSymlink, "b../z", "/etc"}}},
		{"a", []member{{tar.TypeDir, "a", ""}, {tar.TypeReg, "ab", "x"}}},
		{"a", []member{{tar.TypeDir, "a", ""}, {tar.TypeReg, "a../f", "x"}, {tar.TypeLink, "a/h", "a../f"}}},
	} {
		file := filepath.Join(t.TempDir(), "files")
		var clean bytes.Buffer
		_, err := Clean(t.Context(), archive(t, false, c.members...), &clean, 1<<20)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, clean.Bytes(), 0o600))
		r := &Recipe{Steps: []Step{{Kind: Copy, Args: []string{c.source, "/", "", ""}, Files: file}}}
		err = r.WriteContext(t.Context(), io.Discard, nil)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%v: %v", c.members, err)
	}
}

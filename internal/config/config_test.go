package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/config"
	"github.com/wisbox/wisbox/tool"
)

// project creates a directory with a file of that content, and a home of its own.
func project(t *testing.T, text string) string {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := t.TempDir()
	write(t, filepath.Join(dir, config.Name), text)
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func TestAProjectsFileIsFoundFromBelowAndNotBeyondItsTop(t *testing.T) {
	dir := project(t, `image = "x"`)
	below := filepath.Join(dir, "a", "b")
	require.NoError(t, os.MkdirAll(below, 0o755))
	f, err := config.Project(below)
	require.NoError(t, err)
	require.NotNil(t, f)
	assert.Equal(t, dir, f.Dir())
	assert.Equal(t, []config.Setting{{Key: "image", Flag: "image", Values: []string{"x"}}}, f.Settings)
	for what, stop := range map[string]func(){
		"home": func() { t.Setenv("HOME", filepath.Join(dir, "a")) },
		".git": func() { require.NoError(t, os.Mkdir(filepath.Join(dir, "a", ".git"), 0o755)) },
	} {
		t.Setenv("HOME", "/nowhere")
		stop()
		f, err = config.Project(below)
		require.NoError(t, err, what)
		assert.Nil(t, f, what)
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "a", ".git")))
	}
}

func TestWhatIsNoSmallRegularFileIsRefused(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"a link":      func(path string) error { return os.Symlink("/etc/hostname", path) },
		"a fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a gigabyte": func(path string) error {
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Truncate(1 << 30)
		},
		"nested": func(path string) error {
			return os.WriteFile(path, []byte("image = "+strings.Repeat("[", 15<<10)), 0o600)
		},
		"dotted": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("a.", 7<<10)+"a = 1"), 0o600)
		},
		"binary": func(path string) error { return os.WriteFile(path, []byte("image = \"\x00\xff\""), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			dir := t.TempDir()
			require.NoError(t, put(filepath.Join(dir, config.Name)))
			_, err := config.Project(dir)
			assert.Equal(t, tool.Invalid, tool.KindOf(err), "%v", err)
		})
	}
}

func TestAnUnknownKeyIsNamedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"image = \"x\"\nfoo = 1":          `line 2: unknown key "foo"`,
		"[limits]\ncpus = 1\n\nCPU.s = 2": `line 4: unknown key "limits.CPU.s"`,
		"secrets = [\"A=env\"]":           `line 1: unknown key "secrets"`,
		"egress-via = \"http://evil\"":    `unknown key "egress-via"`,
		"[services.db]\nimage = \"x\"":    `unknown key "services`,
		"a = 1\n[a]\nb = 1":               `line 2: unknown key "a"`,
	} {
		_, err := config.Project(project(t, text))
		require.Error(t, err, text)
		assert.Equal(t, tool.Invalid, tool.KindOf(err))
		assert.Contains(t, err.Error(), want)
	}
}

func TestAWrongValueIsSaidInOneSentence(t *testing.T) {
	for text, want := range map[string]string{
		"\n[limits]\nmemory = 1":                  `line 3: limits.memory must be text in quotes`,
		"image = [1]":                             `line 1: image must be text in quotes`,
		"image = {a = 1}":                         `line 1: image must be text in quotes`,
		"image.x = 1":                             `line 1: image must be text in quotes`,
		"[image]\nx = 1":                          `line 1: image must be text in quotes`,
		"image = 2020-01-01":                      `line 1: image must be text in quotes`,
		"ttl = 5":                                 `line 1: ttl must be text in quotes`,
		"limits.memory.x = 1":                     `line 1: limits.memory must be text in quotes`,
		"image = \"x\"\nimage = \"y\"":            `line 2: image is repeated; remove one of the two`,
		"[limits]\n[limits]":                      `line 2: limits is repeated; remove one of the two`,
		"mounts = \"x\"":                          `line 1: mounts must be a list of texts in quotes, as ["a", "b"]`,
		"mounts = [\"a\", 2]":                     `line 1: mounts must be a list of texts in quotes`,
		"mounts = [[\"a\"]]":                      `line 1: mounts must be a list of texts in quotes`,
		"[[mounts]]\nx = 1":                       `line 1: mounts must be a list of texts in quotes`,
		"strict = \"yes\"":                        `line 1: strict must be true or false`,
		"auto-snapshot = []":                      `line 1: auto-snapshot must be true or false`,
		"[limits]\ncpus = \"x\"":                  `line 2: limits.cpus must be a number, as 1.5`,
		"[limits]\ncpus = 1e999":                  `line 2: limits.cpus must be a number, as 1.5`,
		"[limits]\npids = 1.5":                    `line 2: limits.pids must be a whole number`,
		"[limits]\npids = 9999999999999999999999": `line 2: limits.pids must be a whole number that fits in 64 bits`,
		"limits = 3":                              `line 1: limits must be a table: write [limits], and its keys below`,
		"[[limits]]\ncpus = 1":                    `line 1: limits must be a table`,
		"image = ":                                `line 1: it is not valid TOML: expected value`,
		"= 3":                                     `line 1: it is not valid TOML: `,
		"image = \"x":                             `line 1: it is not valid TOML: unterminated`,
		"[limits":                                 `line 1: it is not valid TOML: `,
		"\xff":                                    `line 1: it is not valid TOML: `,
		"image = \"\\q\"":                         `line 1: it is not valid TOML: `,
		"image = \"\x00\xff\"":                    `it is not valid TOML`,
	} {
		_, err := config.Project(project(t, text))
		require.Error(t, err, text)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), text)
		assert.Contains(t, err.Error(), want)
		for _, raw := range []string{"struct", "toml:", "config.", "strconv", "[]string"} {
			assert.NotContains(t, strings.ReplaceAll(err.Error(), "wisbox config", ""), raw, text)
		}
	}
}

// TestAnotherUsersFileIsPassedOverOnlyWhereAnybodyCanPutOne and is an error elsewhere.
func TestAnotherUsersFileIsPassedOverOnlyWhereAnybodyCanPutOne(t *testing.T) {
	dir := project(t, `image = "x"`)
	path := filepath.Join(dir, config.Name)
	if os.Geteuid() != 0 {
		return // only root can change a file's owner, and the run as root does
	}
	require.NoError(t, os.Chown(path, 54321, -1))
	for mode, passed := range map[os.FileMode]bool{0o755: false, 0o775: false, 0o777: true, 0o755 | os.ModeSticky: true} {
		require.NoError(t, os.Chmod(dir, mode))
		f, err := config.Project(dir)
		assert.Nil(t, f)
		if passed {
			assert.NoError(t, err, mode)
			continue
		}
		assert.Equal(t, tool.Permission, tool.KindOf(err), "%s: %v", mode, err)
		assert.ErrorContains(t, err, path+" belongs to another user, so it isn't used; make it yours with chown")
	}
}

func TestAHomeDirectoryHasNoMounts(t *testing.T) {
	dir := project(t, `mounts = ["."]`)
	t.Setenv("HOME", dir)
	_, err := config.Project(dir)
	assert.Equal(t, tool.Permission, tool.KindOf(err))
	assert.ErrorContains(t, err, "mounts would be copied from your home directory")
	assert.Equal(t, tool.Unsupported, tool.KindOf(config.CheckInit(dir)))
	assert.Equal(t, tool.Unsupported, tool.KindOf(config.CheckInit("/")))
	assert.NoError(t, config.CheckInit(t.TempDir()))
	write(t, filepath.Join(dir, config.Name), `image = "x"`)
	_, err = config.Project(dir)
	assert.NoError(t, err)
}

func TestAProjectLoosensNothing(t *testing.T) {
	const tight, loose = "strict = true\nisolation = \"gvisor\"\ndeny = [\"a\"]\nallow = [\"x\"]", "strict = false\nisolation = \"default\"\ndeny = [\"b\"]\nallow = [\"y\"]"
	for _, order := range [][2]string{{tight, loose}, {loose, tight}} {
		var files []*config.File
		for _, text := range order {
			f, err := config.Project(project(t, text))
			require.NoError(t, err)
			files = append(files, f)
		}
		got := map[string][]string{}
		for _, c := range config.Merge(files) {
			got[c.Key] = c.Values
		}
		assert.Equal(t, []string{"true"}, got["strict"])
		assert.Equal(t, []string{"gvisor"}, got["isolation"])
		assert.ElementsMatch(t, []string{"a", "b"}, got["deny"])
		assert.Equal(t, map[string][]string{tight: {"x"}, loose: {"y"}}[order[0]], got["allow"], "the first alone")
	}
}

// TestTheSmallerEgressOutCounts whichever file has it.
func TestTheSmallerEgressOutCounts(t *testing.T) {
	for _, c := range []struct{ first, second, want string }{
		{"100g", "1g", "1g"}, {"64m", "1g", "64m"}, {"2048m", "2g", "2048m"}, {"1g", "a lot", "a lot"}, {"a lot", "1g", "a lot"},
	} {
		var files []*config.File
		for _, size := range []string{c.first, c.second} {
			f, err := config.Project(project(t, "[limits]\negress-out = \""+size+"\""))
			require.NoError(t, err)
			files = append(files, f)
		}
		chosen := config.Merge(files)
		require.Len(t, chosen, 1)
		assert.Equal(t, []string{c.want}, chosen[0].Values)
	}
}

func TestTrustEnds(t *testing.T) {
	dir := project(t, `image = "x"`)
	f, err := config.Project(dir)
	require.NoError(t, err)
	require.NoError(t, f.Trust(""))
	below := filepath.Join(dir, "a")
	require.NoError(t, os.Mkdir(below, 0o755))
	write(t, filepath.Join(below, config.Name), "broken")
	at, err := config.Forget(below)
	require.NoError(t, err)
	assert.Empty(t, at, "another file's trust stays")
	require.NoError(t, os.Remove(filepath.Join(below, config.Name)))
	at, err = config.Forget(below)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, config.Name), at)
	ok, err := f.Trusted()
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestAProjectsMountsLieInTheProject(t *testing.T) {
	for _, mount := range []string{"/", "/home", "..", "../x", "a/../../x", "..:dest", "../x,exclude=y", "/etc/passwd:x"} {
		_, err := config.Project(project(t, `mounts = ["`+mount+`"]`))
		assert.Equal(t, tool.Permission, tool.KindOf(err), "%s: %v", mount, err)
	}
	_, err := config.Project(project(t, `mounts = [".", "src:dest,exclude=*.o", "a/../b"]`))
	require.NoError(t, err)
}

func TestOnlyTheContentThatWasTrustedIs(t *testing.T) {
	const good, evil = `image = "good"`, `image = "evil"`
	dir := project(t, good)
	read := func() *config.File {
		f, err := config.Project(dir)
		require.NoError(t, err)
		return f
	}
	trusted := func() bool {
		ok, err := read().Trusted()
		require.NoError(t, err)
		return ok
	}
	assert.False(t, trusted())
	require.NoError(t, read().Trust(""))
	assert.True(t, trusted())
	write(t, filepath.Join(dir, config.Name), evil)
	assert.False(t, trusted())
	write(t, filepath.Join(dir, config.Name), good)
	assert.True(t, trusted(), "the content counts, not the time")

	other := t.TempDir()
	write(t, filepath.Join(other, config.Name), good)
	f, err := config.Project(other)
	require.NoError(t, err)
	ok, err := f.Trusted()
	require.NoError(t, err)
	assert.False(t, ok, "another place is another project")
	link := filepath.Join(other, "link")
	require.NoError(t, os.Symlink(dir, link))
	f, err = config.Project(link)
	require.NoError(t, err)
	ok, err = f.Trusted()
	require.NoError(t, err)
	assert.True(t, ok, "a link leads to the same place")
}

// TestWhatIsTrustedIsWhatIsUsed: while another process replaces the file, again and again.
func TestWhatIsTrustedIsWhatIsUsed(t *testing.T) {
	const good, evil = `image = "good"`, `image = "evil"`
	dir := project(t, good)
	f, err := config.Project(dir)
	require.NoError(t, err)
	require.NoError(t, f.Trust(""))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				temp := filepath.Join(dir, "temp")
				_ = os.WriteFile(temp, []byte([]string{good, evil}[i%2]), 0o644)
				_ = os.Rename(temp, filepath.Join(dir, config.Name))
			}
		}
	}()
	hung := time.After(30 * time.Second)
	for round, trusted := 0, 0; round < 300 || trusted == 0; round++ {
		select {
		case <-hung:
			t.Fatal("no round was trusted")
		default:
		}
		f, err := config.Project(dir)
		if err != nil || f == nil {
			continue
		}
		if ok, err := f.Trusted(); err == nil && ok {
			trusted++
			require.Equal(t, []string{"good"}, f.Settings[0].Values)
		}
	}
	close(stop)
	<-ended
}

func TestTheUsersFileIsTheirsAlone(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	f, err := config.User()
	require.NoError(t, err)
	assert.Nil(t, f)
	path := filepath.Join(home, "wisbox", "config.toml")
	write(t, path, `mounts = ["/srv/data"]`)
	f, err = config.User()
	require.NoError(t, err)
	assert.Equal(t, []string{"/srv/data"}, f.Settings[0].Values)
	require.NoError(t, os.Chmod(path, 0o666))
	_, err = config.User()
	assert.Equal(t, tool.Permission, tool.KindOf(err))
	assert.ErrorContains(t, err, "can be written by other users")
	require.NoError(t, os.Chmod(path, 0o600))
	if os.Geteuid() != 0 {
		return // only root can change a file's owner, and the run as root does
	}
	require.NoError(t, os.Chown(path, 54321, -1))
	_, err = config.User()
	assert.Equal(t, tool.Permission, tool.KindOf(err))
	assert.ErrorContains(t, err, "belongs to another user; make it yours with chown")
}

// TestADirectoryThatIsGoneIsInNoProject: commands work there all the same.
func TestADirectoryThatIsGoneIsInNoProject(t *testing.T) {
	f, err := config.Project(filepath.Join(t.TempDir(), "gone"))
	require.NoError(t, err)
	assert.Nil(t, f)
}

// TestAContainerfileIsAPartOfWhatIsTrusted and what was read is what is built.
func TestAContainerfileIsAPartOfWhatIsTrusted(t *testing.T) {
	dir := project(t, `containerfile = "build/Containerfile"`)
	built := filepath.Join(dir, "build", "Containerfile")
	read := func() *config.File {
		f, err := config.Project(dir)
		require.NoError(t, err)
		return f
	}
	_, err := config.Project(dir)
	assert.Equal(t, tool.Invalid, tool.KindOf(err), "it isn't there")
	require.NoError(t, os.Mkdir(filepath.Dir(built), 0o755))
	write(t, built, "FROM localhost/wisbox\n")
	require.NoError(t, read().Trust(""))
	ok, err := read().Trusted()
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "FROM localhost/wisbox\n", string(read().Containerfile))
	write(t, built, "FROM localhost/wisbox\nRUN id\n")
	ok, err = read().Trusted()
	require.NoError(t, err)
	assert.False(t, ok, "it was changed")
	write(t, built, "FROM localhost/wisbox\n")
	ok, err = read().Trusted()
	require.NoError(t, err)
	assert.True(t, ok)
}

func TestAContainerfileThatIsRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "Containerfile")
	write(t, outside, "FROM scratch\n")
	for text, kind := range map[string]tool.Kind{
		`containerfile = "../Containerfile"`:      tool.Permission,
		`containerfile = "` + outside + `"`:       tool.Permission,
		`containerfile = ""`:                      tool.Permission,
		`containerfile = "link"`:                  tool.Invalid,
		`containerfile = "dir"`:                   tool.Invalid,
		`containerfile = "fifo"`:                  tool.Invalid,
		`containerfile = "large"`:                 tool.TooLarge,
		"image = \"x\"\ncontainerfile = \"good\"": tool.Invalid,
		"containerfile = 1":                       tool.Invalid,
	} {
		dir := project(t, text)
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "dir"), 0o755))
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
		write(t, filepath.Join(dir, "large"), strings.Repeat("#", 65<<10))
		write(t, filepath.Join(dir, "good"), "FROM scratch\n")
		_, err := config.Project(dir)
		assert.Equal(t, kind, tool.KindOf(err), "%s: %v", text, err)
	}
	home := project(t, `containerfile = "Containerfile"`)
	write(t, filepath.Join(home, "Containerfile"), "FROM scratch\n")
	t.Setenv("HOME", home)
	_, err := config.Project(home)
	assert.Equal(t, tool.Permission, tool.KindOf(err))
}

// TestTheFirstFileSaysWhichImageCounts by either key.
func TestTheFirstFileSaysWhichImageCounts(t *testing.T) {
	named, built := project(t, `image = "x"`), project(t, `containerfile = "Containerfile"`)
	write(t, filepath.Join(built, "Containerfile"), "FROM scratch\n")
	for _, dirs := range [][2]string{{named, built}, {built, named}} {
		var files []*config.File
		for _, dir := range dirs {
			f, err := config.Project(dir)
			require.NoError(t, err)
			files = append(files, f)
		}
		chosen := config.Merge(files)
		require.Len(t, chosen, 1)
		assert.Equal(t, files[0], chosen[0].Files[0])
	}
}

func TestAContainerfileThatMayCopyIsKnown(t *testing.T) {
	for text, may := range map[string]bool{
		"FROM a\nRUN apt-get install -y curl\n": false, "FROM a\nENV X=copyright\n": false, "": false,
		"FROM a\nRUN yarn add x && \\\n    git add y # copy\n": false,
		"FROM a\ncopy x /\n": true, "FROM a\nADD x /": true, "FROM a\nRUN --mount=type=bind,target=/x sh /x/y": true,
		"FROM a\nCO\\\nPY x /": true, "FROM a\nCO\\ \t\r\n# no\n\n  PY x /": true, "# escape=`\nFROM a\nCO`\nPY x /": true,
		"FROM a\nRUN --mo\\\nunt=type=bind,target=/x sh /x/y": true, "FROM a\nONBUILD COPY . /": true,
	} {
		assert.Equal(t, may, (&config.File{Containerfile: []byte(text)}).CopiesFiles(), "%q", text)
	}
}

package integration

import (
	"archive/zip"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

// expected are the commands that a developer takes for granted.
const expected = "awk bash cat curl cut diff file-not-there find git grep gzip head jq less make nano patch pip ps python3 rg sbcl sed sort tar top unzip xargs xz"

func TestTheDefaultImageHasWhatADeveloperExpects(t *testing.T) {
	hosttest.Slow(t)
	s := open(t, nil)
	for name, c := range map[string]struct{ script, want string }{
		"commands": {"for c in " + expected + "; do command -v $c >/dev/null || echo $c; done", "file-not-there\n"},
		"pip":      {"pip --version | cut -d ' ' -f 1,4; python3 -m pip list --format=freeze | cut -d = -f 1 | grep -v '^hello$'", "pip /usr/local/lib/python3.12/site-packages/pip\npip\n"},
		"venv": {"cd $(mktemp -d) && python3 -m venv x && x/bin/pip --version | cut -d ' ' -f 1 && x/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'",
			"pip\nTrue\n"},
		"ensurepip": {"cd $(mktemp -d) && python3 -m venv --without-pip x && x/bin/python -m ensurepip -U >/dev/null && ls x/bin | grep -c '^pip'; python3 -c 'import ensurepip; print(ensurepip.version()[0] > \"1\")'",
			"2\nTrue\n"},
		"a package of one's own": {`cd $(mktemp -d) && mkdir p && echo 'print(42)' >p/hello.py &&
printf '[project]\nname = "hello"\nversion = "1"\n[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n' >p/pyproject.toml &&
pip install -q ./p && python3 -m hello && python3 -m venv x && x/bin/pip install -q -e ./p && x/bin/python -m hello && x/bin/pip wheel -q --no-deps -w w ./p && ls w`,
			"42\n42\nhello-1-py3-none-any.whl\n"},
		"a package that names wheel": {`cd $(mktemp -d) && mkdir p && touch p/other.py &&
printf '[project]\nname = "other"\nversion = "1"\n[build-system]\nrequires = ["setuptools", "wheel"]\nbuild-backend = "setuptools.build_meta"\n' >p/pyproject.toml && pip install -q --target t ./p && ls t/other.py`,
			"t/other.py\n"},
		"time zones": {`TZ=Europe/Berlin date -d 2026-07-01T12:00Z +%H:%M; python3 -c 'import zoneinfo, datetime as d; print(d.datetime(2026, 1, 1, 12, tzinfo=d.UTC).astimezone(zoneinfo.ZoneInfo("America/New_York")).hour)'`,
			"14:00\n7\n"},
		"no index": {"pip install nothing-of-that-name 2>&1 | tail -n 1", "ERROR: No matching distribution found for nothing-of-that-name\n"},
		"git": {"cd $(mktemp -d) && git init -q && git commit -q --allow-empty -m x && git log --format='%an <%ae> %s' && git branch --show-current; git config --get-all safe.directory",
			"wisbox <wisbox@localhost> x\nmain\n*\n"},
		"git in the workspace": {"git init -q r && cd r && echo 1 >f && git add f && git commit -q -m x && git status --short", ""},
		"certificates":         {"test -s /etc/ssl/certs/ca-certificates.crt && test $(ls /etc/ssl/certs/*.0 | wc -l) -gt 100 && echo yes", "yes\n"},
		"archives":             {"cd $(mktemp -d) && echo x >f && tar -cJf f.tar.xz f && tar -tJf f.tar.xz && python3 -m zipfile -c f.zip f && unzip -l f.zip | grep -c ' f$'", "f\n1\n"},
		"jq":                   {`echo '{"a":[1,2]}' | jq -c .a`, "[1,2]\n"},
		"a login shell's PATH": {`for shell in bash sh; do $shell -l -c 'echo "$PATH"'; done | sort -u | grep -Fxc "$PATH"`, "1\n"},
		"a login shell forks nothing": {`for i in 1 2 3 4 5; do bash -l -c 'echo $BASHPID'; done | awk 'NR > 1 && (!least || $1-last < least) { least = $1-last } { last = $1 } END { print least }'`,
			"1\n"},
		"a login shell on a terminal": {`env -i TERM=dumb script -qec 'bash -l -i -c "echo [\$PS1]"' /dev/null </dev/null | grep -c '\[.*\\h:'`, "1\n"},
		"no rights":                   {"find / -xdev -perm /6000 ! -type l 2>/dev/null", ""},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(map[string]any{"script": c.script, "timeout": 300})
			require.NoError(t, err)
			res, err := s.Call(t.Context(), "shell_execute", raw)
			require.NoError(t, err)
			var out struct {
				Stdout string `json:"stdout"`
				Stderr string `json:"stderr"`
			}
			require.NoError(t, json.Unmarshal(toJSON(t, res.Value), &out))
			assert.Equal(t, c.want, out.Stdout, "%s", out.Stderr)
		})
	}
}

// ownName returns the name of an image that the test removes at its end.
func ownName(t *testing.T) string {
	t.Helper()
	need(t)
	name := "localhost/wisbox-it-" + strings.ToLower(rand.Text()[:8]) + ":1"
	removeImageLater(t, name)
	return name
}

func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

func TestAnOwnContainerfileIsBuiltAndASessionRunsInIt(t *testing.T) {
	hosttest.Slow(t)
	h, name := newHome(t), ownName(t)
	dir := writeTree(t, map[string]string{
		"Containerfile": "FROM localhost/wisbox\nARG WHO=nobody\nCOPY . /src\nRUN echo \"$WHO\" >/who && ls -A /src >/files && echo OWN=own >/etc/profile.d/own.sh\n",
		"main.py":       "print(42)", "debug.log": "x", "keep.log": "y", ".containerignore": "*.log\n!keep.log\n",
	})
	out, errs, code := command(t, h.cache, "image", "build", "-t", name, "--build-arg", "WHO=me", dir)
	require.Zero(t, code, errs)
	assert.True(t, strings.HasPrefix(out, name+"  "), out)
	assert.Equal(t, "me\n.containerignore\nContainerfile\nkeep.log\nmain.py\n42\nown\n", h.do("run", "--image", name, "--", "bash", "-l", "-c", "cat /who /files; python3 /src/main.py; echo $OWN"))
	h.do("session", "create", "box", "--image", strings.TrimSuffix(strings.TrimPrefix(name, "localhost/"), ":1")+":1")
	first := h.listed(name)
	assert.Equal(t, listedImage{Image: name, ID: first.ID, Kind: "built", State: "other", UsedBy: []string{"box"}}, first)

	// a build without changes is cached
	_, errs, code = command(t, h.cache, "image", "build", "-t", name, "--build-arg", "WHO=me", dir)
	require.Zero(t, code, errs)
	assert.Contains(t, errs, "Using cache")
	assert.Equal(t, first.ID, h.listed(name).ID)
	h.do("session", "rm", "box")

	// a new build removes the old image
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte("print(43)"), 0o644))
	h.do("image", "build", "-t", name, "-f", filepath.Join(dir, "Containerfile"))
	assert.NotEqual(t, first.ID, h.listed(name).ID)
	requireNoImage(t, first.ID)
	assert.Equal(t, "nobody\n43\n", h.do("run", "--image", name, "--", "sh", "-c", "cat /who; python3 /src/main.py"))
}

func TestPruneTakesWhatWasBuiltOnlyWhenItIsAskedTo(t *testing.T) {
	h, name := newHome(t), ownName(t)
	h.do("image", "build", "-t", name, writeTree(t, map[string]string{"Dockerfile": "FROM localhost/wisbox\nLABEL a=b\n"}))
	would := func(args ...string) string {
		return h.do(append([]string{"image", "prune", "--dry-run"}, args...)...) // others share this store
	}
	assert.NotContains(t, would(), name)
	assert.Contains(t, "\n"+would("--all"), "\n"+name+"  ", "a line of its own")
	h.do("session", "create", "box", "--image", name)
	assert.Contains(t, would("--all"), "kept "+name+": a session was created with it")
	h.do("session", "rm", "box")
}

func TestABuildsErrorsAreThoseOfTheContainerfile(t *testing.T) {
	hosttest.Slow(t)
	h := newHome(t)
	r := newRegistry(t, false)
	for name, c := range map[string]struct{ containerfile, says string }{
		"no FROM":        {"RUN true\n", "Containerfile: no FROM statement found"},
		"no instruction": {"FROM localhost/wisbox\nRUNN true\n", `Unknown instruction: "RUNN"`},
		"a step fails":   {"FROM localhost/wisbox\nRUN echo before; exit 3\n", "exit status 3"},
		"no such file":   {"FROM localhost/wisbox\nCOPY nothing /\n", `"/nothing": no such file or directory`},
		"no base":        {"FROM localhost/wisbox-it-nothing:1\n", "image localhost/wisbox-it-nothing:1 not found; build it"},
		"no registry":    {"FROM registry.invalid/x:1\n", "there is no host registry.invalid"},
		"without TLS":    {"FROM " + r.addr + "/x:1\n", "--tls-verify=false"},
		"no such image":  {"FROM docker://x\n", "Containerfile: "},
	} {
		t.Run(name, func(t *testing.T) {
			tag := ownName(t)
			errs := h.fail("image", "build", "-t", tag, writeTree(t, map[string]string{"Containerfile": c.containerfile}))
			last := errs[strings.LastIndex(errs, "\nwisbox: ")+1:]
			assert.Contains(t, last, c.says)
			assert.NotContains(t, last, "libpod_builder")
			assert.NotContains(t, last, "&imagebuilder")
			requireNoImage(t, tag)
		})
	}
}

// TestTheStepsOfABuildHaveAMaximumOfProcesses: a step is root, on a rootful machine the host's.
func TestTheStepsOfABuildHaveAMaximumOfProcesses(t *testing.T) {
	const forks = `import os, time
n = 0
try:
    for n in range(3000):
        if os.fork() == 0:
            time.sleep(600)
except OSError as e:
    print("after", n, "forks:", e.strerror)`
	dir := writeTree(t, map[string]string{"forks.py": forks, "Containerfile": "FROM localhost/wisbox\nUSER root\nCOPY forks.py /\nRUN python3 /forks.py\nRUN true\n"})
	out, err := newHome(t).command("image", "build", "-t", ownName(t), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	got := regexp.MustCompile(`after (\d+) forks: Resource temporarily unavailable`).FindSubmatch(out)
	require.NotNil(t, got, "%s", out)
	n, err := strconv.Atoi(string(got[1]))
	require.NoError(t, err)
	assert.LessOrEqual(t, n, 1024)
	assert.Greater(t, n, 512, "a compiler needs some")
}

// TestAStepThatFreezesItselfEnds: a step is root, and may write to its own cgroup.
func TestAStepThatFreezesItselfEnds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a rootless step can't write to its cgroup; root's run of this test does it")
	}
	mark := strconv.Itoa(30_000_000 + os.Getpid())
	dir := writeTree(t, map[string]string{"Containerfile": "FROM localhost/wisbox\nUSER root\n" +
		"RUN sleep " + mark + " & sleep 0.3; echo FROZEN > /sys/fs/cgroup/freezer/freezer.state || echo 1 > /sys/fs/cgroup/cgroup.freeze; sleep 5\n"})
	cmd := newHome(t).command("image", "build", "-t", ownName(t), dir)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return sleeps(mark) }, time.Minute, 10*time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second): // it waits for its frozen step
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		<-done
	}
	assert.Eventually(t, func() bool { return !sleeps(mark) }, time.Minute, 10*time.Millisecond)
}

// TestABuilderWithoutHereDocumentsSaysSo: that of Podman before 4.8.
func TestABuilderWithoutHereDocumentsSaysSo(t *testing.T) {
	h := newHome(t)
	service, err := env.backend.Service(t.Context())
	require.NoError(t, err)
	if !strings.HasPrefix(service.Version, "4.3.") {
		t.Skip("the builder of this Podman has them")
	}
	errs := h.fail("image", "build", "-t", ownName(t), writeTree(t, map[string]string{"Containerfile": "FROM localhost/wisbox\nRUN python3 <<EOF\nprint(1)\nEOF\n"}))
	assert.Contains(t, errs, "the builder of Podman "+service.Version+" has no here-documents (RUN <<EOF)")
}

func TestAPresetIsBuiltOnceAndWorks(t *testing.T) {
	hosttest.Slow(t)
	h, name := newHome(t), ownName(t)
	var made struct {
		Image  string   `json:"image"`
		With   []string `json:"with"`
		Cached bool     `json:"cached"`
	}
	build := func() {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(h.do("image", "build", "--json", "--with", "build", "-t", name)), &made))
	}
	build()
	assert.Equal(t, name, made.Image)
	assert.Equal(t, []string{"build"}, made.With)
	assert.False(t, made.Cached)
	build()
	assert.True(t, made.Cached)
	program := `printf '#include <stdio.h>\nint main() { puts("hello"); }\n' >a.c && cc -o a a.c && ./a && pkg-config --version >/dev/null && cmake --version | head -c 5`
	assert.Equal(t, "hello\ncmake", h.do("run", "--image", name, "--", "sh", "-c", program))
	assert.Empty(t, h.do("run", "--image", name, "--", "sh", "-c", "find / -xdev -perm /6000 ! -type l 2>/dev/null || :"))
}

// wheel is a package of one line.
func wheel(t *testing.T, dir, name string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, name+"-1.0-py3-none-any.whl"))
	require.NoError(t, err)
	defer f.Close()
	zw := zip.NewWriter(f)
	info := name + "-1.0.dist-info/"
	for path, text := range map[string]string{
		name + "/__init__.py": "made = 'here'\n", info + "RECORD": "",
		info + "METADATA": fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n", name),
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	} {
		w, err := zw.Create(path)
		require.NoError(t, err)
		_, err = w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, zw.Close())
}

func TestPythonsPackagesComeFromWheelsWhereThereIsNoIndex(t *testing.T) {
	hosttest.Slow(t)
	h, name := newHome(t), ownName(t)
	errs := h.fail("image", "build", "--with", "data", "-t", name, "--pip-index", "http://127.0.0.1:1/simple")
	assert.Contains(t, errs, "with data: pip could not install Python's packages, see the lines above; name an index that this machine reaches with --pip-index")
	requireNoImage(t, name)

	dir := t.TempDir()
	wheel(t, dir, "numpy")
	errs = h.fail("image", "build", "--with", "data", "-t", name, "--wheels", dir)
	assert.Contains(t, errs, "pandas", "pip names what is missing")
	wheel(t, dir, "pandas")
	wheel(t, dir, "matplotlib")
	h.do("image", "build", "--with", "data", "-t", name, "--wheels", dir)
	assert.Equal(t, "here here here\n", h.do("run", "--image", name, "--", "python3", "-c", "import numpy, pandas, matplotlib; print(numpy.made, pandas.made, matplotlib.made)"))
	assert.Equal(t, "no\n", h.do("run", "--image", name, "--", "sh", "-c", "test -e /context && echo yes || echo no"), "the wheels stay outside")
}

// TestTheEndOfABuildEndsItsStep: Podman by itself continues a step. Without root, the service isn't wisbox's child, so
// the kernel doesn't end it with wisbox.
func TestTheEndOfABuildEndsItsStep(t *testing.T) {
	signals := []syscall.Signal{syscall.SIGINT}
	if os.Getuid() == 0 {
		signals = append(signals, syscall.SIGKILL)
	}
	for i, sig := range signals {
		t.Run(sig.String(), func(t *testing.T) { endsItsStep(t, sig, strconv.Itoa((i+1)*10_000_000+os.Getpid())) })
	}
}

// endsItsStep sends a signal to a build whose step sleeps for a unique time.
func endsItsStep(t *testing.T, sig syscall.Signal, mark string) {
	h, name, step := newHome(t), ownName(t), "sleep "+mark
	dir := writeTree(t, map[string]string{"Containerfile": "FROM localhost/wisbox\nRUN " + step + "\n"})
	cmd := h.command("image", "build", "-t", name, dir)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return sleeps(mark) }, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(sig))
	_ = cmd.Wait()
	if sig == syscall.SIGINT {
		assert.Equal(t, sandbox.ExitSignalBase+int(sig), cmd.ProcessState.ExitCode())
	}
	if sig == syscall.SIGKILL { // Podman may have lost the step; the next build ends it
		h.do("image", "build", "-t", ownName(t), writeTree(t, map[string]string{"Containerfile": "FROM localhost/wisbox\n"}))
	}
	assert.Eventually(t, func() bool { return !sleeps(mark) }, time.Minute, 10*time.Millisecond)
	requireNoImage(t, name)
}

// sleeps reports whether a sleep for that many seconds runs on this machine.
func sleeps(mark string) bool {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		if line, err := os.ReadFile(path); err == nil && string(line) == "sleep\x00"+mark+"\x00" {
			return true
		}
	}
	return false
}

func TestADevcontainerIsASession(t *testing.T) {
	h := newHome(t)
	dir := writeTree(t, map[string]string{
		"Containerfile": "FROM localhost/wisbox\nARG WORD\nRUN echo $WORD > /built\n",
		"text":          "of the project\n",
		".devcontainer/devcontainer.json": `{ // for editors too
			"build": {"dockerfile": "../Containerfile", "context": "..", "args": {"WORD": "built"}},
			"containerEnv": {"GREETING": "hello", "KEY": "${localEnv:HOME}"}, "features": {"x": {}},
			"remoteEnv": {"PATH": "${containerEnv:PATH}:/workspace/tools", "NONE": "${containerEnv:NO_SUCH:default}"},
			"onCreateCommand": "cat /built text > made; printf '\\033[2J\\n'", "updateContentCommand": ["mkdir", "-p", "seen/${containerEnv:NONE}"],
			"postCreateCommand": ["sh", "-c", "echo $GREETING$KEY >> made; exit 4"],
		}`,
	})
	assert.Contains(t, h.fail("session", "create", "box", "--devcontainer", dir), "builds an image from Containerfile; its steps run as root in a container with this machine's network: read that file and add --build")
	out, errs, code := command(t, h.cache, "session", "create", "box", "--devcontainer", dir, "--build", "-e", "GREETING=hi")
	assert.Equal(t, "box\n", out)
	assert.Equal(t, 1, code)
	var in struct{ Image string }
	require.NoError(t, json.Unmarshal([]byte(h.do("--json", "session", "inspect", "box")), &in))
	removeImageLater(t, in.Image)
	assert.Contains(t, errs, "not used: ${localEnv:HOME}, features")
	assert.Contains(t, errs, `\x1b[2J`)
	assert.NotContains(t, errs, "\x1b")
	assert.Contains(t, errs, "postCreateCommand exited with code 4; the session stays: go on in it with wisbox shell box")
	assert.Equal(t, "built\nof the project\nhi\n", h.do("exec", "box", "--", "cat", "made"))
	assert.Regexp(t, "^/.*:/usr/bin:.*:/workspace/tools\ndefault\n$", h.do("exec", "box", "--", "sh", "-c", "echo $PATH; ls seen"))
	h.do("session", "rm", "box")
	pulls := writeTree(t, map[string]string{".devcontainer.json": `{"image": "127.0.0.1:1/x:1", "postCreateCommand": "true"}`})
	assert.Contains(t, h.fail("session", "create", "box", "--devcontainer", pulls), "127.0.0.1:1/x:1")
	assert.Empty(t, h.sessions(), "no command could run")
	assert.Contains(t, h.fail("session", "create", "--devcontainer", t.TempDir()), "has no .devcontainer/devcontainer.json and no .devcontainer.json; write one")
}

// TestAProjectsContainerfileIsBuilt once, from the trusted state, with the files of the project.
func TestAProjectsContainerfileIsBuilt(t *testing.T) {
	h := newHome(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	dir := writeTree(t, map[string]string{
		"wisbox.toml": "containerfile = \"build/Containerfile\"\npaths = \"any\"\n", "word": "of the project\n",
		"build/Containerfile": "FROM localhost/wisbox\nCOPY word /word\nRUN echo built >> /word\n",
	})
	run := func(want int, args ...string) (out, errs string) {
		t.Helper()
		cmd := h.command(args...)
		var stdout, stderr strings.Builder
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
		_ = cmd.Run()
		require.Equal(t, want, cmd.ProcessState.ExitCode(), stderr.String())
		return stdout.String(), stderr.String()
	}
	_, errs := run(125, "run", "--", "cat", "/word")
	assert.Contains(t, errs, "is not trusted")
	run(0, "trust", "--yes")
	_, errs = run(0, "session", "create", "box")
	var in struct{ Image string }
	require.NoError(t, json.Unmarshal([]byte(h.do("--json", "session", "inspect", "box")), &in))
	removeImageLater(t, in.Image)
	assert.Contains(t, errs, "RUN echo built")
	assert.Equal(t, "of the project\nbuilt\n", h.do("exec", "box", "--", "cat", "/word"))
	out, errs := run(0, "run", "--", "cat", "/word")
	assert.Equal(t, "of the project\nbuilt\n", out)
	assert.NotContains(t, errs, "RUN", "the image is there")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "word"), []byte("of somebody else\n"), 0o600))
	_, errs = run(125, "run", "--", "cat", "/word")
	assert.Contains(t, errs, "have changed since you trusted the project")
	assert.NotContains(t, errs, "RUN echo built")

	h.do("exec", "box", "--", "touch", "straße")
	assert.Contains(t, h.do("call", "box", "shell_execute", `{"commands":["ls","straße"]}`), `"stdout":"straße\n"`)
	h.do("session", "rm", "box")
	_, errs = run(125, "--no-config", "run", "--containerfile", "build/Containerfile", "--", "true")
	assert.Contains(t, errs, "--containerfile: ", "its context is its own folder, where no word is")
}

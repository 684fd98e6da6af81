package integration

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// docsPage describes how to run the commands of a page: its shell blocks are one script, in an empty directory.
type docsPage struct {
	setUp string   // shell commands for the page's prerequisites, which run first
	as    []string // pairs: a text of the page, and its replacement in the test

	// The start of a line to the reason to skip it, with the test that covers it, if any.
	notRun map[string]string
	says   []string // texts that the output contains
}

const project = "cp -r $EXAMPLES/project project && git -C project init -q -b main && git -C project add -A && " +
	"git -C project -c user.name=me -c user.email=me@example.com commit -qm first\n"

const box = "wisbox create box\n"

// docsPages has every page with commands; TestTheDocsCommandsWork finds missing pages.
var docsPages = map[string]docsPage{
	"README.md": {notRun: map[string]string{
		"make demo":          ".ci/run runs it",
		"make test":          ".ci/run runs its parts, this test among them",
		"export ANTHROPIC":   "TestTheReadmesAgentJob",
		"wisbox agent":       "TestTheReadmesAgentJob",
		"git diff HEAD":      "TestTheReadmesAgentJob",
		"export E2B":         "TestTheDocsE2BJob of integration/serve",
		"wisbox serve &":     "TestTheDocsE2BJob of integration/serve",
		"node app.mjs":       "TestTheDocsE2BJob of integration/serve",
		"export CGO_ENABLED": "TestTheReadmesGoJob of integration/examples",
		"go run":             "TestTheReadmesGoJob of integration/examples",
	}},
	"docs/first-steps.md": {
		setUp: "mkdir bin ~/.ssh; ln -s $WISBOX bin/wisbox; cp -r $EXAMPLES examples\n",
		as:    []string{"-- python3 -m unittest  ", "-- python3 -m unittest || [ $? = 1 ]", " /tmp/", " ./", " /tmp  ", " .  "},
		notRun: map[string]string{
			"make build":         "it made the binary that this test runs",
			"bin/wisbox shell":   "needs a terminal: TestShellIsATerminal",
			"bin/wisbox doctor":  "takes a minute: TestDoctorFindsThisMachineFit",
			"bin/wisbox port":    "runs until it is ended: TestPortForABrowser",
			"bin/wisbox image p": "would remove images that other tests have: TestPruneTakesWhatWasBuiltOnlyWhenItIsAskedTo",
		},
		says: []string{"FAILED (failures=1)", "README.md", "\n42\n=> 49\n", "-import unittest", "; 4 brought back, 0 changed, 0 removed", "\nbox\ntwin\n"},
	},
	"docs/agents.md": {notRun: map[string]string{
		"export ANTHROPIC": "a key",
		"wisbox agent":     "needs an agent of npm and its API: TestAnAgentWorksOnACopyWithoutItsKey, TestAgentsOfNpmDoATask",
	}},
	"docs/changes.md": {
		setUp: project,
		as:    []string{"…", "echo more >>README.md", "box project/src  ", "box project/station  ", "apply box --3way  ", "apply box --3way || [ $? = 1 ]"},
		says:  []string{"M  project/README.md\n1 change would be written\n", "\n1 change written\n0 changes written\n", "wisbox/box"},
	},
	"docs/ci.md": {
		setUp: "cp -r $EXAMPLES/project/. . && cp -r $EXAMPLES . && mkdir bin && ln -s $WISBOX bin/wisbox\n",
		as:    []string{"-m unittest\n", "-m unittest || [ $? = 1 ]\n"},
		says:  []string{"FAILED (failures=1)"},
	},
	"docs/configuration.md": {
		setUp: "mkdir straße && echo hello >straße/日本.txt && printf 'hello:\\n\\techo made\\n' >Makefile && image=$(wisbox version | awk '$1 == \"image\" { print $2 }') && printf '{\"image\": \"%s\", \"postCreateCommand\": \"echo created\"}' $image >.devcontainer.json\n",
		as:    []string{"create box --devcontainer", "create dev --devcontainer", "wisbox trust  ", "echo y | wisbox trust  ", "--remove  ", "--remove; rm wisbox.toml  "},
		says:  []string{"made", `"content":"hello`},
	},
	"docs/images.md": {
		setUp: "mkdir folder && echo 'FROM localhost/wisbox' | tee folder/Containerfile >folder/other.containerfile\n",
		as:    []string{"-f other.containerfile", "-f folder/other.containerfile"},
		notRun: map[string]string{
			"pip download":                      "needs an index of Python packages",
			"wisbox image build --with data --": "needs wheels: TestPythonsPackagesComeFromWheelsWhereThereIsNoIndex, TestRealPandasAndMatplotlib",
		},
		says: []string{"localhost/mine", "Python 3."},
	},
	"docs/install.md": {notRun: map[string]string{
		"git clone":              "needs the repository's host",
		"make ":                  ".ci/run runs it",
		"bin/wisbox image build": "TestMain of this package",
		"bin/wisbox doctor":      "takes a minute: TestDoctorFindsThisMachineFit",
		"sudo apt":               "installs a package: make dist checks what is in it",
		"wisbox image build":     "TestMain of this package",
		"man ":                   "TestManPages of cmd/wisbox",
		"systemctl":              "needs systemd",
		"wisbox serve key":       "TestTheDocsE2BJob of integration/serve",
		"sudo loginctl":          "needs systemd",
	}},
	"docs/network.md": {
		setUp: box,
		notRun: map[string]string{
			"wisbox run --allow":            "needs hosts of the Internet: TestEgressReachesPublicHosts",
			"wisbox run --egress":           "needs hosts of the Internet: TestEgressIsRecorded",
			"wisbox: ":                      "output",
			"wisbox create shop":            "needs images of a registry: TestServicesAreReachedAndClosed",
			"wisbox exec shop":              "needs images of a registry: TestServicesAreReachedAndClosed",
			"wisbox run --service":          "needs images of a registry: TestAServiceOfPostgres",
			"wisbox run --secret KEY=./key": "needs hosts of the Internet: TestEgressKeepsAnInjectedSecretOutside",
			"  --inject":                    "goes on with the line before",
			"wisbox port":                   "runs until it is ended: TestPortForABrowser, TestPortIsASocketOfItsOwner",
		},
		says: []string{"pypi.org"},
	},
	"docs/operations.md": {
		setUp: box + "wisbox exec box -- true\n",
		notRun: map[string]string{
			"wisbox top":         "needs a terminal: TestTopShowsSessionsAndTakesKeys",
			"wisbox doctor":      "takes a minute: TestDoctorFindsThisMachineFit",
			"wisbox lab bench":   "TestBenchMeasuresAndLeavesNothing",
			"wisbox lab metrics": "runs until it is ended: TestTheMetricsOfHeldSessionsAreServed",
		},
		says: []string{"memory", "true"},
	},
	"docs/page.md": {notRun: map[string]string{
		"wisbox ui":       "runs until it is ended: TestAPersonAtThePage of integration/page",
		"wisbox serve":    "runs until it is ended: integration/page has it",
		"    --ui-listen": "the rest of that line",
	}},
	"docs/processes.md": {
		setUp: box + "wisbox exec box -- sh -c 'mkdir src; echo \"import time; print(1, flush=True); time.sleep(300)\" >src/server.py'\n",
		as:    []string{"wisbox exec -d", "id=$(wisbox exec -d", "server.py  ", "server.py); echo $id  ", "box ID", "box $id"},
		notRun: map[string]string{
			"wisbox logs -f": "runs until the program ends: TestKeysLeaveAProcessAndAnotherTakesItOver",
			"wisbox attach":  "needs a terminal: TestKeysLeaveAProcessAndAnotherTakesItOver",
		},
		says: []string{"server.py"},
	},
	"docs/python.md": {
		setUp: box + "echo 'print(6 * 7)' >analysis.py; wisbox exec box -- sh -c 'mkdir src; printf \"hello:\\n\\techo made\\n\" >src/Makefile'\n",
		as:    []string{"wisbox lab context create box web", "[ -z \"$NODE\" ] || wisbox lab context create box web"},
		notRun: map[string]string{
			"wisbox repl": "needs a terminal: TestReplAtATerminal",
		},
		says: []string{"42", "made", "shell"},
	},
	"docs/rlm.md": {notRun: map[string]string{"wisbox lab rlm run": "needs a model: rlm.txtar of cmd/wisbox"}},
	"docs/serve.md": {notRun: map[string]string{
		"":           "TestTheDocsE2BJob of integration/serve runs the first block",
		"claude mcp": "needs Claude Code",
	}},
	"docs/cluster.md": {notRun: map[string]string{"": "needs kind; the tests of package cluster and cmd/wisbox/testdata/script/remote.txtar do the same elsewhere"}},
	"docs/far.md":     {notRun: map[string]string{"": "TestAFarSession; TestARemoteBehindAKey; cmd/wisbox/testdata/script/remote.txtar"}},
	"docs/ssh.md": {notRun: map[string]string{
		"wisbox ssh-config": "first-steps.md has it",
		"Include":           "a line of ssh's configuration",
		"ssh ":              "TestSSHRunsCommands, TestSSHForwardsPortsOfTheSession",
		"scp ":              "TestSSHCopiesFiles",
		"rsync ":            "TestSSHCopiesFiles",
	}},
}

// TestTheDocsCommandsWork runs the commands of the README and the pages.
func TestTheDocsCommandsWork(t *testing.T) {
	hosttest.Slow(t)
	need(t)
	examples, err := filepath.Abs("../examples")
	require.NoError(t, err)
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	var known []string
	for _, path := range append(pages, "../README.md") {
		name := strings.TrimPrefix(path, "../")
		if commands := commandsOf(t, path); commands != "" {
			known = append(known, name)
			t.Run(name, func(t *testing.T) { docsPages[name].run(t, commands, examples) })
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(docsPages)), known)
}

var shellBlock = regexp.MustCompile("(?ms)^```(?:sh)?\n(.*?)^```")

// commandsOf returns the shell blocks of a page.
func commandsOf(t *testing.T, path string) string {
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	var b strings.Builder
	for _, block := range shellBlock.FindAllStringSubmatch(fenced.ReplaceAllString(string(page), ""), -1) {
		if !strings.Contains(block[1], "──►") {
			b.WriteString(block[1])
		}
	}
	return b.String()
}

// fenced matches the blocks in other languages.
var fenced = regexp.MustCompile("(?ms)^```[a-rt-zA-Z].*?^```\n")

func (p docsPage) run(t *testing.T, commands, examples string) {
	unused := maps.Clone(p.notRun)
	script := "set -e\n" + p.setUp
	ran := false
	for line := range strings.Lines(commands) {
		_, isEmpty := p.notRun[""]
		if begin := p.reason(line); begin != "" || isEmpty {
			delete(unused, begin)
			delete(unused, "")
			continue
		}
		ran = ran || strings.Contains(line, "wisbox")
		script += strings.NewReplacer(p.as...).Replace(line)
	}
	assert.Empty(t, unused, "the page has no such lines")
	if !ran {
		return
	}
	h := newHome(t)
	home, bin := t.TempDir(), t.TempDir()
	dir := filepath.Join(home, "work")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Symlink(binary(t), filepath.Join(bin, "wisbox")))
	require.NoError(t, linkPodmans(filepath.Join(home, ".config")))
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = slices.Concat(h.command().Env, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "WISBOX=" + binary(t), "EXAMPLES=" + examples, "HOME=" + home, "XDG_CONFIG_HOME=" + home + "/.config",
		"XDG_DATA_HOME=" + cmp.Or(os.Getenv("XDG_DATA_HOME"), filepath.Join(os.Getenv("HOME"), ".local/share"))}) // the image store of a user's Podman
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
	for _, text := range p.says {
		assert.Contains(t, string(out), text)
	}
}

// reason returns the reason to skip a line, by the key of notRun that it starts with.
func (p docsPage) reason(line string) string {
	for begin := range p.notRun {
		if begin != "" && strings.HasPrefix(line, begin) {
			return begin
		}
	}
	return ""
}

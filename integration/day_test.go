package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// day is a project of npm with a history, and a session's commands on it.
type day struct {
	*testing.T
	project, cache string
}

// TestADayWithRealPackages is a newcomer's day with a clone and the packages of npm's registry, 350 MB in 15,000 files with
// links and programs: its tests are run, it is broken, fixed by undo, changed on a branch, and brought home.
func TestADayWithRealPackages(t *testing.T) {
	hosttest.Slow(t)
	d := newDay(t)
	const test = "node_modules/.bin/node"
	d.must("create", "box", "--mount", d.project+":.")
	out := d.must("exec", "box", "--", test, "--test")
	assert.Contains(t, out, "pass 2")
	assert.Contains(t, d.must("exec", "box", "--", "git", "log", "--format=%s"), "second\nfirst\n")
	assert.Empty(t, d.must("exec", "box", "--", "git", "status", "--short"))
	packages := d.must("exec", "box", "--", "sh", "-c", "find node_modules | wc -l; readlink node_modules/.bin/npm")

	d.must("exec", "box", "--", "sed", "-i", "s/a + b/a - b/", "lib/sums.js")
	_, _, code := command(t, d.cache, "exec", "box", "--", test, "--test")
	assert.Equal(t, 1, code)
	assert.Equal(t, "M  lib/sums.js\n", d.must("diff", "box"))
	assert.Contains(t, d.must("undo", "box"), "sed -i")
	assert.Contains(t, d.must("exec", "box", "--", test, "--test"), "pass 2")
	assert.Empty(t, d.must("diff", "box"))

	d.must("exec", "box", "--", "rm", "-rf", "node_modules", ".git")
	assert.Contains(t, d.must("undo", "box"), "rm -rf")
	assert.Equal(t, packages, d.must("exec", "box", "--", "sh", "-c", "find node_modules | wc -l; readlink node_modules/.bin/npm"))
	assert.Contains(t, d.must("exec", "box", "--", test, "--test"), "pass 2")
	assert.Empty(t, d.must("exec", "box", "--", "git", "status", "--short"))

	d.must("exec", "box", "--", "sh", "-c", "git switch -qc work && echo '// product' >>lib/sums.js && echo x >node_modules/left && git commit -qam product")
	assert.Contains(t, d.must("branch", "box"), "wisbox/box")
	assert.Equal(t, "lib/sums.js\n", d.git("diff", "--name-only", "HEAD", "wisbox/box"))
	assert.Empty(t, d.git("status", "--short"))
	assert.Contains(t, d.must("apply", "box"), "1 change written")
	assert.Equal(t, " M lib/sums.js\n", d.git("status", "--short"))
	assert.NoFileExists(t, filepath.Join(d.project, "node_modules/left"))
	cmd := exec.Command(filepath.Join(d.project, test), "--test")
	cmd.Dir = d.project
	atHome, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", atHome)
	assert.Equal(t, "box\n", d.must("rm", "box"))
}

func newDay(t *testing.T) *day {
	d := &day{t, filepath.Join(t.TempDir(), "app"), filepath.Join(t.TempDir(), "cache")}
	t.Cleanup(func() { _, _, _ = command(t, d.cache, "rm", "-f", "box") })
	modules := hosttest.NodePackages(t, "mcp/testdata/package.json")
	origin := filepath.Join(t.TempDir(), "origin")
	for name, text := range map[string]string{
		".gitignore":   "node_modules/\n",
		"package.json": `{"type": "module", "scripts": {"test": "node --test"}, "dependencies": {"ajv": "*"}}` + "\n",
		"lib/sums.js":  "export const add = (a, b) => a + b\n",
		"test/sums.test.js": "import test from 'node:test'\nimport assert from 'node:assert'\nimport Ajv from 'ajv'\nimport { add } from '../lib/sums.js'\n" +
			"test('adds', () => assert.equal(add(1, 2), 3))\ntest('a package', () => assert.ok(new Ajv.default({}).validate({ type: 'number' }, 1)))\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(origin, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(origin, name), []byte(text), 0o600))
	}
	d.run(origin, "git", "init", "-q", "-b", "main")
	for _, message := range []string{"first", "second"} {
		d.run(origin, "git", "add", "-A")
		d.run(origin, "git", "-c", "user.name=me", "-c", "user.email=me@example.com", "commit", "-q", "--allow-empty", "-m", message)
	}
	d.run(t.TempDir(), "git", "clone", "-q", origin, d.project)
	d.run(d.project, "cp", "-a", modules, "node_modules")
	return d
}

// must runs wisbox, and returns its stdout.
func (d *day) must(args ...string) string {
	d.Helper()
	out, errs, code := command(d.T, d.cache, args...)
	require.Zero(d, code, "%s: %s%s", strings.Join(args, " "), out, errs)
	return out
}

func (d *day) git(args ...string) string { return d.run(d.project, "git", args...) }

func (d *day) run(dir, program string, args ...string) string {
	d.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(d, err, "%s", out)
	return string(out)
}

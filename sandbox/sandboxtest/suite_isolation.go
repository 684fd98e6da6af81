package sandboxtest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// isolationChecks hold only if there is a sandbox.
var isolationChecks = []check{
	{"programs are uid 1000 without any capability", func(t *testing.T, f *fixture) {
		all := map[string]string{"argv": f.must(t, "cat /proc/self/status")}
		if f.python() {
			all["python"] = f.run(t, pythonProgram("def main(inp, out):\n    print(open('/proc/self/status').read())\n")).out
		}
		for name, status := range all {
			for _, want := range []string{"Uid:\t1000\t1000\t1000\t1000", "Gid:\t1000\t1000\t1000\t1000", "NoNewPrivs:\t1"} {
				assert.Contains(t, status, want, name)
			}
			for _, set := range []string{"Inh", "Prm", "Eff", "Bnd", "Amb"} {
				assert.Contains(t, status, "Cap"+set+":\t0000000000000000", name)
			}
		}
		assert.Equal(t, "1000", f.must(t, "id -G"))
	}},
	{"programs see the workspace at its fixed place", func(t *testing.T, f *fixture) {
		assert.Equal(t, sandbox.WorkspaceDir, f.must(t, "pwd"))
		assert.Equal(t, sandbox.Home, f.must(t, "echo $HOME"))
	}},
	{"the home directory is the programs' own, and not below /tmp", func(t *testing.T, f *fixture) {
		assert.NotContains(t, sandbox.Home, "/tmp/") // codex makes no helpers in a home below it
		assert.Equal(t, "own", f.must(t, "umask 077; mkdir ~/own && touch ~/own/f && [ -O ~/own/f ] && rm -r ~/own && rm -rf /tmp/* && [ -w ~ ] && echo own"))
	}},
	{"the root is read-only, temporary files are not", func(t *testing.T, f *fixture) {
		o := f.bash(t, "touch /x /bin/x /etc/x; touch /tmp/x /dev/shm/x && echo tmp")
		assert.Equal(t, "tmp\n", o.out)
		assert.Equal(t, 3, strings.Count(strings.ToLower(o.err), "read-only"), o.err)
	}},
	{"there is no network", func(t *testing.T, f *fixture) {
		assert.Equal(t, "lo", f.must(t, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"))
		o := f.run(t, f.does(connecting))
		assert.Equal(t, 1, o.ExitCode)
	}},
	{"a program can't end, stop or read what serves it", func(t *testing.T, f *fixture) {
		f.bash(t, "kill -9 -1; kill -9 1; kill -STOP $PPID; true")
		assert.Equal(t, "on", f.must(t, "echo on"))
		assert.Empty(t, f.must(t, "cat /proc/1/environ /proc/$PPID/environ /proc/$PPID/mem 2>/dev/null | head -c 100; true"))
	}},
	{"streams can be opened again by their names", func(t *testing.T, f *fixture) {
		o := f.bash(t, "echo out > /dev/stdout; echo err > /dev/stderr")
		assert.Equal(t, "out\n", o.out)
		assert.Equal(t, "err\n", o.err)
	}},
	{"memory over the limit is a kill that is reported", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{Memory: 256 << 20})
		if !own.enforced(t, "memory") {
			return
		}
		o := own.run(t, f.does(hoarding))
		assert.Equal(t, sandbox.StatusOOMKilled, o.Status, o.err)
		assert.Equal(t, 137, o.ExitCode)
		assert.Equal(t, "on", own.must(t, "echo on"), "the sandbox goes on")
	}},
	{"processes over the limit are reported", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{PIDs: 48})
		if !own.enforced(t, "pids") {
			return
		}
		o := own.run(t, f.does(forking))
		assert.Equal(t, sandbox.StatusPIDsLimit, o.Status, o.err)
		assert.NotZero(t, o.ExitCode, "Python and shells say so in their own way")
		assert.Equal(t, "on", own.must(t, "echo on"), "the sandbox goes on")
	}},
	{"processors are limited", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{CPUs: 0.5})
		if !own.enforced(t, "cpus") {
			return
		}
		o := own.run(t, f.does(turning))
		assert.Less(t, o.Usage.User+o.Usage.System, o.Duration*3/4, "half a processor for two seconds and more")
	}},
	{"temporary files are limited", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{Tmp: 16 << 20})
		o := own.bash(t, "dd if=/dev/zero of=/tmp/big bs=1M count=40; stat -c %s /tmp/big; rm /tmp/big")
		assert.Contains(t, o.err, "No space left")
		o = own.bash(t, "dd if=/dev/zero of=$HOME/big bs=1M count=40; stat -c %s $HOME/big; rm $HOME/big")
		assert.Contains(t, o.err, "No space left")
	}},
}

// enforced reads from Info whether the host enforces a limit, and logs why not.
func (f *fixture) enforced(t *testing.T, name string) bool {
	t.Helper()
	info, err := f.box.Info(context.Background())
	require.NoError(t, err)
	for _, l := range info.Limits {
		if l.Name == name && l.Enforced {
			return true
		} else if l.Name == name {
			t.Logf("the host doesn't enforce the limit %s: %s", name, l.By)
		}
	}
	return false
}

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/doctor"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// command runs the command line on this run's state root, or another's.
func command(t *testing.T, cache string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	need(t)
	cmd := exec.Command(binary(t), args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+cache)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func examine(t *testing.T, args ...string) (map[string]doctor.Line, int) {
	t.Helper()
	out, errs, code := command(t, filepath.Join(t.TempDir(), "c"), append([]string{"doctor", "--json"}, args...)...)
	var report doctor.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report), "%s%s", out, errs)
	byName := map[string]doctor.Line{}
	for _, l := range report.Lines {
		byName[l.Name] = l
		if l.Status != doctor.OK && l.Status != doctor.Skipped {
			assert.NotEmpty(t, l.Fix, l.Name)
		}
	}
	return byName, code
}

func TestDoctorFindsThisMachineFit(t *testing.T) {
	lines, code := examine(t)
	assert.Zero(t, code, "%+v", lines)
	for _, name := range []string{"podman", "image", "first program", "speed", "tmp", "nofile", "network", "rights", "signals", "seccomp", "root", "ownership", "disk", "inodes", "egress"} {
		assert.Equal(t, doctor.OK, lines[name].Status, "%s: %+v", name, lines[name])
	}
	s := open(t, nil)
	said := enforced(t, s)
	if os.Getuid() == 0 {
		assert.Equal(t, doctor.OK, lines["counters"].Status, "%+v", lines["counters"])
	} else {
		assert.Contains(t, lines["counters"].Detail, "--strict refuses")
	}
	for _, name := range []string{"memory", "cpus", "pids"} {
		want := doctor.NotEnforced
		if said[name].Enforced {
			want = doctor.OK
		}
		assert.Equal(t, want, lines[name].Status, "inspect and doctor disagree: %+v", lines[name])
	}
}

func TestDoctorSaysThatThereIsNoService(t *testing.T) {
	lines, code := examine(t, "--podman", "unix:///run/wisbox-no-such.sock")
	assert.Equal(t, 1, code)
	assert.Equal(t, doctor.Broken, lines["podman"].Status)
	assert.Equal(t, doctor.Skipped, lines["sessions"].Status)
}

func TestTheLogTellsEachCallAndShowsWhenItWasChanged(t *testing.T) {
	need(t)
	cache := filepath.Join(t.TempDir(), "c")
	must := func(args ...string) string {
		t.Helper()
		out, errs, code := command(t, cache, args...)
		require.Zero(t, code, "%s", errs)
		return out
	}
	must("session", "create", "box")
	defer must("session", "rm", "box")
	must("call", "box", "write_file", `{"file_path":"a/b.txt","content":"secret words"}`)
	_, _, code := command(t, cache, "call", "box", "read_file", `{"file_path":"missing"}`)
	require.Equal(t, 1, code)
	must("exec", "box", "--", "true")
	must("cp", t.TempDir(), "box:copied")

	text := must("log", "box")
	for _, want := range []string{"write_file", "a/b.txt", "read_file", "not_found", "ok", "run", "import"} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "secret words")
	assert.Len(t, strings.Split(strings.TrimSpace(must("log", "box", "--json", "--tail", "2")), "\n"), 2)
	must("log", "verify", "box")

	path := filepath.Join(cache, "sessions/box/log.jsonl")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "secret words")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(raw), "not_found", "ok", 1)), 0o600))
	out, _, code := command(t, cache, "log", "verify", "box")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "record 2 was changed")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
}

// TestBenchMeasuresAndLeavesNothing, even if its image is missing.
func TestBenchMeasuresAndLeavesNothing(t *testing.T) {
	hosttest.Slow(t)
	h := newHome(t)
	var report struct {
		Podman struct{ Version string }
		Rows   []struct {
			What, Beside string
			Wisbox       int64 `json:"wisbox_ns"`
			Podman       int64 `json:"podman_ns"`
			Runs         int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(h.do("bench", "--runs", "1", "--json")), &report))
	assert.NotEmpty(t, report.Podman.Version)
	require.Len(t, report.Rows, 6)
	for _, r := range report.Rows {
		assert.Positive(t, r.Wisbox, r.What)
		assert.Positive(t, r.Runs, r.What)
		assert.Equal(t, r.Beside != "", r.Podman > 0, r.What)
	}
	assert.Equal(t, "podman exec", report.Rows[1].Beside)
	assert.Empty(t, h.sessions())
	assert.Contains(t, h.fail("bench", "--image", "localhost/no-such:1"), "localhost/no-such:1")
	assert.Empty(t, h.sessions())
}

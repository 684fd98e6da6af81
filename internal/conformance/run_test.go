package conformance

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

func TestCasesRunAgainstAFunction(t *testing.T) {
	sum := Run(t, fakeTarget(t.TempDir()), nil, "testdata/runner.jsonl")
	assert.Equal(t, Summary{Pass: 8}, sum)
}

func TestTargetsWithoutProgramsSkipWhatNeedsThem(t *testing.T) {
	sum := Run(t, fakeTarget(t.TempDir()), &Options{NoPrograms: true}, "testdata/runner.jsonl")
	assert.Equal(t, Summary{Pass: 1, Skip: 7}, sum)
}

// problemsOf runs one case on a target and returns what was found.
func problemsOf(t *testing.T, target Target, line string) string {
	t.Helper()
	c, err := parseCase([]byte(line))
	require.NoError(t, err)
	r, err := newRunner(target, nil, t.TempDir())
	require.NoError(t, err)
	problems := r.run(t.Context(), &c)
	problems = append(problems, r.closeShared(t.Context())...)
	return strings.Join(problems, "\n")
}

func TestBrokenRulesAreFound(t *testing.T) {
	for _, c := range []struct{ name, line, says string }{
		{"expectation", `{"id":"x","tool":"ls","expect":"ok:count=1"}`, "count is 0"},
		{"setup", `{"id":"x","tool":"ls","expect":"ok:any","setup":"false"}`, "setup: "},
		{"step in the sandbox", `{"id":"x","steps":[{"sh":"exit 3"}]}`, "step 1: "},
		{"step on the host", `{"id":"x","steps":[{"host":"exit 3"}]}`, "exit status 3"},
		{"host_check", `{"id":"x","tool":"ls","expect":"ok:any","host_check":"false; true"}`, "host_check"},
		{"afterwards", `{"id":"x","tool":"ls","expect":"ok:any","also":["sh:test -e nope"]}`, "afterwards"},
		{"text that must not be there", `{"id":"x","tool":"ls","expect":"ok:any","also":["not_contains=entries"]}`, "holds entries"},
		{"field over its length", `{"id":"x","tool":"write_file","args":{"file_path":"a","content":""},"expect":"ok:any","also":["field_max:nope=1"]}`, "nope"},
		{"field to keep", `{"id":"x","tool":"ls","expect":"ok:any","save":{"A":"nope"}}`, "no nope to keep"},
		{"unknown placeholder", `{"id":"x","tool":"ls","args":{"a":"{{NOPE}}"},"expect":"ok:any"}`, "{{NOPE}}"},
		{"race that fails", `{"id":"x","tool":"ls","expect":"ok:any","race":"exit 1"}`, "race: "},
		{"race that ends early", `{"id":"x","tool":"shell_execute","args":{"script":"sleep 0.05"},"expect":"ok:any","race":"true","repeat":12}`, "fell into the run"},
		{"answer that shows the canary", `{"id":"x","tool":"shell_execute","args":{"script":"cat {{CANARY}}"},"expect":"ok:any"}`, "showed the canary"},
		{"answer that shows it in base64", `{"id":"x","tool":"shell_execute","args":{"script":"tail -c +2 {{CANARY}} | base64 -w0"},"expect":"ok:any"}`, "showed the canary"},
		{"canary touched", `{"id":"x","steps":[{"sh":"touch {{CANARY}}"}]}`, "has changed"},
		{"canary's directory", `{"id":"x","steps":[{"sh":"touch {{CANARY_DIR}}/new"}]}`, "has changed"},
		{"sibling touched", `{"id":"x","steps":[{"sh":"rm {{OVERLAY}}-evil/leak.txt"}]}`, "has changed"},
		{"refusal", `{"id":"x","tool":"ls","flags":["--refuse"],"expect":"ok:any"}`, "no start"},
		{"session that died", `{"id":"x","steps":[{"sh":"rm -rf {{OVERLAY}}"}]}`, "no longer works"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Contains(t, problemsOf(t, fakeTarget(t.TempDir()), c.line), c.says)
		})
	}
}

func TestSlowCallsAreFound(t *testing.T) {
	line := `{"id":"x","tool":"shell_execute","args":{"script":"sleep 0.05"},"expect":"ok:any","max_ms":10}`
	assert.Contains(t, problemsOf(t, fakeTarget(t.TempDir()), line), "at most 10ms")
}

func TestCasesWithWordsThatNobodyReadsAreRefused(t *testing.T) {
	for _, line := range []string{
		`{"id":"x","tool":"ls","expect":"ok:any","repaet":3}`,
		`{"id":"x","tool":"ls","expect":"okay:any"}`,
		`{"id":"x","tool":"ls","expect":"ok:any","also":["no_such_check"]}`,
	} {
		_, err := parseCase([]byte(line))
		assert.Error(t, err, line)
	}
}

func TestSharedCaseFilesAreInTheLanguage(t *testing.T) {
	files, reason := SharedFiles()
	if reason != "" {
		hosttest.Lacks(t, "%s", reason)
	}
	for _, file := range files {
		cases, err := Load(file)
		require.NoError(t, err)
		assert.NotEmpty(t, cases, filepath.Base(file))
	}
}

func TestASharedSessionIsReplacedAfterAProblem(t *testing.T) {
	opened := 0
	base := fakeTarget(t.TempDir())
	target := &InProcess{Start: func(ctx context.Context, opts OpenOptions) (*Local, error) {
		opened++
		return base.Start(ctx, opts)
	}}
	r, err := newRunner(target, nil, t.TempDir())
	require.NoError(t, err)
	good, bad := `{"id":"x","tool":"ls","expect":"ok:any"}`, `{"id":"x","tool":"ls","expect":"failed:any"}`
	for _, line := range []string{good, good, bad, good} {
		c, err := parseCase([]byte(line))
		require.NoError(t, err)
		r.run(t.Context(), &c)
	}
	assert.Equal(t, 2, opened)
	assert.Empty(t, r.closeShared(t.Context()))
}

// TestMain lets the test binary be the server that the stdio target runs.
func TestMain(m *testing.M) {
	if mode := os.Getenv("CONFORMANCE_FAKE_SERVER"); mode != "" {
		os.Exit(fakeServer(mode, os.Args[1:]))
	}
	os.Exit(m.Run())
}

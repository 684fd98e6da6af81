package conformance

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestCasesRunAgainstAFunction(t *testing.T) {
	sum := Run(t, func(t *testing.T) Target { return fakeTarget(t.TempDir()) }, nil, "testdata/runner.jsonl")
	assert.Equal(t, "9 passed, 0 failed, 0 skipped", sum.String())
}

func TestCasesAreSelectedAndLeftOut(t *testing.T) {
	t.Setenv("WISBOX_CASES", `^runner\.(errors|emptied)$`)
	sum := Run(t, func(t *testing.T) Target { return fakeTarget(t.TempDir()) }, &Options{Skip: func(c *Case) string {
		if c.ID == "runner.errors" {
			return "left out"
		}
		return ""
	}}, "testdata/runner.jsonl")
	assert.Equal(t, "1 passed, 0 failed, 1 skipped", sum.String())
}

// problemsOf runs one case on a target and returns its problems.
func problemsOf(t *testing.T, target Target, line string) string {
	t.Helper()
	c, err := parseCase([]byte(line))
	require.NoError(t, err)
	r := newRunner(t, target, 0)
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
		{"text that must not be in an error", `{"id":"x","tool":"read_file","args":{"file_path":"nope"},"expect":"error:not_found","also":["not_contains=no file"]}`, "holds no file"},
		{"two calls that succeed", `{"id":"x","tool":"ls","expect":"ok:any","repeat":2,"also":["exactly_one_ok"]}`, "exactly one must"},
		{"control byte", `{"id":"x","tool":"shell_execute","args":{"script":"printf '\\x7f'"},"expect":"ok:any","also":["no_raw_control"]}`, "raw control byte"},
		{"cut character", `{"id":"x","tool":"shell_execute","args":{"script":"printf '\\xc3'"},"expect":"ok:any","also":["valid_utf8"]}`, "cut character"},
		{"field over its length", `{"id":"x","tool":"write_file","args":{"file_path":"a","content":""},"expect":"ok:any","also":["field_max:nope=1"]}`, "nope"},
		{"field to keep", `{"id":"x","tool":"ls","expect":"ok:any","save":{"A":"nope"}}`, "no nope to keep"},
		{"progress", `{"id":"x","tool":"shell_execute","args":{"script":"echo begun"},"expect":"ok:any","progress":"^end"}`, `no progress matches "^end"; the last was "begun`},
		{"unknown placeholder", `{"id":"x","tool":"ls","args":{"a":"{{NOPE}}"},"expect":"ok:any"}`, "{{NOPE}}"},
		{"race that fails", `{"id":"x","steps":[{"sh":"true"}],"race":"exit 1"}`, "race: "},
		{"race that fails when it is ended", `{"id":"x","tool":"shell_execute","args":{"script":"until test -e on; do sleep 0.01; done"},"expect":"ok:any","race":"trap 'exit 1' TERM; touch on; while :; do sleep 0.1; done"}`, "race: "},
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

func TestAMachineThatStoodStillIsNoSlowProduct(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	line := `{"id":"x","tool":"shell_execute","args":{"script":"mkdir ` + once + ` 2>&- && sleep 0.6 || true"},"expect":"ok:exit_code=0","max_ms":500}`
	assert.Empty(t, problemsOf(t, fakeTarget(t.TempDir()), line))
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

// A second case with the same name would hide the first one in a report.
func TestCaseFilesAreInTheLanguageAndNamesAreUnique(t *testing.T) {
	files, err := Files(Dir("../../integration/testdata/cases"))
	require.NoError(t, err)
	in := map[string]string{}
	for _, file := range files {
		cases, err := Load(file)
		require.NoError(t, err)
		assert.NotEmpty(t, cases, file)
		for _, c := range cases {
			assert.Empty(t, in[c.ID], "%s: the name %s is taken", file, c.ID)
			in[c.ID] = file
		}
	}
}

func TestADirectoryWithoutCasesIsAnError(t *testing.T) {
	_, err := Files(t.TempDir())
	assert.ErrorContains(t, err, "no case files")
}

func TestASharedSessionIsReplacedAfterAProblem(t *testing.T) {
	opened := 0
	base := fakeTarget(t.TempDir())
	target := &InProcess{Start: func(ctx context.Context, opts OpenOptions) (*Local, error) {
		opened++
		return base.Start(ctx, opts)
	}}
	r := newRunner(t, target, 0)
	good, bad := `{"id":"x","tool":"ls","expect":"ok:any"}`, `{"id":"x","tool":"ls","expect":"failed:any"}`
	for _, line := range []string{good, good, bad, good} {
		c, err := parseCase([]byte(line))
		require.NoError(t, err)
		r.run(t.Context(), &c)
	}
	assert.Equal(t, 2, opened)
	assert.Empty(t, r.closeShared(t.Context()))
}

// TestMain turns the test binary into the server of the stdio target.
func TestMain(m *testing.M) {
	if mode := os.Getenv("CONFORMANCE_FAKE_SERVER"); mode != "" {
		os.Exit(fakeServer(mode, os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

package shelltool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

// poll runs shell_execute for a caller who prefers to poll after that time.
func (b *bench) poll(ctx context.Context, after time.Duration, args string) shelltool.ExecuteResult {
	b.t.Helper()
	res, err := b.tools.Call(tool.WithPolling(ctx, after), "shell_execute", json.RawMessage(args))
	require.NoError(b.t, err)
	return res.Value.(shelltool.ExecuteResult)
}

func TestAProgramThatEndsInTimeIsAnsweredAsEver(t *testing.T) {
	b := newBench(t)
	for _, args := range []string{
		`{"script":"cat; echo oops >&2; exit 3","stdin":"in"}`, `{"script":"seq 20000"}`, `{"script":"sleep 30","timeout":1}`, `{"script":"echo x","capture_output":false}`,
	} {
		want, _ := must[shelltool.ExecuteResult](b, "shell_execute", args)
		got := b.poll(t.Context(), time.Minute, args)
		for _, r := range []*shelltool.ExecuteResult{&want, &got} { // fields that differ between runs
			r.DurationMS, r.CPUMS, r.MaxRSSBytes, r.OutputID = 0, 0, 0, fmt.Sprint(r.OutputID != "")
		}
		assert.Equal(t, want, got, args)
	}
	list, _ := must[shelltool.ListResult](b, "process_list", `{}`)
	assert.Empty(t, list.Processes)
}

func TestAProgramThatRunsOnBecomesAProcess(t *testing.T) {
	b := newBench(t)
	got := b.poll(t.Context(), 200*time.Millisecond, `{"script":"echo begun; until [ -e go ]; do sleep 0.05; done; echo done; exit 3"}`)
	assert.EqualValues(t, "running", got.Status)
	assert.False(t, got.Failed())
	assert.Contains(t, got.Text(), got.ProcessID)
	out, r := b.readUntil(got.ProcessID, "begun\n")
	assert.Equal(t, "running", r.State)
	assert.Equal(t, "begun\n", out, "from the beginning")
	_, _ = must[shelltool.ExecuteResult](b, "shell_execute", `{"commands":["touch","go"]}`)
	out, r = b.readUntil(got.ProcessID, "")
	assert.Equal(t, "begun\ndone\n", out)
	assert.Equal(t, 3, *r.ExitCode)
}

func TestAProcessFromACallKeepsTheCallsTimeout(t *testing.T) {
	b := newBench(t)
	got := b.poll(t.Context(), 100*time.Millisecond, `{"commands":["sleep","600"],"timeout":2}`)
	_, r := b.readUntil(got.ProcessID, "")
	assert.Equal(t, "timed_out", r.State)
}

func TestACancelledCallLeavesNoProcess(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun := tool.WithProgress(ctx, func(string) { cancel() })
	got := b.poll(begun, time.Minute, `{"script":"echo begun; sleep 600"}`)
	assert.EqualValues(t, "cancelled", got.Status)
	assert.Zero(t, b.shell.Running())
}

func TestWhereTooManyProcessesRunACallWaitsForItsEnd(t *testing.T) {
	b := newBench(t, func(o *shelltool.Options) { o.MaxProcesses = 1 })
	b.start(`{"commands":["sleep","600"]}`)
	got := b.poll(t.Context(), time.Millisecond, `{"script":"sleep 0.3; echo end"}`)
	assert.Equal(t, "end\n", got.Stdout)
}

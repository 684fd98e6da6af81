package shelltool_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

func TestAProcessRunsOnAndIsReadFromWhereOneStopped(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"script":"echo one; read line; echo got $line >&2; sleep 600"}`)
	out, r := b.readUntil(id, "one\n")
	assert.Equal(t, "one\n", out)
	assert.Equal(t, "running", r.State)
	assert.Nil(t, r.ExitCode)
	_, _ = must[shelltool.WriteResult](b, "process_write", fmt.Sprintf(`{"process_id":%q,"data":"two\n"}`, id))
	next, err := b.shell.ReadProcess(context.Background(), shelltool.ReadParams{ProcessID: id, Offset: r.NextOffset, WaitSeconds: 10})
	require.NoError(t, err)
	assert.Equal(t, "got two\n", next.Output)
	assert.Equal(t, int64(4), next.Offset)
	again, err := b.shell.ReadProcess(context.Background(), shelltool.ReadParams{ProcessID: id})
	require.NoError(t, err)
	assert.Equal(t, "one\ngot two\n", again.Output)
}

func TestTheEndOfAProcessIsTold(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"script":"cat; exit 7","stdin":"first "}`)
	_, res := must[shelltool.WriteResult](b, "process_write", fmt.Sprintf(`{"process_id":%q,"data":"second","eof":true}`, id))
	assert.Contains(t, res.Text, "6 bytes")
	out, r := b.readUntil(id, "")
	assert.Equal(t, "first second", out)
	assert.Equal(t, "exited", r.State)
	assert.Equal(t, 7, *r.ExitCode)
	_, err := b.call("process_write", fmt.Sprintf(`{"process_id":%q,"data":"x"}`, id))
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	info, _ := must[shelltool.ProcessInfo](b, "process_signal", fmt.Sprintf(`{"process_id":%q,"signal":"KILL"}`, id))
	assert.Equal(t, "exited", info.State, "a signal after the end is no matter")
}

func TestProcessesAreListedInTheirOrder(t *testing.T) {
	b := newBench(t)
	_, res := must[shelltool.ListResult](b, "process_list", `{}`)
	assert.Equal(t, "no processes", res.Text)
	first, second := b.start(`{"commands":["sleep","600"]}`), b.start(`{"script":"sleep 600"}`)
	list, res := must[shelltool.ListResult](b, "process_list", `{}`)
	require.Len(t, list.Processes, 2)
	assert.Equal(t, first, list.Processes[0].ProcessID)
	assert.Equal(t, second, list.Processes[1].ProcessID)
	assert.Equal(t, []string{"sleep", "600"}, list.Processes[0].Command)
	assert.Equal(t, "/workspace", list.Processes[0].Cwd)
	assert.Contains(t, res.Text, second)
	assert.Equal(t, 2, b.shell.Running())
}

func TestSignals(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"script":"trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done"}`)
	b.readUntil(id, "ready")
	info, _ := must[shelltool.ProcessInfo](b, "process_signal", fmt.Sprintf(`{"process_id":%q,"signal":"USR1"}`, id))
	assert.Equal(t, "running", info.State)
	b.readUntil(id, "usr1")
	for _, bad := range []string{"NOSUCH", "SIGTERM", "9", "", "kill"} {
		_, err := b.call("process_signal", fmt.Sprintf(`{"process_id":%q,"signal":%q}`, id, bad))
		require.Equal(t, tool.Invalid, tool.KindOf(err), bad)
		assert.Equal(t, "signal", tool.AsError(err).Field)
	}
	info, _ = must[shelltool.ProcessInfo](b, "process_signal", fmt.Sprintf(`{"process_id":%q,"signal":"KILL"}`, id))
	assert.Equal(t, "signaled", info.State, "a kill is waited for")
	assert.Equal(t, "KILL", info.Signal)
	assert.Equal(t, 137, *info.ExitCode)
	assert.Zero(t, b.shell.Running())
}

func TestAWaitEndsWithItsTime(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"commands":["sleep","600"]}`)
	began := time.Now()
	r, err := b.shell.ReadProcess(context.Background(), shelltool.ReadParams{ProcessID: id, WaitSeconds: 0.2})
	require.NoError(t, err)
	assert.Empty(t, r.Output)
	assert.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
	assert.Equal(t, "running", r.State)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = b.shell.ReadProcess(ctx, shelltool.ReadParams{ProcessID: id, WaitSeconds: 60})
	assert.Equal(t, tool.Timeout, tool.KindOf(err))
	assert.Equal(t, 1, b.shell.Running(), "the end of a read is not the end of the process")
}

func TestTerminalsHaveASizeThatChanges(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"script":"stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done","tty":true,"cols":81,"rows":25}`)
	b.readUntil(id, "25 81\r\nready")
	_, _ = must[shelltool.ProcessInfo](b, "process_resize", fmt.Sprintf(`{"process_id":%q,"cols":132,"rows":50}`, id))
	b.readUntil(id, "50 132")
	plain := b.start(`{"commands":["sleep","600"]}`)
	_, err := b.call("process_resize", fmt.Sprintf(`{"process_id":%q,"cols":132,"rows":50}`, plain))
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	for _, bad := range []string{`"cols":0,"rows":1`, `"cols":1,"rows":1001`, `"cols":1`} {
		_, err := b.call("process_resize", fmt.Sprintf(`{"process_id":%q,%s}`, plain, bad))
		assert.Equal(t, tool.Invalid, tool.KindOf(err), bad)
	}
}

func TestBadReadsOfAProcessAreRefused(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"commands":["sleep","600"]}`)
	for name, args := range map[string]string{
		"process_read": `{"process_id":"nothere"}`, "process_write": `{"process_id":"nothere","data":"x"}`,
		"process_signal": `{"process_id":"nothere","signal":"KILL"}`, "process_resize": `{"process_id":"nothere","cols":1,"rows":1}`,
	} {
		_, err := b.call(name, args)
		assert.Equal(t, tool.NotFound, tool.KindOf(err), name)
		assert.Equal(t, "process_id", tool.AsError(err).Field)
	}
	for _, offset := range []int64{-1, 1, math.MaxInt64} {
		_, err := b.shell.ReadProcess(context.Background(), shelltool.ReadParams{ProcessID: id, Offset: offset})
		assert.Equal(t, tool.Invalid, tool.KindOf(err), offset)
	}
	_, err := b.shell.ReadProcess(context.Background(), shelltool.ReadParams{ProcessID: id, WaitSeconds: math.NaN()})
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	_, err = b.call("process_write", fmt.Sprintf(`{"process_id":%q,"data":%q}`, id, strings.Repeat("x", 48_001)))
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
	_, err = b.call("process_start", `{"script":"true","timeout":5}`)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

func TestAProgramThatDoesNotReadFillsItsInputAndNoMore(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"commands":["sleep","600"]}`)
	var err error
	for range 60 {
		if _, err = b.call("process_write", fmt.Sprintf(`{"process_id":%q,"data":%q}`, id, strings.Repeat("x", 48_000))); err != nil {
			break
		}
	}
	assert.Equal(t, tool.Limit, tool.KindOf(err))
}

func TestOnlySoManyProcessesRunAtOnce(t *testing.T) {
	b := newBench(t, func(o *shelltool.Options) { o.MaxProcesses = 3 })
	var wg sync.WaitGroup
	results := make(chan error, 8)
	for range 8 {
		wg.Go(func() {
			_, err := b.call("process_start", `{"commands":["sleep","600"]}`)
			results <- err
		})
	}
	wg.Wait()
	close(results)
	started := 0
	for err := range results {
		if err == nil {
			started++
		} else {
			assert.Equal(t, tool.Limit, tool.KindOf(err))
		}
	}
	assert.Equal(t, 3, started)
	assert.Equal(t, 3, b.shell.Running())
}

func TestEndedProcessesAreForgottenInTheirOrder(t *testing.T) {
	b := newBench(t)
	var ids []string
	for range 20 {
		id := b.start(`{"commands":["true"]}`)
		b.readUntil(id, "")
		ids = append(ids, id)
	}
	keeps := b.start(`{"commands":["sleep","600"]}`)
	list, _ := must[shelltool.ListResult](b, "process_list", `{}`)
	assert.Len(t, list.Processes, 17)
	assert.Equal(t, ids[4], list.Processes[0].ProcessID)
	assert.Equal(t, keeps, list.Processes[16].ProcessID)
}

func TestLongOutputKeepsItsNewestPartAndSaysWhatIsLost(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"script":"seq 1 1500000; echo end"}`)
	out, _ := b.readUntil(id, "end\n")
	assert.Contains(t, out, "\n1500000\nend\n")
	r, err := b.shell.ReadProcess(context.Background(), shelltool.ReadParams{ProcessID: id, Offset: 10})
	require.NoError(t, err)
	assert.Equal(t, r.OutputBytes-8<<20, r.Offset)
	assert.Equal(t, r.Offset-10, r.LostBytes)
	assert.True(t, r.Truncated)
	assert.Len(t, r.Output, 32<<10)
	assert.Contains(t, r.Text(), "no longer kept")
	entries, err := os.ReadDir(b.output)
	require.NoError(t, err)
	assert.Empty(t, entries, "the log has no name")
}

func TestStreamsOfAProcessDoNotSplitEachOthersCharacters(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"script":"for i in $(seq 50); do printf '\\xe2\\x82'; printf '\\xc3\\xa9' >&2; printf '\\xac'; done; printf '\\xc3'"}`)
	out, _ := b.readUntil(id, "")
	assert.Equal(t, 50, strings.Count(out, "€"))
	assert.Equal(t, 50, strings.Count(out, "é"))
	assert.Equal(t, 1, strings.Count(out, "\uFFFD"), "what never became a character is shown at the end")
}

func TestALostSandboxEndsItsProcesses(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"commands":["sleep","600"]}`)
	b.host.Lose(b.spec.ID)
	_, r := b.readUntil(id, "")
	assert.Equal(t, "sandbox_lost", r.State)
	assert.Equal(t, -1, *r.ExitCode)
}

func TestCloseEndsAllProcesses(t *testing.T) {
	b := newBench(t)
	id := b.start(`{"script":"trap '' TERM INT HUP; echo ready; while :; do sleep 0.05; done"}`)
	b.readUntil(id, "ready")
	waiting := make(chan error)
	go func() {
		_, err := b.shell.ReadProcess(context.Background(), shelltool.ReadParams{ProcessID: id, Offset: 6, WaitSeconds: 60})
		waiting <- err
	}()
	require.NoError(t, b.shell.Close())
	assert.Equal(t, tool.Closed, tool.KindOf(<-waiting))
	assert.Zero(t, b.shell.Running())
	list, err := b.shell.ListProcesses(context.Background(), shelltool.ListParams{})
	require.NoError(t, err)
	assert.Empty(t, list.Processes)
}

func TestAFailedStartLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.host.Lose(b.spec.ID)
	_, err := b.call("process_start", `{"commands":["true"]}`)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	list, _ := must[shelltool.ListResult](b, "process_list", `{}`)
	assert.Empty(t, list.Processes)
}

package shelltool_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

// left is a sandbox with programs of another Shell.
type left struct {
	mu      sync.Mutex
	found   []sandbox.DetachedProcess
	refuse  map[uint64]error
	looks   int
	release int // the look from which held programs are free
	took    []uint64
}

func (l *left) Detached(context.Context) ([]sandbox.DetachedProcess, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	list := append([]sandbox.DetachedProcess(nil), l.found...)
	for i := range list {
		list[i].Held = list[i].Held && l.looks < l.release
	}
	return list, nil
}

func (l *left) Attach(_ context.Context, id uint64, cmd sandbox.Cmd) (sandbox.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refuse[id]; err != nil {
		return nil, err
	}
	l.took = append(l.took, id)
	l.found = slices.DeleteFunc(l.found, func(p sandbox.DetachedProcess) bool { return p.ID == id })
	if cmd.Stdout != nil {
		_, _ = io.WriteString(cmd.Stdout, "rest")
	}
	return endedProcess(id), nil
}

// endedProcess has exited with 3.
type endedProcess uint64

func (p endedProcess) ID() uint64 { return uint64(p) }
func (endedProcess) Wait(context.Context) (sandbox.Result, error) {
	return sandbox.Result{Status: sandbox.StatusExited, ExitCode: 3}, nil
}
func (endedProcess) Signal(string) error          { return nil }
func (endedProcess) Kill() error                  { return nil }
func (endedProcess) Resize(sandbox.WinSize) error { return nil }

// TestProcessesThatWereLeftAreTakenOver under their ids, and whatever their labels say.
func TestProcessesThatWereLeftAreTakenOver(t *testing.T) {
	const id = "01jzx3k9v5m2q8w4r7t1y6v0pd"
	proper := `{"id":"` + id + `","command":["make","-j2"],"cwd":"/workspace/x","tty":{"cols":80,"rows":24},"started":"2026-01-02T03:04:05Z","origin":{"call":"c1","caller":"ann"}}`
	var mu sync.Mutex
	ends := map[string]shelltool.Origin{}
	type key struct{}
	b := newBench(t, func(o *shelltool.Options) {
		o.Ended = func(begun context.Context, info shelltool.ProcessInfo, _ sandbox.Result) {
			mu.Lock()
			defer mu.Unlock()
			ends[info.ProcessID] = begun.Value(key{}).(shelltool.Origin)
		}
	})
	from := &left{release: 3, refuse: map[uint64]error{5: sandbox.ErrExists, 6: sandbox.ErrNotFound}, found: []sandbox.DetachedProcess{
		{ID: 1, Label: proper, Held: true, Read: [2]int64{90, 10}},
		{ID: 2, Label: `{"id":"../../../etc/passwd","command":["x"]}`, Argv: []string{"sleep", "\x1b[31m"}, Age: time.Hour},
		{ID: 3, Label: "\x00 no JSON", Argv: []string{strings.Repeat("a", 4000)}},
		{ID: 4, Argv: nil, Read: [2]int64{-5, -5}},
		{ID: 5, Label: proper}, {ID: 6, Label: proper},
	}}
	n, err := b.shell.Reclaim(t.Context(), from, func(o shelltool.Origin) context.Context { return context.WithValue(t.Context(), key{}, o) })
	require.NoError(t, err)
	assert.Equal(t, 4, n)
	assert.ElementsMatch(t, []uint64{1, 2, 3, 4}, from.took, "each once, also who was held a moment longer")

	list, _ := must[shelltool.ListResult](b, "process_list", `{}`)
	require.Len(t, list.Processes, 4)
	first := list.Processes[0]
	assert.Equal(t, id, first.ProcessID)
	assert.Equal(t, []string{"make", "-j2"}, first.Command)
	assert.Equal(t, "/workspace/x", first.Cwd)
	assert.True(t, first.TTY)
	assert.Equal(t, "2026-01-02T03:04:05.000Z", first.StartedAt)
	for _, p := range list.Processes {
		out, r := b.readUntil(p.ProcessID, "")
		assert.Equal(t, "rest", out)
		assert.Equal(t, 3, *r.ExitCode)
		assert.NotContains(t, p.ProcessID, "/")
		assert.Less(t, len(asJSON(t, p)), 1000)
	}
	_, r := b.readUntil(id, "")
	assert.EqualValues(t, 104, r.OutputBytes)
	assert.EqualValues(t, 100, r.DroppedBytes)
	mu.Lock()
	defer mu.Unlock()
	assert.Len(t, ends, 4)
	assert.Equal(t, shelltool.Origin{Call: "c1", Caller: "ann"}, ends[id])
}

// TestALabelIsShortEnough for its sandbox, whatever is started.
func TestALabelIsShortEnough(t *testing.T) {
	var got sandbox.Cmd
	b := newBench(t, func(o *shelltool.Options) {
		o.Runner = func(context.Context) (sandbox.Runner, error) { return starts(func(cmd sandbox.Cmd) { got = cmd }), nil }
		o.Outlives = func() bool { return true }
		o.Origin = func(context.Context) shelltool.Origin { return shelltool.Origin{Call: "c"} }
	})
	args := make([]string, 100)
	for i := range args {
		args[i] = strings.Repeat("\x01", 100)
	}
	info, err := b.shell.Start(t.Context(), sandbox.Cmd{Argv: args, Dir: "/" + strings.Repeat("\x01", 4000), Timeout: time.Hour}, shelltool.StartOptions{})
	require.NoError(t, err)
	assert.Equal(t, sandbox.LifetimeDetached, got.Lifetime)
	assert.LessOrEqual(t, len(got.Label), sandbox.MaxLabel)
	var l struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(got.Label), &l))
	assert.Equal(t, info.ProcessID, l.ID)
}

// starts is a runner whose programs have ended.
type starts func(sandbox.Cmd)

func (s starts) Run(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	return sandbox.Result{}, sandbox.ErrUnsupported
}

func (s starts) Start(_ context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	s(cmd)
	return endedProcess(0), nil
}

// TestProcessesThatAreNotKnownYetAreNotMissing.
func TestProcessesThatAreNotKnownYetAreNotMissing(t *testing.T) {
	unknown := tool.Errorf(tool.Unavailable, "not yet")
	var err error
	b := newBench(t, func(o *shelltool.Options) { o.Known = func() error { return err } })
	err = unknown
	for name, args := range map[string]string{"process_list": `{}`, "process_read": `{"process_id":"x"}`, "process_signal": `{"process_id":"x","signal":"TERM"}`} {
		_, got := b.tools.Call(t.Context(), name, []byte(args))
		assert.ErrorContains(t, got, "not yet", name)
	}
	_, got := b.shell.Output(t.Context(), "x", shelltool.OutputOptions{})
	require.ErrorContains(t, got, "not yet")
	err = nil
	_, got = b.tools.Call(t.Context(), "process_list", []byte(`{}`))
	require.NoError(t, got)
}

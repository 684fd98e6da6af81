package wisbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager returns a Manager over a backend without isolation.
func manager(t *testing.T, opts wisbox.Options) (*wisbox.Manager, *sandboxtest.Host) {
	t.Helper()
	host := sandboxtest.NewHost()
	if opts.Backend == nil {
		opts.Backend = host
	}
	if opts.CacheDir == "" {
		opts.CacheDir = filepath.Join(t.TempDir(), "state")
	}
	m, err := wisbox.NewManager(t.Context(), &opts)
	require.NoError(t, err)
	t.Cleanup(func() { // kept sessions' sandboxes stay
		require.NoError(t, m.Close())
		left, err := host.List(context.Background())
		require.NoError(t, err)
		for _, info := range left {
			require.NoError(t, host.Remove(context.Background(), info.ID))
		}
	})
	return m, host
}

func call(t *testing.T, s *wisbox.Session, name, args string) (*tool.Result, error) {
	t.Helper()
	return s.Call(t.Context(), name, json.RawMessage(args))
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

// text returns the JSON of a call's result.
func text(t *testing.T, s *wisbox.Session, name, args string) string {
	t.Helper()
	res, err := call(t, s, name, args)
	require.NoError(t, err)
	raw, err := json.Marshal(res.Value)
	require.NoError(t, err)
	return string(raw)
}

func TestASessionGoesWithItsFilesWhenItIsClosed(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	text(t, s, "write_file", `{"file_path":"a/b","content":"x"}`)
	assert.Contains(t, text(t, s, "shell_execute", `{"commands":["cat","a/b"]}`), `"stdout":"x"`)
	require.NoError(t, s.Close(t.Context()))
	entries, err := m.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, entries)
	assert.NoDirExists(t, s.WorkspacePath())
	list, err := host.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, list)
	_, err = call(t, s, "ls", "{}")
	assert.Equal(t, tool.Closed, tool.KindOf(err))
	require.NoError(t, s.Close(t.Context()), "a second close does nothing")
}

func TestBadOptionsNameTheField(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	for field, opts := range map[string]wisbox.SessionOptions{
		"name":   {Name: "No Such"},
		"memory": {Limits: sandbox.Limits{Memory: 1}},
		"cpus":   {Limits: sandbox.Limits{CPUs: -1}},
		"env":    {Env: map[string]string{"A=B": "c"}},
	} {
		_, err := m.Open(t.Context(), &opts)
		e := tool.AsError(err)
		require.NotNil(t, e, field)
		assert.Equal(t, tool.Invalid, e.Kind)
		assert.Equal(t, field, e.Field)
	}
	entries, err := m.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, entries, "nothing was made")
}

func TestMountsTellWhatTheyLeftOut(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	src := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "a"), []byte("x"), 0o600))
	require.NoError(t, os.Symlink("a", filepath.Join(src, "kept")))
	require.NoError(t, os.Symlink("/a", filepath.Join(src, "link")))
	var report *hostmount.Report
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{
		Mounts: []hostmount.Mount{{HostPath: src, MountPath: "."}}, AllowedRoots: []string{src},
		OnMounted: func(r *hostmount.Report) { report = r },
	})
	require.NoError(t, err)
	defer s.Close(t.Context())
	require.NotNil(t, report)
	assert.EqualValues(t, 2, report.Files)
	assert.Equal(t, map[hostmount.Reason]int64{hostmount.Link: 1}, report.Mounts[0].Skipped)
}

func TestAFailedMountLeavesNothing(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	outside := t.TempDir()
	for _, roots := range [][]string{nil, {t.TempDir()}} {
		_, err := m.Open(t.Context(), &wisbox.SessionOptions{
			Name: "box", Mounts: []hostmount.Mount{{HostPath: outside, MountPath: "p"}}, AllowedRoots: roots,
		})
		require.Error(t, err)
		assert.NotEqual(t, tool.Internal, tool.KindOf(err))
	}
	entries, err := m.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestEveryCallIsAnEventWithoutContent(t *testing.T) {
	var mu sync.Mutex
	var events []wisbox.Event
	cache := filepath.Join(t.TempDir(), "state")
	m, _ := manager(t, wisbox.Options{CacheDir: cache, OnEvent: func(e wisbox.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	text(t, s, "write_file", `{"file_path":"f","content":"secret words","mode":"create"}`)
	_, err = call(t, s, "read_file", `{"file_path":"nothere"}`)
	require.Error(t, err)
	_, err = call(t, s, "shell_execute", `{"commands":["sleep","60"],"timeout":1}`)
	require.NoError(t, err)
	require.Len(t, events, 3)
	assert.Equal(t, "write_file f create ok", strings.Join([]string{events[0].Tool, events[0].Path, events[0].Mode, events[0].Outcome}, " "))
	assert.Equal(t, "not_found", events[1].Outcome)
	assert.Equal(t, "failed", events[2].Outcome)
	assert.Equal(t, `"[14 bytes]"`, mustJSON(t, events[0].Args["content"]))
	assert.Equal(t, []tool.Change{{Path: "f", SHA256: "90e132a8e71a48078f8c7dd31c62b6518c497b07863ec1e70403b906e5e202d5"}}, events[0].Changes)
	assert.JSONEq(t, `{"commands":["sleep","60"],"timeout":1}`, mustJSON(t, events[2].Args))
	for _, e := range events {
		assert.Contains(t, e.Caller, "[")
		assert.Equal(t, s.ID(), e.Session)
		assert.NotEmpty(t, e.Call)
		assert.Positive(t, e.Duration)
	}
	log, err := os.ReadFile(filepath.Join(cache, "sessions", s.ID(), "log.jsonl"))
	require.NoError(t, err)
	assert.Equal(t, 3, strings.Count(string(log), "\n"))
	assert.NotContains(t, string(log), "secret words")
}

func TestTheLogSaysWhoCalledAndWhatChanged(t *testing.T) {
	var last wisbox.Event
	m, _ := manager(t, wisbox.Options{OnEvent: func(e wisbox.Event) { last = e }})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Profile: "anthropic"})
	require.NoError(t, err)
	defer s.Close(t.Context())
	ctx := wisbox.WithCaller(t.Context(), "ann")
	_, err = s.Call(ctx, "str_replace_based_edit_tool", json.RawMessage(`{"command":"create","path":"/workspace/a","file_text":"x"}`))
	require.NoError(t, err)
	assert.Equal(t, "ann", last.Caller)
	require.Len(t, last.Changes, 1, "a profile's tools tell what they changed")
	assert.Equal(t, "a", last.Changes[0].Path)
	assert.Equal(t, `"[3 bytes]"`, mustJSON(t, last.Args["file_text"]))

	_, err = s.Run(ctx, sandbox.Cmd{Argv: []string{"true", strings.Repeat("x", 1000)}})
	require.NoError(t, err)
	assert.Len(t, last.Args["command"].([]string)[1], 300)

	long := strings.Repeat("y", 1000)
	_, _ = s.Call(ctx, "bash", json.RawMessage(`{"command":"echo `+long+`","n":1,"secret":{"a":"b"}}`))
	assert.Len(t, last.Args["command"].(string), 300+len("…"))
	assert.Equal(t, `"[9 bytes]"`, mustJSON(t, last.Args["secret"]))
}

func TestALostSandboxIsMadeAgainOverTheSameFiles(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	text(t, s, "shell_execute", `{"script":"echo kept > f"}`)
	host.Lose(s.ID())
	assert.Contains(t, text(t, s, "shell_execute", `{"commands":["cat","f"]}`), `kept`)
}

func TestAProgramWhoseSandboxIsLostSaysWhatWentWithIt(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "60"}})
	require.NoError(t, err)
	host.Lose(s.ID())
	res, err := p.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusSandboxLost, res.Status)
	require.Len(t, res.Notices, 1)
	assert.Contains(t, res.Notices[0], "/tmp")
}

func TestTheFirstProgramsOfASessionShareOneSandbox(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := s.Run(context.Background(), sandbox.Cmd{Argv: []string{"true"}})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	list, err := host.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

// overtaken is a backend on which another process creates each sandbox between this process's look
// for it and its own attempt.
type overtaken struct{ sandbox.Backend }

func (o overtaken) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := o.Backend.Open(ctx, spec)
	if errors.Is(err, sandbox.ErrNotFound) {
		if _, made := o.Backend.Create(ctx, spec); made != nil {
			return nil, made
		}
	}
	return sb, err
}

func TestASandboxThatAnotherOwnerMakesMeanwhileIsUsed(t *testing.T) {
	host := sandboxtest.NewHost()
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{Backend: overtaken{host}, CacheDir: filepath.Join(t.TempDir(), "state")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	list, err := host.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

func TestClosingEndsTheCallsInFlight(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	begun := &signalWriter{seen: make(chan struct{})}
	done := make(chan sandbox.Result, 1)
	go func() {
		res, _ := s.Run(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo begun; sleep 600"}, Stdout: begun})
		done <- res
	}()
	<-begun.seen
	require.NoError(t, s.Close(t.Context()))
	assert.Equal(t, sandbox.StatusCancelled, (<-done).Status)
}

// signalWriter reports each write.
type signalWriter struct {
	seen chan struct{}
	once sync.Once
}

func (w *signalWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.seen) })
	return len(p), nil
}

func TestAKeptSessionIsFoundAgainWithItsSettings(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "state")
	m, host := manager(t, wisbox.Options{CacheDir: cache})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, Env: map[string]string{"A": "b"}, ReadBeforeWrite: true})
	require.NoError(t, err)
	text(t, s, "shell_execute", `{"script":"echo 1 > f"}`)
	require.NoError(t, s.Close(t.Context()))

	again, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: cache, Backend: host})
	require.NoError(t, err)
	defer again.Close()
	s, err = again.Attach(t.Context(), "box")
	require.NoError(t, err)
	assert.Contains(t, text(t, s, "shell_execute", `{"script":"echo $A"}`), `"stdout":"b\n"`)
	_, err = call(t, s, "edit_file", `{"file_path":"f","old_string":"1","new_string":"2"}`)
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, again.Remove(t.Context(), "box"))
	_, err = again.Attach(t.Context(), "box")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
}

func TestContainersWhoseSessionIsGoneAreSwept(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	workspace := t.TempDir()
	_, err := host.Create(t.Context(), sandbox.Spec{ID: "orphan", Image: "x", Workspace: workspace})
	require.NoError(t, err)
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	swept, err := m.Prune(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, swept, 1)
	assert.Equal(t, "orphan", swept[0].ID)
	_, err = m.Prune(t.Context(), false)
	require.NoError(t, err)
	list, err := host.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, list)
	text(t, s, "ls", "{}")
}

func TestToolsAreListedWithoutASession(t *testing.T) {
	names := map[string]bool{}
	for _, tl := range wisbox.ToolSet().Tools() {
		names[tl.Name] = true
		assert.NotEmpty(t, tl.Description, tl.Name)
		assert.NotNil(t, tl.Input, tl.Name)
		assert.NotNil(t, tl.Output, tl.Name)
	}
	for name := range strings.FieldsSeq("ls read_file write_file edit_file glob grep rm shell_execute read_output process_start process_list process_read process_write process_signal process_resize evaluate_python") {
		assert.True(t, names[name], name)
	}
	vfs, err := wisbox.ToolProfile("vfs")
	require.NoError(t, err)
	_, ok := vfs.Lookup("delete_file")
	assert.True(t, ok)
	_, err = wisbox.ToolProfile("nosuch")
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

func TestEveryParameterOfEveryToolIsDescribed(t *testing.T) {
	for _, name := range profile.Names() {
		set, err := wisbox.ToolProfile(name)
		require.NoError(t, err)
		for _, one := range set.Tools() {
			described(t, one.Name, one.Input)
		}
	}
}

func described(t *testing.T, where string, s *jsonschema.Schema) {
	t.Helper()
	for name, p := range s.Properties {
		assert.NotEmpty(t, p.Description, where+"."+name)
		described(t, where+"."+name, p)
		if p.Items != nil {
			described(t, where+"."+name, p.Items)
		}
	}
}

func TestTheGuidanceNamesOnlyToolsThatAreThere(t *testing.T) {
	for _, name := range profile.Names() {
		set, err := wisbox.ToolProfile(name)
		require.NoError(t, err)
		for _, word := range regexp.MustCompile(`[a-z_-]+`).FindAllString(wisbox.Guidance(name), -1) {
			if _, isTool := wisbox.ToolSet().Lookup(word); isTool {
				_, there := set.Lookup(word)
				assert.True(t, there, "%s of the profile %s", word, name)
			}
		}
	}
}

func TestTheGuidanceOfASessionShowsItsMountsAndSettings(t *testing.T) {
	host := t.TempDir()
	for i := range 25 {
		require.NoError(t, os.WriteFile(filepath.Join(host, fmt.Sprintf("f%02d", i)), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(host, "d"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(host, "d", "x"), nil, 0o600))
	s := session(t, wisbox.SessionOptions{
		Mounts:       []hostmount.Mount{{HostPath: host, MountPath: "p"}, {HostPath: filepath.Join(host, "d"), MountPath: "gone"}, {HostPath: "d"}},
		AllowedRoots: []string{host}, AutoSnapshot: true,
	})
	text(t, s, "rm", `{"path":"gone"}`)
	require.NoError(t, os.WriteFile(filepath.Join(s.WorkspacePath(), "p", "a`ignore\n"), nil, 0o600))
	g, err := s.Guidance()
	require.NoError(t, err)
	assert.Contains(t, g, "- `p`: `a\\x60ignore\\n`, `d/`, `f00`")
	assert.Contains(t, g, "`f17` and more\n", "20 entries")
	assert.Contains(t, g, "- `gone`: not there any more\n")
	assert.Contains(t, g, "- `d`: `x`\n", "where a mount without a path went")
	assert.Contains(t, g, "can be undone")
	for _, engine := range []string{"shell_execute", `sandbox "container"`, `sandbox "wasm"`, "Common Lisp", "snapshot_create", "workspace_digest", "context_op"} {
		assert.Contains(t, g, engine)
	}
	assert.NotContains(t, g, host, "no path of the host")
}

// held starts a holder for a kept session and returns a client of it.
func held(t *testing.T, idle time.Duration) (client *wisbox.Session, m *wisbox.Manager, ended <-chan error) {
	t.Helper()
	return heldWith(t, idle, wisbox.SessionOptions{})
}

func heldWith(t *testing.T, idle time.Duration, so wisbox.SessionOptions) (client *wisbox.Session, m *wisbox.Manager, ended <-chan error) {
	t.Helper()
	return heldBy(t, idle, so, wisbox.Options{})
}

func heldBy(t *testing.T, idle time.Duration, so wisbox.SessionOptions, holding wisbox.Options) (client *wisbox.Session, m *wisbox.Manager, ended <-chan error) {
	t.Helper()
	if holding.CacheDir == "" {
		holding.CacheDir = filepath.Join(t.TempDir(), "state")
	}
	cache := holding.CacheDir
	holder, host := manager(t, holding)
	so.Name, so.Kept = "box", true
	s, err := holder.Open(t.Context(), &so)
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))

	done := holdFor(t, holder, "box", idle)
	opts := &wisbox.Options{CacheDir: cache, Backend: host, Holder: []string{"/bin/false"}, Tools: holding.Tools}
	m, err = wisbox.NewManager(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	client, err = m.Attach(t.Context(), "box")
	require.NoError(t, err)
	return client, m, done
}

// holderFile returns the path of a file of the holder of session box.
func holderFile(m *wisbox.Manager, name string) string {
	return filepath.Join(m.CacheDir(), "sessions", "box", name)
}

// holdFor makes this process hold a session until the test ends.
func holdFor(t *testing.T, holder *wisbox.Manager, name string, idle time.Duration) <-chan error {
	t.Helper()
	ready, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		done <- holder.Hold(ctx, name, idle, func() { close(ready) })
	}()
	t.Cleanup(func() { // the holder must release the session before its directory is removed
		cancel()
		<-stopped
	})
	select {
	case <-ready:
	case err := <-done:
		t.Fatal("no holder: ", err)
	}
	return done
}

// slow is a backend whose sandboxes are slow to remove.
type slow struct {
	sandbox.Backend
	once        sync.Once
	going, gone chan struct{} // closed when the first removal begins, and when it may go on
}

func (s *slow) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := s.Backend.Create(ctx, spec)
	return slowSandbox{sb, s}, err
}

type slowSandbox struct {
	sandbox.Sandbox
	*slow
}

func (s slowSandbox) Close(ctx context.Context) error {
	s.once.Do(func() { close(s.going) })
	select {
	case <-s.gone:
	case <-ctx.Done():
	}
	return s.Sandbox.Close(ctx)
}

func TestAClientThatComesWhileAnIdleHolderEndsIsServed(t *testing.T) {
	b := &slow{Backend: sandboxtest.NewHost(), going: make(chan struct{}), gone: make(chan struct{})}
	s, _, ended := heldBy(t, time.Second, wisbox.SessionOptions{}, wisbox.Options{Backend: b})
	text(t, s, "shell_execute", `{"commands":["true"]}`)
	<-b.going
	served := make(chan error, 1)
	go func() {
		_, err := s.Call(t.Context(), "shell_execute", json.RawMessage(`{"commands":["true"]}`))
		served <- err
	}()
	close(b.gone)
	assert.NoError(t, <-served)
	assert.NoError(t, <-ended, "idle again")
}

// TestAHolderEndsThoughAClientDoesNot has one client that reads no output, as behind a pager, and
// one that sends nothing.
func TestAHolderEndsThoughAClientDoesNot(t *testing.T) {
	s, m, ended := held(t, time.Minute)
	screen, out := io.Pipe()
	defer screen.Close()
	_, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"yes"}, Stdout: out})
	require.NoError(t, err)
	_, err = screen.Read(make([]byte, 1)) // and no more
	require.NoError(t, err)
	silent, err := m.Holders().Looker("box").Dial(t.Context())
	require.NoError(t, err)
	defer silent.Close()

	ctx, cancel := context.WithCancel(t.Context())
	removed := make(chan error, 1)
	go func() { removed <- m.Remove(ctx, "box") }()
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(20 * time.Second):
		assert.Fail(t, "the holder stays")
	}
	cancel()
	assert.Error(t, <-removed, "the client has the session open")
}

func TestClientsWorkThroughTheHolder(t *testing.T) {
	s, _, _ := held(t, time.Minute)
	text(t, s, "write_file", `{"file_path":"f","content":"x"}`)
	assert.Contains(t, text(t, s, "read_file", `{"file_path":"f"}`), `"content":"x"`)
	_, err := call(t, s, "read_file", `{"file_path":"../x"}`)
	e := tool.AsError(err)
	assert.Equal(t, "invalid file_path", string(e.Kind)+" "+e.Field)
	started := text(t, s, "process_start", `{"script":"echo begun; sleep 600"}`)
	assert.Contains(t, started, "process_id")
	assert.Contains(t, text(t, s, "process_list", `{}`), "running")
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.NotNil(t, in.Sandbox)
}

// The program waits until its output was reported, so progress must come while it runs.
func TestProgressComesThroughTheHolder(t *testing.T) {
	s, _, _ := held(t, time.Minute)
	told := make(chan string, 1000)
	ctx := tool.WithProgress(t.Context(), func(text string) { told <- text })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := s.Call(ctx, "shell_execute", json.RawMessage(`{"script":"echo begun; until [ -e go ]; do sleep 0.05; done"}`))
		assert.NoError(t, err)
	}()
	assert.Equal(t, "begun\n", <-told)
	text(t, s, "write_file", `{"file_path":"go","content":""}`)
	<-ended
}

func TestACallThroughTheHolderCanBecomeAProcess(t *testing.T) {
	s, _, _ := held(t, time.Minute)
	ctx := tool.WithPolling(t.Context(), 100*time.Millisecond)
	res, err := s.Call(ctx, "shell_execute", json.RawMessage(`{"commands":["sleep","600"]}`))
	require.NoError(t, err)
	var r struct {
		Status    string
		ProcessID string `json:"process_id"`
	}
	raw, err := json.Marshal(res.Value)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &r))
	assert.Equal(t, "running", r.Status)
	assert.Contains(t, text(t, s, "process_list", `{}`), r.ProcessID)
}

func TestStreamsGoThroughTheHolderWhole(t *testing.T) {
	s, _, _ := held(t, time.Minute)
	sent := bytes.Repeat([]byte("0123456789abcde\n"), 200_000)
	var out, errs bytes.Buffer
	res, err := s.Run(t.Context(), sandbox.Cmd{
		Argv: []string{"sh", "-c", "cat; echo err >&2; exit 3"}, Stdin: bytes.NewReader(sent), Stdout: &out, Stderr: &errs,
	})
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	assert.Equal(t, len(sent), out.Len())
	assert.True(t, bytes.Equal(sent, out.Bytes()))
	assert.Equal(t, "err\n", errs.String())
}

func TestInputThatNobodyReadsBlocksNothing(t *testing.T) {
	s, _, _ := held(t, time.Minute)
	endless, stop := io.Pipe()
	defer stop.Close()
	go func() {
		for chunk := bytes.Repeat([]byte("x"), 1<<16); ; {
			if _, err := stop.Write(chunk); err != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	begun := &signalWriter{seen: make(chan struct{})}
	done := make(chan sandbox.Result, 1)
	go func() {
		res, _ := s.Run(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo begun; sleep 600"}, Stdin: endless, Stdout: begun})
		done <- res
	}()
	<-begun.seen
	cancel()
	assert.Equal(t, sandbox.StatusCancelled, (<-done).Status)
}

func TestSignalsReachAProgramInTheHolder(t *testing.T) {
	s, _, _ := held(t, time.Minute)
	begun := &signalWriter{seen: make(chan struct{})}
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "trap 'exit 9' USR1; echo begun; while :; do sleep 0.05; done"}, Stdout: begun})
	require.NoError(t, err)
	<-begun.seen
	require.NoError(t, p.Signal("USR1"))
	res, err := p.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 9, res.ExitCode)
	require.NoError(t, p.Signal("USR1"), "an ended program takes no signal, and that is not an error")
}

func TestRemovingASessionEndsItsHolder(t *testing.T) {
	s, m, ended := held(t, time.Minute)
	text(t, s, "process_start", `{"script":"sleep 600"}`)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, m.Remove(t.Context(), "box"))
	assert.NoError(t, <-ended)
}

// TestRemovingASessionEndsAHolderThatStarts: while the holder waits for one that is ending, it must not have the session
// open.
func TestRemovingASessionEndsAHolderThatStarts(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	ends := flock.New(holderFile(m, "hold.lock"))
	require.NoError(t, ends.Lock())
	ended := make(chan error, 1)
	go func() { ended <- m.Hold(t.Context(), "box", time.Minute, func() {}) }()
	time.Sleep(50 * time.Millisecond) // for the start
	time.AfterFunc(50*time.Millisecond, func() { assert.NoError(t, ends.Close()) })
	require.NoError(t, m.Remove(t.Context(), "box"))
	if err := <-ended; err != nil {
		assert.Equal(t, tool.NotFound, tool.KindOf(err), err)
	}
}

// removal is a backend that calls before before it removes a sandbox.
type removal struct {
	sandbox.Backend
	before func()
}

func (r removal) Remove(ctx context.Context, id string) error {
	r.before()
	return r.Backend.Remove(ctx, id)
}

// TestNoHolderStartsDuringARemoval: it would wait for a session that is gone.
func TestNoHolderStartsDuringARemoval(t *testing.T) {
	var m *wisbox.Manager
	var free []bool
	m, _ = manager(t, wisbox.Options{Backend: removal{sandboxtest.NewHost(), func() {
		lock := flock.New(holderFile(m, "hold.lock"))
		ok, err := lock.TryLock()
		assert.NoError(t, errors.Join(err, lock.Close()))
		free = append(free, ok)
	}}})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, m.Remove(t.Context(), "box"))
	assert.Equal(t, []bool{false}, free)
	err = m.Hold(t.Context(), "box", 0, func() { t.Error("there is a holder") })
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
}

func TestAHolderEndsWhenNobodyNeedsIt(t *testing.T) {
	s, _, ended := held(t, 300*time.Millisecond)
	text(t, s, "ls", `{}`)
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the holder stays")
	}
	_, err := call(t, s, "ls", `{}`)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err), "this test's holder command starts none")
}

func TestASecondHolderIsBusy(t *testing.T) {
	_, m, _ := held(t, time.Minute)
	err := m.Hold(t.Context(), "box", 0, func() { t.Error("there are two holders") })
	assert.Equal(t, tool.Busy, tool.KindOf(err))
}

func TestThePoolGivesReadyContainers(t *testing.T) {
	m, host := manager(t, wisbox.Options{Pool: wisbox.PoolOptions{Min: 2, Max: 3}})
	running := func() int {
		list, err := host.List(t.Context())
		require.NoError(t, err)
		return len(list)
	}
	require.Eventually(t, func() bool { return m.Stats().Pool.Ready == 2 }, 20*time.Second, 10*time.Millisecond, "the pool fills")
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.NotNil(t, in.Sandbox, "the session had its container before its first program")
	require.Eventually(t, func() bool { return running() == 3 }, 20*time.Second, 10*time.Millisecond, "the pool fills again")

	other, err := m.Open(t.Context(), &wisbox.SessionOptions{Env: map[string]string{"A": "b"}})
	require.NoError(t, err)
	defer other.Close(t.Context())
	in, err = other.Inspect(t.Context())
	require.NoError(t, err)
	assert.Nil(t, in.Sandbox, "a session of another kind takes none")
}

func TestThePoolDrainsOnClose(t *testing.T) {
	host := sandboxtest.NewHost()
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: filepath.Join(t.TempDir(), "s"), Backend: host, Pool: wisbox.PoolOptions{Min: 2}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		list, _ := host.List(t.Context())
		return len(list) > 0
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, m.Close())
	list, err := host.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, list)
}

// losing is a backend whose sandboxes are lost while they are created.
type losing struct {
	sandbox.Backend
	times, tries atomic.Int32
}

func (l *losing) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if l.tries.Add(1) <= l.times.Load() {
		return nil, fmt.Errorf("its first program was killed: %w", sandbox.ErrLost)
	}
	return l.Backend.Create(ctx, spec)
}

func TestASandboxThatIsLostWhileItIsMadeIsMadeAgain(t *testing.T) {
	for times, tries := range map[int32]int32{1: 2, 2: 3, 9: 3} {
		b := &losing{Backend: sandboxtest.NewHost()}
		b.times.Store(times)
		m, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: filepath.Join(t.TempDir(), "state"), Backend: b})
		require.NoError(t, err)
		s, err := m.Open(t.Context(), nil)
		require.NoError(t, err)
		_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		assert.Equal(t, tries, b.tries.Load())
		if times < tries {
			assert.NoError(t, err)
		} else {
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
		}
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, m.Close())
	}
}

// deaf is a backend that doesn't list its containers.
type deaf struct{ *sandboxtest.Host }

func (deaf) List(context.Context) ([]sandbox.Info, error) {
	return nil, fmt.Errorf("%w: no podman here", sandbox.ErrUnavailable)
}

func TestASessionWithAContainerKeepsItsName(t *testing.T) {
	m, host := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	text(t, s, "shell_execute", `{"script":"echo mine > f"}`)
	busy := func(why string) {
		t.Helper()
		err := m.Rename(t.Context(), "box", "lab")
		assert.Equal(t, tool.Busy, tool.KindOf(err), "%s: %v", why, err)
		assert.ErrorContains(t, err, "stop it first: wisbox stop box")
	}
	busy("a handle")
	require.NoError(t, m.Stop(t.Context(), "box"))
	all, err := host.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 1, "another client's container isn't taken away")
	require.NoError(t, s.Close(t.Context()))
	busy("a container without a handle")
	require.NoError(t, m.Stop(t.Context(), "box"))
	require.NoError(t, m.Rename(t.Context(), "box", "lab"))

	for name, want := range map[string]string{"lab": "mine", "box": "none"} {
		s, err := m.Attach(t.Context(), name)
		if name == "box" {
			s, err = m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
		}
		require.NoError(t, err)
		assert.Contains(t, text(t, s, "shell_execute", `{"script":"cat f 2>/dev/null || echo none"}`), want)
		require.NoError(t, s.Close(t.Context()))
	}
}

func TestASessionWhoseContainerCanNotBeLookedForKeepsItsName(t *testing.T) {
	m, _ := manager(t, wisbox.Options{Backend: deaf{sandboxtest.NewHost()}})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	err = m.Rename(t.Context(), "box", "lab")
	assert.Equal(t, tool.Unavailable, tool.KindOf(err), "%v", err)
	assert.ErrorContains(t, err, "wisbox doctor")
	_, err = m.Attach(t.Context(), "lab")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
}

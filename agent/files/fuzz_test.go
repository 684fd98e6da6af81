package files_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent/files"
	"github.com/wisbox/wisbox/agent/filewire"
	"github.com/wisbox/wisbox/sandbox"
)

// impostor is a process that says what it was given, whatever it is asked.
type impostor struct {
	t     *testing.T
	said  []byte
	stays bool // it doesn't end afterwards
	deaf  bool // nor when it is killed, before the test's end
}

type impostorProcess struct {
	ended chan struct{}
	kill  func()
}

func (i impostor) StartAgent(_ context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	p := &impostorProcess{ended: make(chan struct{})}
	p.kill = sync.OnceFunc(func() { close(p.ended) })
	if i.deaf {
		p.kill = func() {}
		i.t.Cleanup(func() { close(p.ended) })
	}
	go func() { _, _ = io.Copy(io.Discard, cmd.Stdin) }()
	go func() {
		_, _ = cmd.Stdout.Write(i.said)
		if !i.stays {
			p.kill()
		}
	}()
	return p, nil
}

func (p *impostorProcess) Wait(context.Context) (sandbox.Result, error) {
	<-p.ended
	return sandbox.Result{Status: sandbox.StatusExited}, nil
}
func (p *impostorProcess) Kill() error                  { p.kill(); return nil }
func (p *impostorProcess) Signal(string) error          { return nil }
func (p *impostorProcess) Resize(sandbox.WinSize) error { return nil }

// operations are all that the host does, with what they deliver in bytes.
var operations = map[string]func(ctx context.Context, f *files.FS) error{
	"stat": func(ctx context.Context, f *files.FS) error {
		info, err := f.Stat(ctx, "/a", sandbox.StatOptions{})
		if err == nil && (info.Path != "/a" || info.Size < 0) {
			panic("not what was asked for")
		}
		return err
	},
	"list": func(ctx context.Context, f *files.FS) error {
		before, n := "", 0
		return f.List(ctx, "/a", sandbox.ListOptions{Limit: 3, Depth: 2}, func(info sandbox.FileInfo) error {
			if n++; n > 3 || info.Path == before || strings.HasPrefix(info.Path, "/") || strings.Contains("/"+info.Path+"/", "/../") {
				panic("not what was asked for: " + info.Path)
			}
			before = info.Path
			return nil
		})
	},
	"read": func(ctx context.Context, f *files.FS) error {
		r, err := f.Open(ctx, "/a", sandbox.OpenOptions{Length: 10})
		if err != nil {
			return err
		}
		defer r.Close()
		content, err := io.ReadAll(r)
		if len(content) > 10 {
			panic("more than was asked for")
		}
		return err
	},
	"write": func(ctx context.Context, f *files.FS) error {
		return f.Write(ctx, "/a", zeros{}, sandbox.WriteOptions{})
	},
	"move": func(ctx context.Context, f *files.FS) error { return f.Move(ctx, "/a", "/b", sandbox.MoveOptions{}) },
	"watch": func(ctx context.Context, f *files.FS) error {
		w, err := f.Watch(ctx, "/a", sandbox.WatchOptions{})
		if err != nil {
			return err
		}
		defer w.Close()
		for err == nil {
			var e sandbox.FileEvent
			e, err = w.Next()
			if strings.HasPrefix(e.Name, "/") || strings.Contains("/"+e.Name+"/", "/../") {
				panic("not below: " + e.Name)
			}
		}
		return err
	},
}

func frames(parts ...any) []byte {
	var b bytes.Buffer
	s := filewire.NewStream(nil, &b)
	for i := 0; i < len(parts); i += 2 {
		payload, isText := parts[i+1].(string)
		if !isText {
			text, _ := json.Marshal(parts[i+1])
			payload = string(text)
		}
		_ = s.Put(parts[i].(filewire.Type), []byte(payload))
	}
	_ = s.Flush()
	return b.Bytes()
}

var (
	goodItem = filewire.Item{Mode: 0o100644}
	goodEnd  = filewire.Ended{}
)

func FuzzHostileProcess(f *testing.F) {
	f.Add(frames(filewire.IsItem, goodItem, filewire.IsEnded, goodEnd))
	f.Add(frames(filewire.IsItem, goodItem, filewire.IsData, "hello", filewire.IsEnded, goodEnd, filewire.IsEnded, goodEnd))
	f.Add(frames(filewire.IsItem, filewire.Item{Name: []byte("a/b")}, filewire.IsItem, filewire.Item{Name: []byte("b")}, filewire.IsEnded, goodEnd))
	f.Add(frames(filewire.IsItem, goodItem, filewire.IsEvent, filewire.Event{Kind: "created", Name: []byte("x")}, filewire.IsEnded, goodEnd))
	f.Add(frames(filewire.IsEnded, filewire.Ended{Errno: 2, At: []byte("x")}))
	f.Add([]byte{'N', 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, said []byte) {
		for name, operation := range operations {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			fsys := files.New(impostor{said: said})
			_ = operation(ctx, fsys)
			require.NoError(t, ctx.Err(), name)
			cancel()
			require.NoError(t, fsys.Close())
		}
	})
}

// TestWhatDoesNotFitInterrupts: each is an answer that no process of ours gives.
func TestWhatDoesNotFitInterrupts(t *testing.T) {
	item := func(i filewire.Item) []byte { return frames(filewire.IsItem, i, filewire.IsEnded, goodEnd) }
	names := func(names ...string) []byte {
		var parts []any
		for _, name := range names {
			parts = append(parts, filewire.IsItem, filewire.Item{Name: []byte(name)})
		}
		return frames(append(parts, filewire.IsEnded, goodEnd)...)
	}
	event := func(e filewire.Event) []byte { return frames(filewire.IsItem, goodItem, filewire.IsEvent, e) }
	for _, c := range []struct {
		operation, why string
		said           []byte
	}{
		{"stat", "frame too large", []byte{'N', 0, 1, 0, 1}},
		{"stat", "unknown frame", frames(filewire.Type('?'), "")},
		{"stat", "half a frame", frames(filewire.IsItem, goodItem)[:8]},
		{"stat", "nothing", nil},
		{"stat", "no item", frames(filewire.IsEnded, goodEnd)},
		{"stat", "two items", frames(filewire.IsItem, goodItem, filewire.IsItem, goodItem)},
		{"stat", "no json", frames(filewire.IsItem, "{")},
		{"stat", "negative size", item(filewire.Item{Size: -1})},
		{"stat", "nanoseconds", item(filewire.Item{Nanos: 1e9})},
		{"stat", "link with NUL", item(filewire.Item{Link: []byte("a\x00")})},
		{"stat", "long link", item(filewire.Item{Link: make([]byte, 4097)})},
		{"stat", "relative real path", item(filewire.Item{Real: []byte("a")})},
		{"list", "absolute", names("/a")},
		{"list", "up", names("a/../../b")},
		{"list", "NUL", names("a\x00")},
		{"list", "empty", names("")},
		{"list", "twice", names("a", "a")},
		{"list", "unsorted", names("b", "a")},
		{"list", "parent after child", names("a/b", "a")},
		{"list", "too many", names("a", "b", "c", "d")},
		{"list", "too deep", names("a", "a/b", "a/b/c")},
		{"list", "data", frames(filewire.IsData, "x")},
		{"read", "too much", frames(filewire.IsItem, goodItem, filewire.IsData, "12345678901")},
		{"read", "too much in parts", frames(filewire.IsItem, goodItem, filewire.IsData, "123456", filewire.IsData, "789012")},
		{"write", "success before the end", frames(filewire.IsEnded, goodEnd)},
		{"move", "item", item(goodItem)},
		{"move", "unknown reason", frames(filewire.IsEnded, filewire.Ended{Why: "because"})},
		{"move", "error number", frames(filewire.IsEnded, filewire.Ended{Errno: 5000})},
		{"move", "place", frames(filewire.IsEnded, filewire.Ended{Errno: 1, At: []byte("../x")})},
		{"watch", "unknown change", event(filewire.Event{Kind: "eaten", Name: []byte("a")})},
		{"watch", "no name", event(filewire.Event{Kind: "created"})},
		{"watch", "up", event(filewire.Event{Kind: "created", Name: []byte("..")})},
	} {
		t.Run(c.operation+" "+c.why, func(t *testing.T) {
			f := files.New(impostor{said: c.said})
			require.ErrorIs(t, operations[c.operation](t.Context(), f), sandbox.ErrInterrupted)
		})
	}
}

// TestASilentProcessHoldsNobodyUp whose context ends, even if the agent is stopped and doesn't kill it.
func TestASilentProcessHoldsNobodyUp(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for name, operation := range operations {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			begin := time.Now()
			require.ErrorIs(t, operation(ctx, files.New(impostor{t: t, stays: true, deaf: deaf})), context.DeadlineExceeded, name)
			require.Less(t, time.Since(begin), deadline)
			cancel()
		}
	}
}

// TestFailuresAreErrorsOfTheStandardLibrary, and their texts are plain.
func TestFailuresAreErrorsOfTheStandardLibrary(t *testing.T) {
	for text, end := range map[string]filewire.Ended{
		"move /a: no such file or directory":           {Errno: 2},
		"move /a, at \"b\\nc\": permission denied":     {Errno: 13, At: []byte("b\nc")},
		"move /a: not a regular file":                  {Why: filewire.Irregular},
		"move /a: limit of the file operation reached": {Why: filewire.Limited},
	} {
		f := files.New(impostor{said: frames(filewire.IsEnded, end)})
		require.EqualError(t, operations["move"](t.Context(), f), text)
		require.NoError(t, f.Close())
	}
}

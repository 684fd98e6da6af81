package wisbox_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// liar is another machine that was taken over: it answers as the test wants.
type liar struct {
	refuses bool                               // and reads nothing
	answers map[string]string                  // by operation
	writes  map[string]func(w io.Writer) error // its output
}

func (l *liar) Do(_ context.Context, req hold.Request, streams hold.Streams) (*hold.Answer, error) {
	if l.refuses {
		return nil, tool.Errorf(tool.Unavailable, "refused")
	}
	if streams.Stdin != nil {
		_, _ = io.Copy(io.Discard, streams.Stdin)
	}
	if write := l.writes[req.Op]; write != nil {
		if err := write(streams.Stdout); err != nil {
			return nil, err
		}
	}
	answer, ok := l.answers[req.Op]
	if !ok {
		answer = "{}"
	}
	return &hold.Answer{Value: json.RawMessage(answer)}, nil
}

func (*liar) Start(context.Context, hold.Request, hold.Streams) (sandbox.Process, error) {
	return nil, tool.Errorf(tool.Unsupported, "no programs")
}
func (*liar) Busy() bool                  { return true }
func (*liar) Empty(context.Context) error { return nil }

// lied is a Manager whose other machine is a liar.
func lied(t *testing.T, l *liar) *wisbox.Manager {
	t.Helper()
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	var m *wisbox.Manager
	opts := wisbox.Options{Far: "liar", CacheDir: t.TempDir()}
	opts.FarConnect = func(context.Context) (io.ReadWriteCloser, error) {
		a, b := net.Pipe()
		serving.Go(func() {
			_ = far.Serve(ctx, b, m.Hello(), func(ctx context.Context, c net.Conn) { hold.ServeConn(ctx, c, l) })
		})
		return a, nil
	}
	m, err := wisbox.NewManager(t.Context(), &opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		cancel()
		serving.Wait()
	})
	return m
}

// TestAFarMachineDoesNotChooseTheSession by whose name this one finds where it may write.
func TestAFarMachineDoesNotChooseTheSession(t *testing.T) {
	of := func(name, at string) string {
		return `{"options":{"name":"` + name + `"},"created":{"at":"` + at + `"}}`
	}
	const first, second = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
	l := &liar{answers: map[string]string{}}
	m := lied(t, l)
	open := func(asked, answered, at string) (*wisbox.Session, error) {
		src := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(src, "f"), []byte(asked), 0o644))
		l.answers["open"] = of(answered, at)
		return m.Open(t.Context(), &wisbox.SessionOptions{Name: asked, Kept: asked != "", AllowedRoots: []string{src}, Mounts: []hostmount.Mount{{HostPath: src}}})
	}
	a, err := open("a", "a", first)
	require.NoError(t, err)
	_, err = open("b", "b", second)
	require.NoError(t, err)

	for what, try := range map[string]func() error{
		"attach":        func() error { l.answers["attach"] = of("b", second); _, err := m.Attach(t.Context(), "a"); return err },
		"open":          func() error { _, err := open("c", "b", second); return err },
		"open, no name": func() error { _, err := open("", "b", second); return err },
		"steering name": func() error { _, err := open("", `\u001b[2J`, second); return err },
		"load": func() error {
			l.answers["load"] = of("b", second)
			_, err := m.Load(t.Context(), strings.NewReader(""), nil)
			return err
		},
		"clone": func() error {
			l.answers["fork"] = "[" + of("b", second) + "]"
			_, err := a.Clone(t.Context(), nil)
			return err
		},
		"clone, named": func() error {
			l.answers["fork"] = "[" + of("b", second) + "]"
			_, err := a.Clone(t.Context(), &wisbox.CloneOptions{Name: "c"})
			return err
		},
		"clone, nothing": func() error { l.answers["fork"] = "[]"; _, err := a.Clone(t.Context(), nil); return err },
		"fork, too many": func() error {
			l.answers["fork"] = "[" + of("x", first) + "," + of("y", first) + "]"
			_, err := a.Fork(t.Context(), 1, nil)
			return err
		},
	} {
		err := try()
		require.Error(t, err, what)
		assert.ErrorContains(t, err, "the wrong session", what)
	}
}

// TestAFarMachineFillsNoMemory with a line that doesn't end.
func TestAFarMachineFillsNoMemory(t *testing.T) {
	endless := func(w io.Writer) error {
		part := []byte(strings.Repeat("x", 1<<20))
		for range 40 {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	}
	l := &liar{answers: map[string]string{"attach": `{"options":{"name":"a"}}`}, writes: map[string]func(io.Writer) error{"log": endless, "watch": endless}}
	m := lied(t, l)
	err := m.Log(t.Context(), "a", false, func([]byte) error { return nil })
	require.ErrorContains(t, err, "16 MiB")
	s, err := m.Attach(t.Context(), "a")
	require.NoError(t, err)
	_, err = s.Watch(t.Context(), "/")
	require.Error(t, err)
}

// TestMountsThatAreRefusedLeaveNothing behind: nobody reads the rest of their stream.
func TestMountsThatAreRefusedLeaveNothing(t *testing.T) {
	src := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "f"), make([]byte, 8<<20), 0o644))
	m := lied(t, &liar{refuses: true})
	before := goleak.IgnoreCurrent()
	_, err := m.Open(context.Background(), &wisbox.SessionOptions{AllowedRoots: []string{src}, Mounts: []hostmount.Mount{{HostPath: src}}})
	require.ErrorContains(t, err, "refused")
	require.NoError(t, m.Close())
	goleak.VerifyNone(t, before)
}

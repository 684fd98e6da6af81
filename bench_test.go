package wisbox_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// idle is a backend whose programs have all ended: what is left of a call is ours.
type idle struct{ sandbox.Backend }

func (i idle) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := i.Backend.Create(ctx, spec)
	return ended{sb}, err
}

func (i idle) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := i.Backend.Open(ctx, spec)
	return ended{sb}, err
}

type ended struct{ sandbox.Sandbox }

func (ended) Run(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	return sandbox.Result{Status: sandbox.StatusExited}, nil
}

// BenchmarkCall measures the cost of a call without the work of its tool or program, with all
// controls and the log on.
func BenchmarkCall(b *testing.B) {
	m, err := wisbox.NewManager(b.Context(), &wisbox.Options{
		Backend: idle{sandboxtest.NewHost()}, CacheDir: filepath.Join(b.TempDir(), "state"),
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, m.Close()) })
	s, err := m.Open(b.Context(), nil)
	require.NoError(b, err)
	for _, c := range []struct{ name, tool, args string }{
		{"ls of an empty directory", "ls", `{}`},
		{"a program", "shell_execute", `{"commands":["/bin/true"]}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := s.Call(b.Context(), c.tool, json.RawMessage(c.args))
				require.NoError(b, err)
			}
		})
	}
}

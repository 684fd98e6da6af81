package python_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// It compares a kept interpreter with a new one. A fresh call on the Host backend starts Python each time; the agent's
// warm fork is measured with real containers.
func BenchmarkOnePlusOne(b *testing.B) {
	box, err := sandboxtest.NewHost().Create(context.Background(), sandbox.Spec{ID: "bench", Image: "host", Workspace: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = box.Close(context.Background()) }()
	engine := python.New(&python.Options{Runner: func(context.Context) (sandbox.Runner, error) { return box, nil }})
	defer func() { _ = engine.Close() }()
	b.Run("python3 -I -c", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/usr/bin/python3", "-I", "-c", "1+1").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, kept := range map[string]bool{"kept": true, "fresh without a warm fork": false} {
		req := evaltool.Request{Code: "1+1", Sandbox: evaltool.SandboxContainer, Timeout: 5 * time.Second, Kept: kept}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if resp, err := engine.Evaluate(context.Background(), req); err != nil || resp.Failed() {
					b.Fatal(resp, err)
				}
			}
		})
	}
}

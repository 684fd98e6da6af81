package evaltool_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/bash"
	"github.com/wisbox/wisbox/evaltool/javascript"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/sandbox"
)

// TestACallThatEndsBeforeItsInterpreterStartsIsCancelled: as evaltool.Engine promises,
// whoever ends it.
func TestACallThatEndsBeforeItsInterpreterStartsIsCancelled(t *testing.T) {
	starting := make(chan struct{}, 1)
	runner := func(ctx context.Context) (sandbox.Runner, error) {
		starting <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	type engine interface {
		evaltool.Engine
		evaltool.Resetter
	}
	for name, e := range map[string]engine{
		"python":     python.New(&python.Options{Runner: runner}),
		"bash":       bash.New(&bash.Options{Runner: runner}),
		"javascript": javascript.New(&javascript.Options{Runner: runner}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, kept := range []bool{false, true} {
				ctx, cancel := context.WithCancel(t.Context())
				end := cancel
				if kept {
					end = func() { e.Cancel("") } // what a restart does
				}
				go func() { <-starting; end() }()
				resp, err := e.Evaluate(ctx, evaltool.Request{Code: "1", Sandbox: evaltool.SandboxContainer, Kept: kept, Timeout: time.Minute})
				require.NoError(t, err)
				assert.Equal(t, evaltool.StatusCancelled, resp.Status)
				cancel()
			}
		})
	}
}

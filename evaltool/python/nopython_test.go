package python_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// bare is a sandbox whose image has no Python.
type bare struct{ sandbox.Runner }

func (bare) Run(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	return sandbox.Result{}, fmt.Errorf("%w: no python3", sandbox.ErrUnsupported)
}

func (bare) Start(context.Context, sandbox.Cmd) (sandbox.Process, error) {
	return nil, fmt.Errorf("%w: no python3", sandbox.ErrUnsupported)
}

func TestAnImageWithoutPythonIsUnsupportedAndNamesAWayOut(t *testing.T) {
	e := python.New(&python.Options{Runner: func(context.Context) (sandbox.Runner, error) { return bare{}, nil }})
	defer e.Close()
	for _, kept := range []bool{false, true} {
		_, err := e.Evaluate(context.Background(), evaltool.Request{Code: "1", Sandbox: evaltool.SandboxContainer, Kept: kept, Timeout: 20 * time.Second})
		assert.Equal(t, tool.Unsupported, tool.KindOf(err))
		assert.ErrorContains(t, err, "use the sandbox wasm")
	}
}

package wasm_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// install fetches the module into the user's cache, once.
var install = sync.OnceValues(func() (wasm.Installed, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return wasm.Install(ctx, nil)
})

var shared = sync.OnceValues(func() (*wasm.Engine, error) {
	e, err := wasm.New(nil)
	if err != nil {
		return nil, err
	}
	return e, e.Warm(context.Background()) // compiling takes minutes under the race detector
})

// engine returns one engine for all tests: its only state is in the tests' own contexts.
func engine(t testing.TB) *wasm.Engine {
	t.Helper()
	needModule(t)
	e, err := shared()
	require.NoError(t, err)
	return e
}

func needModule(t testing.TB) {
	t.Helper()
	if _, err := install(); err != nil {
		hosttest.Lacks(t, "python.wasm is not installed and can't be fetched: %v", err)
	}
}

func newEngine(t testing.TB, opts *wasm.Options) *wasm.Engine {
	t.Helper()
	needModule(t)
	e, err := wasm.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func evaluate(t testing.TB, e *wasm.Engine, req evaltool.Request) evaltool.Response {
	t.Helper()
	if req.Timeout == 0 {
		req.Timeout = time.Minute
	}
	req.Sandbox = evaltool.SandboxWasm
	resp, err := e.Session(nil).Evaluate(context.Background(), req)
	require.NoError(t, err)
	return resp
}

func run(t testing.TB, code string) evaltool.Response {
	t.Helper()
	return evaluate(t, engine(t), evaltool.Request{Code: code})
}

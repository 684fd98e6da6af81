package wasm_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/tool"
)

func TestTheEnvironmentStandsForLimitsThatAreNotSet(t *testing.T) {
	needModule(t)
	ctx := context.Background()
	loop := func(opts *wasm.Options) string {
		e, err := wasm.New(opts)
		require.NoError(t, err)
		defer e.Close()
		_, failure, err := e.Eval(ctx, "while True: pass", nil)
		require.NoError(t, err)
		return failure
	}
	grows := func(opts *wasm.Options) string {
		e, err := wasm.New(opts)
		require.NoError(t, err)
		defer e.Close()
		_, failure, err := e.Eval(ctx, "x = bytes(100 << 20)", nil)
		require.NoError(t, err)
		return failure
	}
	assert.Empty(t, grows(nil))
	t.Setenv(wasm.MemoryVariable, "64")
	assert.Contains(t, grows(nil), "MemoryError")
	assert.Empty(t, grows(&wasm.Options{Memory: 256 << 20}), "an option goes before the environment")
	t.Setenv(wasm.FuelVariable, "1000000")
	assert.Contains(t, loop(nil), "fuel of 1000000 units")
	assert.Contains(t, loop(&wasm.Options{Fuel: 2_000_000}), "fuel of 2000000 units")
}

func TestAVariableThatIsNoLimitIsInvalidAndNamed(t *testing.T) {
	for name, values := range map[string][]string{
		wasm.FuelVariable:   {"many", "0", "-1", "1e9", "99999999999999999999"},
		wasm.MemoryVariable: {"lots", "0", "-5", "4097", "9223372036854775807"},
	} {
		for _, value := range values {
			t.Setenv(name, value)
			_, err := wasm.New(nil)
			assert.Equal(t, tool.Invalid, tool.KindOf(err), "%s=%s", name, value)
			assert.ErrorContains(t, err, name)
		}
		t.Setenv(name, "")
	}
}

func TestRLMsVariableNamesTheModule(t *testing.T) {
	needModule(t)
	installed, err := install()
	require.NoError(t, err)
	opts := &wasm.Options{CacheDir: t.TempDir()}
	assert.False(t, wasm.IsInstalled(opts))
	t.Setenv("RLM_WASM_PYTHON_PATH", installed.Path)
	assert.True(t, wasm.IsInstalled(opts))
	t.Setenv(wasm.ModuleVariable, "/nowhere/python.wasm")
	assert.False(t, wasm.IsInstalled(opts), "wisbox's own variable goes first")
}

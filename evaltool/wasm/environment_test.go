package wasm_test

import (
	"context"
	"testing"
	"time"

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
		wasm.FuelVariable:    {"many", "0", "-1", "1e9", "99999999999999999999"},
		wasm.MemoryVariable:  {"lots", "0", "-5", "4097", "9223372036854775807"},
		wasm.TimeoutVariable: {"long", "0", "-5", "86401", "5s"},
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
	find := func(module string) error {
		e, err := wasm.New(&wasm.Options{CacheDir: t.TempDir(), Module: module})
		require.NoError(t, err)
		defer e.Close()
		return e.Find()
	}
	assert.ErrorIs(t, find(""), wasm.ErrNotInstalled)
	t.Setenv("RLM_WASM_PYTHON_PATH", installed.Path)
	assert.NoError(t, find(""))
	t.Setenv(wasm.ModuleVariable, "/nowhere/python.wasm")
	for module, says := range map[string]string{"": "does not exist", "/typo": "does not exist", t.TempDir(): "is not a file", "/dev/null": "is not a file"} {
		err := find(module)
		assert.Equal(t, tool.Unsupported, tool.KindOf(err), module)
		assert.NotErrorIs(t, err, wasm.ErrNotInstalled, "a module that is named")
		assert.ErrorContains(t, err, "the python.wasm of --wasm-python, WISBOX_WASM_PYTHON or RLM_WASM_PYTHON_PATH "+says)
	}
}

// Fuel decides: the time is a bound for machines that are very slow.
func TestTheTimeOfAnEvalFollowsItsFuel(t *testing.T) {
	assert.Equal(t, 50*time.Second, wasm.TimeoutFor(wasm.DefaultFuel))
	assert.Equal(t, 30*time.Second, wasm.TimeoutFor(1))
	assert.Equal(t, 500*time.Second, wasm.TimeoutFor(4_000_000_000))
	assert.Equal(t, 24*time.Hour, wasm.TimeoutFor(1<<62))
	needModule(t)
	ends := func(opts *wasm.Options, code string) string {
		e, err := wasm.New(opts)
		require.NoError(t, err)
		defer e.Close()
		_, failure, err := e.Eval(t.Context(), code, nil)
		require.NoError(t, err)
		return failure
	}
	assert.Contains(t, ends(&wasm.Options{Real: true}, "import time\ntime.sleep(6)\nwhile True: pass"), "fuel of 400000000 units", "more than five seconds")
	assert.Contains(t, ends(&wasm.Options{Timeout: time.Second, Fuel: 1 << 40}, "while True: pass"), "the time of 1s was over")
	t.Setenv(wasm.TimeoutVariable, "1")
	assert.Contains(t, ends(&wasm.Options{Fuel: 1 << 40}, "while True: pass"), "the time of 1s was over")
}

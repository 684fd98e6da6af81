//go:build !race

package wasm_test

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/wasm"
)

// TestPreparedFilesThatAreOfNoUse: the engine compiles, which takes minutes under the race detector.
func TestPreparedFilesThatAreOfNoUse(t *testing.T) {
	files, state, compiled := preparedFiles(t)
	started, err := os.ReadFile(files[state])
	require.NoError(t, err)
	for name, from := range map[string]fstest.MapFS{
		"damaged":              {state: {Data: started}, compiled: {Data: []byte("no code")}},
		"of another processor": {state: {Data: started}, compiled + "0": {Data: []byte("no code of this one's")}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := &wasm.Options{CacheDir: t.TempDir(), Module: modulePath(t), Prepared: func() (fs.FS, error) { return from, nil }}
			resp := evaluate(t, newEngine(t, opts), evaltool.Request{Code: "6 * 7"})
			assert.Equal(t, "42", *resp.Value)
		})
	}
}

package python_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

// The restricted sandbox itself is tested in package integration: its library is
// in the image.

func TestWithoutAstevalRestrictedIsUnsupportedAndNamesIt(t *testing.T) {
	for name, prelude := range map[string]string{
		"missing": "import sys; sys.modules['asteval'] = None",
		"old":     "import sys, types; sys.modules['asteval'] = types.SimpleNamespace(__version__='1.0.5')",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.prelude = prelude
			for _, kept := range []bool{false, true} {
				_, err := b.Evaluate(context.Background(), evaltool.Request{Code: "1", Sandbox: evaltool.SandboxRestricted, Kept: kept, Timeout: 20 * time.Second})
				assert.Equal(t, tool.Unsupported, tool.KindOf(err))
				assert.ErrorContains(t, err, "python3-asteval")
			}
		})
	}
}

package httpguard

import (
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limitRows has, for each number or time of Options, its default and its row of docs/serve.md's table of limits: name,
// value in other servers than wisbox serve, and what happens to what exceeds it.
var limitRows = map[string]struct {
	value any
	row   string
}{
	"MaxConns":     {1024, `\| connections \| .*; 1,024, .* \| idle ones are closed for new ones, .* log; otherwise 429 \|`},
	"MaxStrangers": {64, `\| connections of one address .* \| .*64 \| the oldest is closed for a new one, .* log \|`},
	"MaxRequests":  {512, `\| requests at once \| .*; 512 \| 429, or 503 .* \|`},
	"MaxOfPart":    {256, `\| requests at once for one sandbox .* \| 256 \| .* log; otherwise 429 \|`},
	"MaxBytes":     {int64(256 << 20), `\| memory .* \| 256 MiB \| 429; .* \|`},
	"Rate":         {1000.0, `\| requests of a client \| 1,000 a second, .* \| waits .* log, then 429 \|`},
	"Burst":        {2000, `\| requests of a client \| .* 2,000 at once \| waits .* \|`},
	"ReadTimeout":  {30 * time.Second, `\| a request .* no key yet \| 30 seconds \| is closed \|`},
	"Stalled":      {time.Minute, `\| a client that sends or takes nothing .* \| a minute \| is closed \|`},
}

func TestTheDocsNameEveryLimit(t *testing.T) {
	page, err := os.ReadFile("../docs/serve.md")
	require.NoError(t, err)
	g, err := New(nil)
	require.NoError(t, err)
	limits := 0
	for field, value := range reflect.ValueOf(g.opts).Fields() {
		if !value.CanInt() && !value.CanFloat() {
			continue
		}
		limits++
		want, ok := limitRows[field.Name]
		if assert.True(t, ok, "Options.%s has no row: add it to docs/serve.md and here", field.Name) {
			assert.Equal(t, want.value, value.Interface(), "the default of %s", field.Name)
			assert.Regexp(t, `(?m)^`+want.row+`$`, string(page), field.Name)
		}
	}
	assert.Len(t, limitRows, limits)
}

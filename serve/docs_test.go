package serve

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limitRows has, for each number or time of Options, its row of docs/serve.md's table of limits.
var limitRows = map[string]string{
	"MaxTimeout": `\| a sandbox's life, .*--max-timeout.* \| 24 hours .*\| 400, .* \|`,
	"Sandboxes":  `\| sandboxes of a key .* \| 20 .*\| 429, .* \|`,
	"Disk":       `\| disk of all keys, .*--total-disk.* \| none \| 503 .* \|`,
	"Ready":      `\| sandboxes kept ready, .*--ready.* \| none \| a new one is made, which takes longer \|`,
}

// constantRows are those of limits without an option.
var constantRows = []string{
	fmt.Sprintf(`\| connections \| %s; .* \| .* \|`, "4,096"),
	fmt.Sprintf(`\| requests at once \| %s; .* \| .* \|`, "4,096"),
	fmt.Sprintf(`\| connections of other machines of a key \| %d \| an error that names it \|`, remoteConns),
	fmt.Sprintf(`\| calls of other machines of a key at once \| %d \| an error that names it \|`, remoteCalls),
	fmt.Sprintf(`\| large requests of other machines of a key at once, .* \| %d, and 2 to 8 \| waits up to %.0f seconds, .* log; then an error that names it \|`, largeAtOnce, turnWait.Seconds()),
	fmt.Sprintf(`\| sessions that a key asks for .* \| %d a second, %d at once \| an error that names it \|`, seekRate, seekBurst),
}

func TestTheDocsNameEveryLimit(t *testing.T) {
	page, err := os.ReadFile("../docs/serve.md")
	require.NoError(t, err)
	assert.Equal(t, []int{4096, 4096}, []int{maxConns, maxRequests})
	limits := 0
	for field := range reflect.ValueOf(Options{}).Fields() {
		if !slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64, reflect.Float64}, field.Type.Kind()) {
			continue
		}
		limits++
		row, ok := limitRows[field.Name]
		if assert.True(t, ok, "Options.%s has no row: add it to docs/serve.md and here", field.Name) {
			assert.Regexp(t, `(?m)^`+row+`$`, string(page), field.Name)
		}
	}
	assert.Len(t, limitRows, limits)
	for _, row := range constantRows {
		assert.Regexp(t, `(?m)^`+row+`$`, string(page))
	}
}

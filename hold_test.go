package wisbox_test

import (
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/tool"
)

// TestAHolderThatDoesNotStartSaysWhy reads byte by byte, as a pipe may deliver it.
func TestAHolderThatDoesNotStartSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name, line string
		kind       tool.Kind // "" where it started
		says       string
	}{
		{"ready", "ready\n", "", ""},
		{"an error", `{"error":{"kind":"not_found","field":"session","message":"there is no session"}}` + "\n", tool.NotFound, "there is no session"},
		{"no line", "", tool.Unavailable, "wisbox doctor"},
		{"half a line", "rea", tool.Unavailable, "wisbox doctor"},
		{"another program's line", "{}\n", tool.Unavailable, "wisbox doctor"},
		{"no end of it", strings.Repeat("x", 1<<20), tool.Unavailable, "wisbox doctor"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := hold.ReadReady(iotest.OneByteReader(strings.NewReader(c.line)), "box")
			if c.kind == "" {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, c.kind, tool.KindOf(err))
			assert.Contains(t, err.Error(), c.says)
		})
	}
}

// A holder that lost a race is ready and ends at once: its line is read all the same. There are
// many at once, so that some end before they are read.
func TestWhatAHolderThatEndsAtOnceSaidIsRead(t *testing.T) {
	m, _ := manager(t, wisbox.Options{Holder: []string{"sh", "-c", "echo ready"}})
	var starts sync.WaitGroup
	for range 300 {
		starts.Go(func() { assert.NoError(t, m.Holders().Launch(t.Context(), "box")) })
	}
	starts.Wait()
}

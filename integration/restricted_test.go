package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/hostmount"
)

// TestRestrictedCodeHasTheResultsOfTheImagesPython compares generated programs: a hundred, and with WISBOX_NIGHTLY 5,000 new ones.
// The tests of the sandbox itself are those of evaltool/python.
func TestRestrictedCodeHasTheResultsOfTheImagesPython(t *testing.T) {
	host := t.TempDir()
	copyFile(t, "../evaltool/python/testdata/differential.py", filepath.Join(host, "differential.py"), 0o644)
	require.NoError(t, os.WriteFile(filepath.Join(host, "driver.py"), []byte(driver.Source()), 0o644))
	s := open(t, &wisbox.SessionOptions{AllowedRoots: []string{host}, Mounts: []hostmount.Mount{{HostPath: host}}})
	batches, seed := 1, "2"
	if os.Getenv("WISBOX_NIGHTLY") != "" {
		batches, seed = 50, time.Now().Format(time.DateOnly)
	}
	for batch := range batches {
		said := output(t, s, fmt.Sprintf("set -o pipefail; python3 -W ignore differential.py driver.py 100 %s/%d 2>&1 | head -c 6000", seed, batch))
		require.NotContains(t, said, "--- snippet")
		require.NotContains(t, said, "refused: ", "the snippets have only what the sandbox has")
		assert.Contains(t, said, "'finished'")
	}
}

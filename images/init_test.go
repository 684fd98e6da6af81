package images

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheShellScriptParses(t *testing.T) {
	out, err := exec.Command("/bin/sh", "-n", "finish.sh").CombinedOutput()
	require.NoError(t, err, string(out))
}

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheReadmesCommandsWorkInTheirOrder runs the block as a newcomer does. shell
// needs a terminal, doctor minutes of patience with a machine, and port goes on until
// the session's end: they have tests of their own.
func TestTheReadmesCommandsWorkInTheirOrder(t *testing.T) {
	need(t)
	examples, err := filepath.Abs("../examples")
	require.NoError(t, err)
	as := strings.NewReplacer("bin/wisbox", binary(t), "~/.ssh/", t.TempDir()+"/", "./examples", examples, " /tmp ", " "+t.TempDir()+" ", " /tmp/", " "+t.TempDir()+"/")
	environ := append(os.Environ(), "WISBOX_CACHE="+t.TempDir())
	said := map[string]string{}
	for _, line := range readmeCommands(t) {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", as.Replace(line))
		cmd.Env = environ
		out, err := cmd.CombinedOutput()
		if name := strings.Fields(line)[1]; name != "run" { // the project's tests have a fault, which is its exit code
			require.NoError(t, err, "%s\n%s", line, out)
		}
		said[strings.Join(strings.Fields(line)[1:3], " ")] += string(out)
	}
	assert.Contains(t, said["run --mount"], "FAILED (failures=1)")
	assert.Contains(t, said["exec box"], "README.md")
	assert.Equal(t, "42\n", said["eval python"])
	assert.NotContains(t, said["undo box"], " 0 brought back")
	assert.Equal(t, "box\ntwin\n", said["rm box"])
}

// readmeCommands are those of the command line's block.
func readmeCommands(t *testing.T) []string {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(readme), "## From the command line\n\n```sh\n")
	require.True(t, found)
	block, _, found = strings.Cut(block, "```")
	require.True(t, found)
	var out []string
	for line := range strings.Lines(block) {
		switch fields := strings.Fields(line); {
		case len(fields) < 2 || fields[0] != "bin/wisbox":
		case fields[1] == "shell" || fields[1] == "doctor" || fields[1] == "port":
		default:
			out = append(out, line)
		}
	}
	require.Greater(t, len(out), 10)
	return out
}

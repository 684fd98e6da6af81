package scratch

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const of = "SCRATCH_TEST_PARENT"

func TestMain(m *testing.M) {
	parent := os.Getenv(of)
	if parent == "" {
		os.Exit(m.Run())
	}
	d, err := Below(parent, "wisbox-kind-")
	if err == nil {
		err = os.WriteFile(filepath.Join(d.Path, "f"), nil, 0o600)
	}
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(d.Name + "\n")
	select {}
}

func TestADirectoryIsGoneWhenItIsClosed(t *testing.T) {
	parent := t.TempDir()
	d, err := Below(parent, "wisbox-kind-")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d.Path, "f"), nil, 0o600))
	require.NoError(t, d.Close())
	assert.Empty(t, names(t, parent))
	assert.NoError(t, (*Dir)(nil).Close())
}

func TestWhatAKilledProcessLeftGoesWithTheNext(t *testing.T) {
	parent := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(parent, "wisbox-other-1"), 0o700))
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), of+"="+parent)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 100)
	n, err := out.Read(line)
	require.NoError(t, err)
	others := string(line[:n-1])

	d, err := Below(parent, "wisbox-kind-")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"wisbox-other-1", others, d.Name}, names(t, parent), "one that lives keeps its directory")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	next, err := Below(parent, "wisbox-kind-")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"wisbox-other-1", d.Name, next.Name}, names(t, parent))
	require.NoError(t, d.Close())
	require.NoError(t, next.Close())
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

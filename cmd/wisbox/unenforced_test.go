package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLimitsThatAUserWithoutRootLacks(t *testing.T) {
	write := func(root, name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	lacks, why := unenforced(t.TempDir(), 1000, true)
	assert.Equal(t, []string{"memory", "cpu", "pids"}, lacks)
	assert.Contains(t, why, "cgroup v2")
	for given, want := range map[string][]string{"cpu memory pids\n": {}, "memory pids\n": {"cpu"}, "": {"memory", "cpu", "pids"}} {
		root := t.TempDir()
		write(root, "cgroup.controllers", "cpuset cpu io memory pids\n")
		write(root, "user.slice/user-1000.slice/user@1000.service/cgroup.controllers", given)
		lacks, _ := unenforced(root, 1000, true)
		assert.Equal(t, want, lacks, "%q", given)
		lacks, _ = unenforced(root, 1001, true)
		assert.Empty(t, lacks, "it isn't known")
		lacks, _ = unenforced(root, 0, false)
		assert.Empty(t, lacks)
		lacks, why := unenforced(root, 1000, false)
		assert.Equal(t, []string{"memory", "cpu", "pids"}, lacks)
		assert.Contains(t, why, "session bus")
	}
}

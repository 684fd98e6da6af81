//go:build integration

package podman

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestASandboxIsBelowOurGroup, with the weight that the kernel has accepted.
func TestASandboxIsBelowOurGroup(t *testing.T) {
	h := newHost(t, nil)
	s := h.create(h.spec("weight"))
	e, err := h.engine(t.Context())
	require.NoError(t, err)
	data, err := h.inspect(t.Context(), s.name)
	require.NoError(t, err)
	groups := groupsOf("/", data.State.Pid)
	group, v1 := groups["cpu"]
	file, want := "/sys/fs/cgroup/cpu/wisbox/cpu.shares", 1024*runtime.NumCPU()
	if !v1 {
		group, file, want = groups[""], "/sys/fs/cgroup/wisbox/cpu.weight", 100*runtime.NumCPU()
	}
	if e.info.groupParent() == "" {
		assert.False(t, strings.HasPrefix(group, groupParent+"/"), group)
		return
	}
	assert.Equal(t, filepath.Join(groupParent, "libpod-"+data.ID), group)
	weight, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, strconv.Itoa(want), strings.TrimSpace(string(weight)))
}

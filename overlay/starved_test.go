package overlay

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool/answer"
)

// withoutDescriptors calls do while this process can't open files.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	f, err := os.Open("/")
	require.NoError(t, err)
	next := f.Fd()
	require.NoError(t, f.Close())
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(next), Max: old.Max}))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)) }()
	do()
}

// TestAWorkspaceThatCanNotBeLookedAtIsNotTakenForDeleted: otherwise Remake would replace it by an empty one.
func TestAWorkspaceThatCanNotBeLookedAtIsNotTakenForDeleted(t *testing.T) {
	d := create(t, newStore(t), &CreateOptions{ID: "box", Kept: true, Disk: 64 << 20})
	require.NoError(t, d.Workspace().WriteFile("f", []byte("kept"), 0o644))
	withoutDescriptors(t, func() {
		for name, look := range map[string]error{"check": d.Check(t.Context()), "remake": d.Remake(t.Context())} {
			assert.Contains(t, []answer.Kind{"", answer.Limit}, answer.KindOf(look), "%s: %v", name, look)
		}
	})
	require.NoError(t, d.Check(t.Context()))
	raw, err := d.Workspace().ReadFile("f")
	require.NoError(t, err)
	assert.Equal(t, "kept", string(raw))
}

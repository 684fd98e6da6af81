package wisbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// metered is a backend whose sandboxes count processor time.
type metered struct {
	sandbox.Backend
	asked, step atomic.Int64
}

func (m *metered) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := m.Backend.Create(ctx, spec)
	return meteredSandbox{sb, m}, err
}

type meteredSandbox struct {
	sandbox.Sandbox
	m *metered
}

func (s meteredSandbox) CPUTime(context.Context) (time.Duration, error) {
	return time.Duration(s.m.asked.Add(1) * s.m.step.Load()), nil
}

// A session's restore asks its sandbox whether a program has run: once before and once after the
// change, and again for the next round if one had.
func TestARestoreAsksTheSandboxWhetherSomethingRan(t *testing.T) {
	b := &metered{Backend: sandboxtest.NewHost()}
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	for i := range 4_000 {
		require.NoError(t, os.WriteFile(filepath.Join(s.WorkspacePath(), fmt.Sprint(i)), nil, 0o644))
	}
	res, err := s.Call(t.Context(), "snapshot_create", json.RawMessage(`{}`))
	require.NoError(t, err)
	raw, err := json.Marshal(res.Value)
	require.NoError(t, err)
	var made struct {
		ID string `json:"snapshot_id"`
	}
	require.NoError(t, json.Unmarshal(raw, &made))
	restore := func() int64 {
		text(t, s, "shell_execute", `{"script":"echo new >file"}`)
		b.asked.Store(0)
		text(t, s, "snapshot_restore", `{"snapshot_id":"`+made.ID+`"}`)
		return b.asked.Load()
	}
	assert.EqualValues(t, 2, restore(), "nothing has run: one look")
	b.step.Store(1)
	assert.EqualValues(t, 3, restore(), "something has run: a second look, that finds nothing")
}

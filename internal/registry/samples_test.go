package registry_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/tool"
)

// sampling returns a registry with a minimal sampling interval.
func sampling(t *testing.T, e *registrytest.Engine) *registry.Registry {
	t.Helper()
	r, err := registry.Open(t.Context(), &registry.Options{
		Engine: e, Dir: t.TempDir(), SampleEvery: time.Microsecond,
		Front: func(*registry.Sandbox, registry.Box, <-chan struct{}) registry.Front { return noFront{} },
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

func samples(s *registry.Sandbox) []registry.Sample {
	return s.Samples(time.Time{}, time.Unix(1<<40, 0))
}

func TestSamplesAreBounded(t *testing.T) {
	s := create(t, sampling(t, &registrytest.Engine{}), registry.Record{})
	eventually(t, func() bool {
		all := samples(s)
		return len(all) > 0 && all[0].Memory > 100<<20 // the first hundred were dropped
	})
	all := samples(s)
	assert.Len(t, all, 720)
	for i := range all[1:] {
		require.False(t, all[i+1].Time.Before(all[i].Time), "the oldest first")
		require.Equal(t, all[i].Memory+1<<20, all[i+1].Memory, "none is left out")
	}
	now, ok := s.Now()
	require.True(t, ok)
	assert.GreaterOrEqual(t, now.Memory, all[719].Memory)
}

// TestWhatCantBeAskedHasNoSample: nor does it block the samples of others.
func TestWhatCantBeAskedHasNoSample(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	e := &registrytest.Engine{Fail: func(op string) error {
		if op == "gauge" && broken.Load() {
			return tool.Errorf(tool.Unavailable, "no Podman")
		}
		return nil
	}}
	r := sampling(t, e)
	s := create(t, r, registry.Record{})
	assert.Empty(t, samples(s))
	_, ok := s.Now()
	assert.False(t, ok)
	broken.Store(false)
	eventually(t, func() bool { return len(samples(s)) > 0 })
	require.NoError(t, s.Pause(t.Context(), false))
	assert.NoError(t, s.Resume(t.Context(), time.Hour, false))
}

package serve

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAConnectionsSandboxIsKeptWhileItLasts, but not beyond what the server allows; and not
// long behind a server that was killed.
func TestAConnectionsSandboxIsKeptWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := registry.Open(t.Context(), &registry.Options{Engine: &registrytest.Engine{}, Dir: t.TempDir()})
		require.NoError(t, err)
		defer func() { assert.NoError(t, r.Close()) }()
		made := func(most time.Duration) (*registry.Sandbox, context.CancelFunc) {
			s, err := r.Create(t.Context(), registry.Record{}, lease, registry.Quota{})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			go keep(ctx, s, time.Now().Add(most))
			return s, stop
		}
		lasts, stopOne := made(24 * time.Hour)
		defer stopOne()
		bounded, stopTwo := made(time.Hour)
		defer stopTwo()
		lost, stopThree := made(24 * time.Hour)
		stopThree()
		<-time.After(lease + time.Second)
		assert.True(t, lasts.IsRunning())
		assert.True(t, bounded.IsRunning())
		assert.False(t, lost.IsRunning())
		<-time.After(time.Hour)
		assert.True(t, lasts.IsRunning())
		assert.False(t, bounded.IsRunning())
	})
}

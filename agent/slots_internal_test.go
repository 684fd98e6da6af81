package agent

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlySoManyProgramsBeginAtOnce(t *testing.T) {
	most := slotsPerProcessor * runtime.GOMAXPROCS(0)
	for range most {
		_, err := takeSlot(t.Context())
		require.NoError(t, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := takeSlot(ended)
	require.ErrorIs(t, err, context.Canceled)
	var all sync.WaitGroup
	for range 3 * most { // nobody releases a slot: a program that runs on gives its own up
		all.Go(func() {
			release, err := takeSlot(t.Context())
			if assert.NoError(t, err) {
				release()
				release()
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool {
		free := slots.TryAcquire(int64(most))
		if free {
			slots.Release(int64(most))
		}
		return free
	}, time.Minute, time.Millisecond, "each slot came back once")
}

package lock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/lock"
)

func TestOneHoldsTheMutexAndOthersWaitOrGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := lock.New()
		assert.False(t, m.Held())
		require.NoError(t, m.Lock(t.Context()))
		assert.True(t, m.Held())
		impatient, cancel := context.WithCancel(t.Context())
		gaveUp, got := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- m.Lock(impatient) }()
		go func() { got <- m.Lock(t.Context()) }()
		synctest.Wait()
		assert.Empty(t, got)
		cancel()
		assert.ErrorIs(t, <-gaveUp, context.Canceled)
		m.Unlock()
		require.NoError(t, <-got)
		m.Unlock()
		assert.False(t, m.Held(), "who gave up holds nothing")
	})
}

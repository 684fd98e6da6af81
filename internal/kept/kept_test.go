package kept_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/kept"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func count(_ context.Context, n *int) error { *n++; return nil }

func each(int) bool { return true }

// read returns the value of a slot.
func read(t *testing.T, table *kept.Table[int, int], key int) (value int) {
	t.Helper()
	require.NoError(t, table.Do(t.Context(), key, func(_ context.Context, n *int) error { value = *n; return nil }))
	return value
}

func TestASlotKeepsItsValueUntilItIsReset(t *testing.T) {
	var ended []int
	table := kept.New[int](func(n *int) { ended = append(ended, *n) })
	for range 3 {
		require.NoError(t, table.Do(t.Context(), 1, count))
	}
	require.NoError(t, table.Do(t.Context(), 2, count))
	defect := errors.New("x")
	assert.ErrorIs(t, table.Do(t.Context(), 2, func(context.Context, *int) error { return defect }), defect)
	assert.Equal(t, 3, read(t, table, 1))
	require.NoError(t, table.Reset(t.Context(), func(key int) bool { return key == 1 }))
	assert.Equal(t, []int{3}, ended)
	assert.Equal(t, 0, read(t, table, 1))
	assert.Equal(t, 1, read(t, table, 2))
	require.NoError(t, table.Close())
	assert.ElementsMatch(t, []int{3, 0, 1}, ended)
}

func TestSlotsAreBounded(t *testing.T) {
	table := kept.New[int](func(*int) {})
	for key := range kept.Max {
		require.NoError(t, table.Do(t.Context(), key, count))
	}
	err := table.Do(t.Context(), kept.Max, count)
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	assert.Equal(t, "context", tool.AsError(err).Field)
	require.NoError(t, table.Do(t.Context(), 0, count), "one that is there")
	require.NoError(t, table.Reset(t.Context(), each))
	assert.NoError(t, table.Do(t.Context(), kept.Max, count))
}

// TestAnEvaluationThatWaitsForAnEndTakesAnotherSlot, because otherwise its value would never end.
func TestAnEvaluationThatWaitsForAnEndTakesAnotherSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		table := kept.New[int](func(n *int) { ended += *n })
		release, results := make(chan struct{}), make(chan error, 3)
		hold := func(_ context.Context, n *int) error { <-release; *n = 10; return nil }
		go func() { results <- table.Do(t.Context(), 1, hold) }()
		synctest.Wait()
		assert.True(t, table.Busy())
		go func() { results <- table.Reset(t.Context(), each) }()
		synctest.Wait()
		assert.Empty(t, results, "it waits for the evaluation")
		go func() { results <- table.Do(t.Context(), 1, count) }()
		synctest.Wait()
		close(release)
		for range 3 {
			require.NoError(t, <-results)
		}
		assert.False(t, table.Busy())
		assert.Equal(t, 10, ended)
		assert.Equal(t, 1, read(t, table, 1))
		require.NoError(t, table.Close())
		assert.Equal(t, 11, ended, "each value ends, once")
	})
}

func TestCloseCancelsEvaluationsAndResetDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := kept.New[int](func(*int) {})
		results := make(chan error, 2)
		for key := range 2 {
			go func() {
				results <- table.Do(t.Context(), key, func(ctx context.Context, _ *int) error { <-ctx.Done(); return ctx.Err() })
			}()
		}
		synctest.Wait()
		impatient, cancel := context.WithCancel(t.Context())
		reset := make(chan error)
		go func() { reset <- table.Reset(impatient, each) }()
		synctest.Wait()
		cancel()
		assert.ErrorIs(t, <-reset, context.Canceled)
		assert.Empty(t, results)
		require.NoError(t, table.Close())
		for range 2 {
			assert.ErrorIs(t, <-results, context.Canceled)
		}
	})
}

package gate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/gate"
)

func TestCloseCancelsTheCallsAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(t.Context())
		ctx, leave, err := g.Enter(t.Context())
		require.NoError(t, err)
		left := false
		go func() { <-ctx.Done(); left = true; leave() }()
		assert.True(t, g.Close())
		g.Wait()
		assert.True(t, left)
		assert.False(t, g.Close())
		_, _, err = g.Enter(t.Context())
		assert.ErrorIs(t, err, gate.ErrClosed)
	})
}

func TestReplaceEndsTheCallsUnderWayAndKeepsOthersWaiting(t *testing.T) {
	g := gate.NewGeneration(t.Context())
	cause := errors.New("replaced")
	ctx, leave := g.Join(t.Context())
	go func() { <-ctx.Done(); assert.ErrorIs(t, context.Cause(ctx), cause); leave() }()
	renewed := false
	joined := make(chan struct{})
	require.NoError(t, g.Replace(t.Context(), cause, func() error {
		go func() {
			_, leave := g.Join(t.Context())
			assert.True(t, renewed, "it waits for the next generation")
			leave()
			close(joined)
		}()
		renewed = true
		return nil
	}))
	<-joined
	ctx, leave = g.Join(t.Context())
	defer leave()
	assert.NoError(t, ctx.Err(), "the next calls are not ended")
}

func TestEndEndsTheCallsUnderWayAndNoneAfterThem(t *testing.T) {
	g := gate.NewGeneration(t.Context())
	cause := errors.New("ended")
	before, leave := g.Join(t.Context())
	defer leave()
	g.End(t.Context(), cause)
	<-before.Done()
	require.ErrorIs(t, context.Cause(before), cause)
	after, leave := g.Join(t.Context())
	defer leave()
	assert.NoError(t, after.Err())
}

func TestAClosedSetTakesNoMore(t *testing.T) {
	var s gate.Set[int]
	assert.True(t, s.Add(1))
	assert.True(t, s.Add(2))
	s.Remove(1)
	now, ever := s.Count()
	assert.Equal(t, []any{1, int64(2)}, []any{now, ever})
	assert.Equal(t, []int{2}, s.Close())
	assert.False(t, s.Add(3))
}

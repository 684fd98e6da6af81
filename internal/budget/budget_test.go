package budget

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

func TestEachLimitEndsTheWorkAndSaysWhich(t *testing.T) {
	limits := Limits{Out: 10, Memory: 10, Steps: 10}
	for what, charge := range map[string]func(*Budget, int) error{"steps": (*Budget).Step, "more": (*Budget).Out, "memory": (*Budget).Hold} {
		b := New(t.Context(), limits)
		defer b.Close()
		require.NoError(t, charge(b, 10))
		err := charge(b, 1)
		require.ErrorIs(t, err, ErrExceeded)
		assert.Equal(t, tool.Limit, tool.KindOf(err))
		assert.Contains(t, err.Error(), what)
		assert.ErrorIs(t, b.Step(0), ErrExceeded, "what is spent stays spent")
	}
}

func TestReleasedMemoryCanBeHeldAgain(t *testing.T) {
	b := New(t.Context(), Limits{Memory: 10})
	defer b.Close()
	for range 100 {
		require.NoError(t, b.Hold(10))
		b.Release(10)
	}
}

func TestTheTimeEndsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(t.Context(), Limits{Time: time.Second})
		defer b.Close()
		require.NoError(t, b.Step(checkEvery))
		time.Sleep(time.Second)
		synctest.Wait()
		err := b.Step(checkEvery)
		require.ErrorIs(t, err, ErrExceeded)
		assert.Equal(t, tool.Timeout, tool.KindOf(err))
		assert.Contains(t, err.Error(), "1s")
		assert.ErrorIs(t, context.Cause(b.Context()), ErrExceeded)
	})
}

func TestTheCallersEndIsNotTheBudgets(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := New(ctx, Limits{})
	defer b.Close()
	cancel()
	err := b.Check()
	require.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, ErrExceeded)
}

func TestNoneLeavesTheTimeToTheContext(t *testing.T) {
	b := New(t.Context(), Limits{Time: None, Out: None})
	defer b.Close()
	_, has := b.Context().Deadline()
	assert.False(t, has)
	assert.NoError(t, b.Out(1<<40))
}

func TestAPartEndsAloneAndItsWholePaysForIt(t *testing.T) {
	whole := New(t.Context(), Limits{Out: 100, Memory: 100, Steps: 100})
	defer whole.Close()
	for _, charge := range []func(*Budget, int) error{(*Budget).Step, (*Budget).Out, (*Budget).Hold} {
		part := whole.Part(Limits{Out: 40, Memory: 40, Steps: 40})
		require.NoError(t, charge(part, 40))
		require.ErrorIs(t, charge(part, 1), ErrExceeded)
		require.NoError(t, whole.Check(), "the rest goes on")
		part.Close()
		part = whole.Part(Limits{Time: time.Hour})
		require.NoError(t, charge(part, 59))
		part.Close()
	}
	require.NoError(t, whole.Hold(100), "a part that is closed holds nothing")
	part := whole.Part(Limits{Steps: 40})
	defer part.Close()
	require.ErrorIs(t, part.Step(1), ErrExceeded, "the whole is spent")
	require.ErrorIs(t, part.Check(), ErrExceeded)
}

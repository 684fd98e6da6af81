package timing_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/timing"
)

func TestTheMiddleOfTimes(t *testing.T) {
	assert.Zero(t, timing.Samples(nil).Median())
	s := timing.Samples{5, 1, 3, 2, 4}
	assert.Equal(t, time.Duration(3), s.Median())
	assert.Equal(t, time.Duration(5), s.At(1))
	assert.Equal(t, time.Duration(1), s.At(0))
	assert.Equal(t, timing.Samples{5, 1, 3, 2, 4}, s, "its order stays")
}

func TestThingsAreTimedInTurn(t *testing.T) {
	var order string
	do := func(name string) func() error { return func() error { order += name; return nil } }
	got, err := timing.Alternate(1, 2, do("a"), do("b"))
	require.NoError(t, err)
	assert.Equal(t, "ababab", order)
	require.Len(t, got, 2)
	assert.Len(t, got[0], 2)
	broken := errors.New("broken")
	_, err = timing.Alternate(0, 2, do("a"), func() error { return broken })
	assert.ErrorIs(t, err, broken)
}

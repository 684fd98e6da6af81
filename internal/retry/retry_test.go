package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
)

func TestInterruptedEnds(t *testing.T) {
	calls := 0
	_, err := retry.Interrupted(func() (int, error) { calls++; return 0, unix.EINTR })
	assert.ErrorIs(t, err, unix.EINTR)
	assert.Equal(t, 100, calls)
	n, err := retry.Interrupted(func() (int, error) {
		if calls++; calls < 103 {
			return 0, unix.EINTR
		}
		return 7, nil
	})
	assert.NoError(t, err)
	assert.Equal(t, 7, n)
	_, err = retry.Interrupted(func() (int, error) { return 0, unix.EIO })
	assert.ErrorIs(t, err, unix.EIO)
}

func TestDoEndsByItsCountItsContextAndItsError(t *testing.T) {
	busy := func(err error) bool { return errors.Is(err, unix.EBUSY) }
	calls := 0
	fails := func() error { calls++; return unix.EBUSY }
	assert.ErrorIs(t, retry.Times{Count: 3}.Do(context.Background(), busy, fails), unix.EBUSY)
	assert.Equal(t, 3, calls)

	calls = 0
	assert.ErrorIs(t, retry.Times{}.Do(context.Background(), busy, fails), unix.EBUSY)
	assert.Equal(t, 1, calls, "it is called once at least")

	ctx, cancel := context.WithCancel(context.Background())
	calls = 0
	err := retry.Times{Count: 1 << 40, Pause: time.Hour}.Do(ctx, busy, func() error { cancel(); return fails() })
	assert.ErrorIs(t, err, unix.EBUSY)
	assert.Equal(t, 1, calls)

	calls = 0
	assert.ErrorIs(t, retry.Times{Count: 3}.Do(context.Background(), busy, func() error { calls++; return unix.EIO }), unix.EIO)
	assert.Equal(t, 1, calls)
	calls = 0
	assert.NoError(t, retry.Times{Count: 3}.Do(context.Background(), busy, func() error {
		if calls++; calls < 3 {
			return unix.EBUSY
		}
		return nil
	}))
}

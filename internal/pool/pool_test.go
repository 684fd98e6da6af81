package pool_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/pool"
)

// maker counts the values that a pool has made and discarded. Each takes a second to make.
type maker struct {
	made, discarded atomic.Int64
	fails           atomic.Bool
}

func (m *maker) options(least, most int) *pool.Options[int64] {
	return &pool.Options[int64]{Min: least, Max: most, Make: m.make, Discard: func(int64) { m.discarded.Add(1) }}
}

func (m *maker) make(ctx context.Context) (int64, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	n := m.made.Add(1)
	if m.fails.Load() {
		return 0, errors.New("as asked")
	}
	return n, nil
}

func TestAPoolIsFullAgainAfterEachTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		p := pool.New(t.Context(), m.options(2, 2))
		time.Sleep(2 * time.Second)
		assert.Equal(t, pool.Stats{Ready: 2}, p.Stats())
		_, ok := p.Take()
		assert.True(t, ok)
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, pool.Stats{Ready: 1, Making: 1, Taken: 1}, p.Stats())
		time.Sleep(2 * time.Second)
		assert.Equal(t, pool.Stats{Ready: 2, Taken: 1}, p.Stats())
		p.Close()
		assert.EqualValues(t, 2, m.discarded.Load())
		_, ok = p.Take()
		assert.False(t, ok, "it is closed")
	})
}

func TestAPoolGrowsWithItsMissesAndShrinksWhenItIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		p := pool.New(t.Context(), m.options(1, 3))
		defer p.Close()
		for range 9 {
			_, ok := p.Take()
			assert.False(t, ok)
		}
		time.Sleep(5 * time.Second)
		assert.Equal(t, pool.Stats{Ready: 3, Missed: 9}, p.Stats())
		time.Sleep(3 * time.Minute)
		assert.Equal(t, 1, p.Stats().Ready)
		assert.EqualValues(t, 2, m.discarded.Load())
	})
}

// TestTheTakerHasTheProcessorsFirst: making waits a little, but not longer because of frequent
// calls; if no value is left, it doesn't wait.
func TestTheTakerHasTheProcessorsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		p := pool.New(t.Context(), m.options(9, 9))
		defer p.Close()
		time.Sleep(time.Minute)
		take := func() {
			_, ok := p.Take()
			assert.True(t, ok)
			synctest.Wait()
		}
		for range 3 {
			take()
			assert.Zero(t, p.Stats().Making)
			time.Sleep(20 * time.Millisecond)
		}
		assert.Equal(t, 3, p.Stats().Making)
		time.Sleep(time.Minute)
		for range 9 {
			take()
		}
		assert.Equal(t, 4, p.Stats().Making)
	})
}

func TestCloseStopsTheMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		var log bytes.Buffer
		opts := m.options(9, 9)
		opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		p := pool.New(t.Context(), opts)
		synctest.Wait()
		assert.Equal(t, 4, p.Stats().Making, "at once")
		began := time.Now()
		p.Close()
		assert.Zero(t, time.Since(began))
		assert.Zero(t, m.made.Load())
		assert.Zero(t, m.discarded.Load())
		assert.Empty(t, log.String())
	})
}

// TestTheEndTakesNoLongerForMany, because eight are discarded at once.
func TestTheEndTakesNoLongerForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		opts := m.options(16, 16)
		opts.Discard = func(int64) { time.Sleep(time.Second); m.discarded.Add(1) }
		p := pool.New(t.Context(), opts)
		time.Sleep(time.Minute)
		began := time.Now()
		p.Close()
		assert.Equal(t, 2*time.Second, time.Since(began))
		assert.EqualValues(t, 16, m.discarded.Load())
	})
}

// TestWhatIsDroppedIsReplaced, and belongs to the caller.
func TestWhatIsDroppedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		p := pool.New(t.Context(), m.options(2, 2))
		defer p.Close()
		time.Sleep(time.Minute)
		first := func(n int64) bool { return n == 1 }
		assert.Equal(t, []int64{1}, p.Drop(first))
		assert.Empty(t, p.Drop(first))
		time.Sleep(time.Minute)
		assert.Equal(t, 2, p.Stats().Ready)
		assert.Zero(t, m.discarded.Load())
	})
}

func TestAPoolThatCannotMakeTriesLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{}
		m.fails.Store(true)
		p := pool.New(t.Context(), m.options(1, 1))
		defer p.Close()
		time.Sleep(10 * time.Minute)
		assert.Less(t, m.made.Load(), int64(30))
		assert.Greater(t, m.made.Load(), int64(10), "it goes on")
		m.fails.Store(false)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, p.Stats().Ready)
	})
}

func TestTheNilPoolIsEmpty(t *testing.T) {
	var p *pool.Pool[int]
	_, ok := p.Take()
	assert.False(t, ok)
	assert.Zero(t, p.Stats())
	p.Close()
}

package beat_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/beat"
)

func TestItCallsAtIntervalsUntilStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		stop := beat.Every(time.Second, func() { calls++ })
		time.Sleep(3*time.Second + 1)
		stop()
		time.Sleep(time.Minute)
		assert.Equal(t, 3, calls)
	})
}

func TestStopWaitsForACallThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		stop := beat.Every(time.Second, func() { time.Sleep(time.Minute); ended = true })
		time.Sleep(time.Second + 1)
		stop()
		assert.True(t, ended)
	})
}

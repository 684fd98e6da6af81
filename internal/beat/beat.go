// Package beat calls a function at intervals while something else runs.
package beat

import (
	"sync"
	"time"
)

// Every calls do in a goroutine each time d has passed, until stop. When stop returns, do doesn't
// run any more. stop must be called once.
func Every(d time.Duration, do func()) (stop func()) {
	var beats sync.WaitGroup
	done := make(chan struct{})
	beats.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				do()
			}
		}
	})
	return func() { close(done); beats.Wait() }
}

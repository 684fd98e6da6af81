package hosttest

import (
	"context"
	"os"
	"testing"
	"time"
)

// OnceThere returns a context that is cancelled when a file appears at path. A program creates it
// to signal that it has begun, at any speed of the machine.
func OnceThere(t testing.TB, path string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		for end := time.Now().Add(time.Minute); ctx.Err() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(path); err == nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-watched })
	return ctx
}

package hosttest

import (
	"context"
	"os"
	"testing"
	"time"
)

// OnceThere gives a context that is cancelled when a file appears at path: a program
// makes it to say that it has begun, however long the machine takes until then.
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

package javascript

import (
	"slices"
	"time"
)

// WaitLong gives interrupted code a minute to stop.
func (e *Engine) WaitLong() { e.waits = slices.Repeat([]time.Duration{600 * time.Millisecond}, 100) }

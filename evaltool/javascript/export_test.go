package javascript

import (
	"slices"
	"time"
)

// WaitLong gives code that is interrupted a minute to stop.
func (e *Engine) WaitLong() { e.waits = slices.Repeat([]time.Duration{600 * time.Millisecond}, 100) }

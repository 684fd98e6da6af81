// Package patience stretches wisbox's own time limits on slow machines, as WISBOX_SLOW says: how
// long it waits for Podman, a holder, the agent or a lock before it calls that broken. It stretches
// no limit that somebody set, no pause between two looks, and nothing that a check compares.
package patience

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Variable names the setting: how many times longer to wait, from 1 to [Most].
const Variable = "WISBOX_SLOW"

// Most is the largest factor: emulated machines are up to 50 times slower.
const Most = 100

var factor, wrong = read(os.Getenv(Variable))

// Check returns an error if the setting isn't a factor; then it counts as 1.
func Check() error { return wrong }

// For returns the time that an internal wait of d may take on this machine.
func For(d time.Duration) time.Duration { return time.Duration(factor * float64(d)) }

// Factor is how many times longer than usual to wait.
func Factor() float64 { return factor }

func read(text string) (float64, error) {
	if text == "" {
		return 1, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 1 && f <= Most) {
		return 1, fmt.Errorf("%s is %q: it must be a number from 1 to %d, how many times slower than usual this machine is", Variable, text, Most)
	}
	return f, nil
}

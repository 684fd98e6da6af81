package registry

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTheShareOfProcessors(t *testing.T) {
	for _, c := range []struct {
		used, in   time.Duration
		cpus, want float64
	}{
		{time.Second, 2 * time.Second, 1, 50},
		{time.Second, 2 * time.Second, 2, 25},
		{time.Second, time.Second, 0.5, 100}, // late counts don't exceed 100 %
		{time.Second, time.Second, 0, 100},
		{time.Second, 0, 1, 0},
		{time.Second, 3 * time.Second, 1, 33.33},
	} {
		assert.LessOrEqual(t, math.Abs(c.want-share(c.used, c.in, c.cpus)), 1e-9, "%+v", c)
	}
}

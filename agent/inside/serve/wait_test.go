package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent/inside/kernel"
)

// TestASlowStartIsNoLackOfProcesses: no call on a busy machine ends with the verdict of a limit that wasn't reached.
func TestASlowStartIsNoLackOfProcesses(t *testing.T) {
	for name, is := range map[string]struct {
		births, misses int
		waited         time.Duration
		most           int
		waits          bool
	}{
		"one is about to start":         {1, 0, startTime, 0, true},
		"one ended before it was ready": {1, 1, startTime, 0, false},
		"none is being started":         {0, 0, startTime, 0, false},
		"one hangs":                     {1, 0, slowStart, 0, false},
		"others have all there may be":  {0, 0, startTime, 1, true},
		"and don't give them back":      {0, 0, slowStart, 1, false},
		"there may be more":             {0, 0, startTime, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := &server{loop: &loop{}, calls: map[*call]bool{}, events: &kernel.Events{}}, &pool{births: is.births}
			s.opts.Most, s.possible, s.slots = is.most, maxSlots, map[*slot]bool{{}: true}
			s.nobody = &conn{server: s, lost: true}
			c := &call{conn: s.nobody, began: time.Now().Add(-is.waited), misses: p.misses}
			p.waiting, s.calls[c] = []*call{c}, true
			p.misses += is.misses
			s.noProcess(c, p)
			require.Equal(t, is.waits, len(p.waiting) == 1)
			require.Equal(t, is.waits, c.reason == "")
			require.Equal(t, is.waits, len(s.timers) == 1, "it is looked at again")
		})
	}
}

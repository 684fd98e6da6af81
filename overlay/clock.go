package overlay

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

// Stamp is a point in time that survives jumps of the wall clock: the time since a certain boot, including suspend. The
// wall clock is only for display.
type Stamp struct {
	At     time.Time     `json:"at"`
	BootID string        `json:"boot_id"`
	Boot   time.Duration `json:"boot_ns"`
}

// Now returns the current time.
func Now() Stamp {
	var ts unix.Timespec
	_ = unix.ClockGettime(sys.BootClock, &ts) // never fails for this clock
	return Stamp{At: time.Now().UTC().Round(0), BootID: bootID(), Boot: time.Duration(ts.Nano())}
}

var bootID = sync.OnceValue(func() string {
	raw, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(raw))
})

// rebootSlack is the maximum error of a wall clock. Across a reboot only the wall clock measures time, so it must show
// at least this much more.
const rebootSlack = 25 * time.Hour

// passed returns the time that has certainly passed from s to now.
func (s Stamp) passed(now Stamp) time.Duration {
	if s.BootID == now.BootID {
		return now.Boot - s.Boot
	}
	return max(now.Boot, now.At.Sub(s.At)-rebootSlack)
}

// Process identifies a process permanently: its number and start time, in clock ticks since boot. It is only for
// display; locks decide whether a process lives.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start_ticks"`
}

func thisProcess() Process {
	return Process{PID: os.Getpid(), Start: startTicks()}
}

// startTicks reads field 22 of /proc/self/stat, counted after the last ")"
// because the second field is the program's name, which may contain anything.
func startTicks() uint64 {
	raw, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	ticks, _ := strconv.ParseUint(fields[19], 10, 64)
	return ticks
}

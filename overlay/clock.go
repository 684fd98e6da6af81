package overlay

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp is a moment that survives a jump of the wall clock: the time since the
// boot named, suspend included. The wall clock is for people.
type Stamp struct {
	At     time.Time     `json:"at"`
	BootID string        `json:"boot_id"`
	Boot   time.Duration `json:"boot_ns"`
}

// Now is the present moment.
func Now() Stamp {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // it can't fail for this clock
	return Stamp{At: time.Now().UTC().Round(0), BootID: bootID(), Boot: time.Duration(ts.Nano())}
}

var bootID = sync.OnceValue(func() string {
	raw, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(raw))
})

// rebootSlack is what a wall clock may be wrong by. Across a reboot it is the
// only witness of how much time passed, so there it must say this much more.
const rebootSlack = 25 * time.Hour

// passed is the time from s to now that is certain.
func (s Stamp) passed(now Stamp) time.Duration {
	if s.BootID == now.BootID {
		return now.Boot - s.Boot
	}
	return max(now.Boot, now.At.Sub(s.At)-rebootSlack)
}

// Process names a process for good: its number and when it started, in clock
// ticks since boot. It is a note for people; liveness is a matter of locks.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start_ticks"`
}

func thisProcess() Process {
	return Process{PID: os.Getpid(), Start: startTicks()}
}

// startTicks reads field 22 of /proc/self/stat, counted after the last ")"
// because the second field is the program's name, which may hold anything.
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

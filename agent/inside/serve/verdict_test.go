package serve

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/inside/monitor"
)

// told is the agent's knowledge of a call that has ended.
type told struct {
	Wait      int    // the wait status: an exit code << 8, or a signal
	Reason    string // the agent's reason for ending it
	Killed    bool   // an orphan of it was killed
	OOM, PIDs int64  // how often a limit was reached meanwhile
	Shared    bool   // other calls ran meanwhile
}

// TestVerdicts: a limit that was reached is always reported, and it is the verdict if it may have caused the call's
// failure.
func TestVerdicts(t *testing.T) {
	type verdict struct {
		Status       string
		Code, Signal int
		Notices      []string
	}
	memory := []string{"the memory limit was reached and 1 processes were killed for it"}
	processes := []string{"the process limit was reached 2 times"}
	size := []string{"a file reached the size limit"}
	cases := []struct {
		name string
		told told
		want verdict
	}{
		{"an exit", told{}, verdict{"exited", 0, 0, nil}},
		{"a failure", told{Wait: 3 << 8}, verdict{"exited", 3, 0, nil}},
		{"a signal", told{Wait: 11}, verdict{"signaled", 139, 11, nil}},
		{"the time limit", told{Wait: 9, Reason: "timed_out"}, verdict{"timed_out", 124, 0, nil}},
		{"a kill", told{Wait: 9, Reason: "cancelled"}, verdict{"cancelled", 137, 0, nil}},
		{"a lost sandbox", told{Reason: "sandbox_lost"}, verdict{"sandbox_lost", -1, 0, nil}},
		{"no process to start", told{Reason: "pids_limit"}, verdict{"pids_limit", 126, 0, nil}},
		{"memory of the program", told{Wait: 9, OOM: 1}, verdict{"oom_killed", 137, 9, memory}},
		{"memory of a child, reported by a shell", told{Wait: 137 << 8, OOM: 1, Shared: true}, verdict{"oom_killed", 137, 0, memory}},
		{"memory of an orphan", told{Wait: 1 << 8, OOM: 1, Killed: true, Shared: true}, verdict{"oom_killed", 1, 0, memory}},
		{"memory of a child", told{Wait: 1 << 8, OOM: 1}, verdict{"oom_killed", 1, 0, memory}},
		{"memory of a child that was expected", told{OOM: 1, Killed: true}, verdict{"exited", 0, 0, memory}},
		{"memory of another call", told{Wait: 1 << 8, OOM: 1, Shared: true}, verdict{"exited", 1, 0, memory}},
		{"memory before the time limit", told{Wait: 9, OOM: 1, Reason: "timed_out"}, verdict{"timed_out", 124, 0, memory}},
		{"processes", told{Wait: 3 << 8, PIDs: 2}, verdict{"pids_limit", 3, 0, processes}},
		{"processes that it did without", told{PIDs: 2}, verdict{"exited", 0, 0, processes}},
		{"memory, then processes", told{Wait: 9, OOM: 1, PIDs: 2}, verdict{"oom_killed", 137, 9, append(memory, processes...)}},
		{"the size of a file", told{Wait: 25}, verdict{"disk_limit", 153, 25, size}},
		{"the size of a child's file", told{Wait: 153 << 8}, verdict{"disk_limit", 153, 0, size}},
	}
	for _, c := range cases {
		before := kernel.Counts{OOM: 5, PIDs: 7}
		ended := call{
			report: &monitor.Report{Status: syscall.WaitStatus(c.told.Wait), OrphanKilled: c.told.Killed},
			reason: c.told.Reason, shared: c.told.Shared, before: &before,
		}
		exit := ended.verdict(kernel.Counts{OOM: 5 + c.told.OOM, PIDs: 7 + c.told.PIDs})
		assert.Equal(t, c.want, verdict{exit.Status, exit.Code, exit.Signal, exit.Notices}, c.name)
	}
}

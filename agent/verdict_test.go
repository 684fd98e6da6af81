package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// judge gives the verdicts on the calls that are told on its stdin, a line each.
const judge = `
import json, sys
from py.calls import Call
from py.wire import REQUEST
class Events:
    def __init__(self, now): self.now = now
    def read(self): return self.now
for line in sys.stdin:
    told = json.loads(line)
    call = Call(1, bytes(REQUEST.size))
    call.report = (told["Wait"], 0.0, 0.0, 0, told["Killed"])
    call.reason, call.shared, call.before = told["Reason"], told["Shared"], (5, 7)
    print(call.verdict(Events((5 + told["OOM"], 7 + told["PIDs"]))))
`

// told is what the agent knows of a call when it has ended.
type told struct {
	Wait      int    // the wait status: an exit code << 8, or a signal
	Reason    string // why the agent ended it
	Killed    bool   // an orphan of it was
	OOM, PIDs int    // how often a limit was reached meanwhile
	Shared    bool   // other calls ran meanwhile
}

// TestVerdicts: a limit that was reached is told always, and is the verdict where
// it can have been why the call failed.
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
		{"memory of a child, told by a shell", told{Wait: 137 << 8, OOM: 1, Shared: true}, verdict{"oom_killed", 137, 0, memory}},
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
	var lines bytes.Buffer
	for _, c := range cases {
		require.NoError(t, json.NewEncoder(&lines).Encode(c.told))
	}
	cmd := exec.Command("python3", "-B", "-c", judge)
	cmd.Stdin, cmd.Stderr = &lines, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	verdicts := json.NewDecoder(bytes.NewReader(out))
	for _, c := range cases {
		got := verdict{}
		require.NoError(t, verdicts.Decode(&got))
		if len(got.Notices) == 0 {
			got.Notices = nil
		}
		assert.Equal(t, c.want, got, c.name)
	}
}

package agent_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

// childrenOf gives a process's children as this machine numbers them.
func childrenOf(t require.TestingT, pid int) []int {
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	require.NoError(t, err)
	var found []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			require.NoError(t, err)
			found = append(found, child)
		}
	}
	return found
}

// monitors gives the agent's children.
func (f *fixture) monitors(t require.TestingT) []int {
	shell := childrenOf(t, f.cmd.Process.Pid)
	require.Len(t, shell, 1)
	self := childrenOf(t, shell[0])
	require.Len(t, self, 1)
	return childrenOf(t, self[0])
}

func TestAKilledMonitorCostsItsOwnCallOnly(t *testing.T) {
	needsRoot(t)
	f := start(t)
	for range 3 {
		p, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "setsid sleep 4713 & sleep 4713"}, Stdin: neverEnds(t)})
		require.NoError(t, err)
		killed := f.monitors(t)
		for _, pid := range killed {
			require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		}
		got, err := p.Wait(context.Background())
		require.NoError(t, err)
		require.Equal(t, sandbox.StatusSignaled, got.Status)
		require.Equal(t, "KILL", got.Signal)
		for _, pid := range killed { // a call that meets one of them dying would be ended with it
			reaped(t, pid)
		}
		require.Equal(t, "0\n", f.sh(t, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'slee[p] 4713'").out)
	}
}

func TestAStoppedMonitorDoesNotDelayATimeout(t *testing.T) {
	needsRoot(t)
	f := start(t)
	begin := time.Now()
	p, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"sleep", "60"}, Timeout: 500 * time.Millisecond})
	require.NoError(t, err)
	for _, pid := range f.monitors(t) {
		require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	}
	got, err := p.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusTimedOut, got.Status)
	require.Less(t, time.Since(begin), 30*time.Second)
}

// TestStoppingWhatStartsHoldsNoCall: a program may stop what runs as its user, and
// so the one that is on its way to exec with its monitor waiting for it.
func TestStoppingWhatStartsHoldsNoCall(t *testing.T) {
	needsRoot(t)
	f := start(t)
	stopper, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"python3", "-c", `
import os
open("ready", "w")
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try: os.kill(int(name), 19)
            except OSError: pass
`}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(f.dir, "ready"))
		return err == nil
	}, 30*time.Second, time.Millisecond)
	results := make(chan sandbox.Result)
	const calls = 40
	for range calls {
		go func() {
			got, _ := f.Run(context.Background(), sandbox.Cmd{Argv: []string{"echo", "hi"}, Timeout: 500 * time.Millisecond})
			results <- got
		}()
	}
	for range calls {
		select {
		case got := <-results:
			require.Contains(t, []sandbox.Status{sandbox.StatusExited, sandbox.StatusTimedOut}, got.Status)
		case <-time.After(time.Minute):
			t.Fatal("a call never ended")
		}
	}
	require.NoError(t, stopper.Kill())
	_, err = stopper.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, "hi\n", f.sh(t, "echo hi").out)
	require.LessOrEqual(t, f.programs(t), 0)
}

// TestAMonitorThatIsSentAwayLeavesNoZombie: also one that takes its time to go.
func TestAMonitorThatIsSentAwayLeavesNoZombie(t *testing.T) {
	needsRoot(t)
	f := start(t)
	p, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"sleep", "60"}})
	require.NoError(t, err)
	var monitor int
	require.Eventually(t, func() bool {
		for _, pid := range f.monitors(t) {
			if len(childrenOf(t, pid)) > 0 {
				monitor = pid
			}
		}
		return monitor != 0
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, unix.Kill(monitor, unix.SIGSTOP))
	require.NoError(t, p.Kill())
	got, err := p.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusCancelled, got.Status)
	reaped(t, monitor)
}

func reaped(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/" + strconv.Itoa(pid))
		return os.IsNotExist(err)
	}, 30*time.Second, time.Millisecond)
}

func TestEndAllEndsWithTheReasonGiven(t *testing.T) {
	f := start(t)
	var programs []sandbox.Process
	for range 3 {
		p, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"sleep", "60"}})
		require.NoError(t, err)
		programs = append(programs, p)
	}
	f.EndAll(sandbox.StatusDiskLimit)
	for _, p := range programs {
		got, err := p.Wait(context.Background())
		require.NoError(t, err)
		require.Equal(t, sandbox.StatusDiskLimit, got.Status)
		require.Equal(t, 137, got.ExitCode)
	}
	require.Equal(t, "hi\n", f.sh(t, "echo hi").out)
}

func TestACallThatWaitsCanBeCancelled(t *testing.T) {
	f := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	slow := &sandbox.PythonProgram{Name: "slow", Source: "import time\ntime.sleep(30)\ndef main(inp, out): pass"}
	begin := time.Now()
	got, err := f.Run(ctx, sandbox.Cmd{Python: slow, Control: &sandbox.Control{Out: io.Discard}})
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusCancelled, got.Status)
	require.Less(t, time.Since(begin), 30*time.Second)
}

// TestKillingAllInALoopNeverConfusesCalls: a program may kill what runs as its
// user, and so the moment in which another one starts; more it can't do.
func TestKillingAllInALoopNeverConfusesCalls(t *testing.T) {
	needsRoot(t)
	f := start(t)
	begin, trigger := io.Pipe()
	defer trigger.Close()
	killer, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"python3", "-c", `
import os, sys
sys.stdin.readline()
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try: os.kill(int(name), 9)
            except OSError: pass
`}, Stdin: begin})
	require.NoError(t, err)
	// Its own monitor is its user, too, for a moment after it has started.
	require.Equal(t, "hi\n", f.sh(t, "sleep 0.2; echo hi").out)
	_, err = io.WriteString(trigger, "\n")
	require.NoError(t, err)
	for range rounds(30) {
		got := f.run(t, sandbox.Cmd{Argv: []string{"echo", "hi"}, Timeout: time.Minute})
		if got.Status == sandbox.StatusSignaled {
			require.Equal(t, "KILL", got.Signal)
			continue
		}
		require.Equal(t, sandbox.StatusExited, got.Status)
		require.Equal(t, "hi\n", got.out)
	}
	require.NoError(t, killer.Kill())
	got, err := killer.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusCancelled, got.Status)
	require.Equal(t, "hi\n", f.sh(t, "echo hi").out)
	require.LessOrEqual(t, f.programs(t), 0)
}

// TestAChangedRankIsNotHandedOn: what a program does to the priority of a
// starting process doesn't reach the calls after it.
func TestAChangedRankIsNotHandedOn(t *testing.T) {
	needsRoot(t)
	f := start(t)
	slower, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"python3", "-c", `
import os
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try: os.setpriority(os.PRIO_PROCESS, int(name), 19)
            except OSError: pass
`}})
	require.NoError(t, err)
	for range rounds(30) {
		require.Equal(t, "hi\n", f.run(t, sandbox.Cmd{Argv: []string{"echo", "hi"}, Timeout: time.Minute}).out)
	}
	require.NoError(t, slower.Kill())
	_, err = slower.Wait(context.Background())
	require.NoError(t, err)
	for range 5 {
		require.Equal(t, "10\n", f.run(t, sandbox.Cmd{Argv: []string{"nice"}}).out)
	}
}

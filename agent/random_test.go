package agent_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// shapes are programs that leave something behind, or try to, in many ways.
var shapes = []string{
	"true",
	"exit 7",
	"sleep 4720 & exit 0",
	"setsid sleep 4720 & echo hi",
	"(setsid sh -c 'sleep 4720 & sleep 4720' &) ; exit 3",
	"trap '' TERM HUP INT; sleep 4720 & sleep 0.02",
	"exec >&- 2>&- <&-; sleep 0.01",
	"kill -9 $$",
	"kill -STOP $$",
	"nohup sleep 4720 >/dev/null 2>&1 &",
	"for i in 1 2 3 4 5; do (sleep 4720 &) ; done",
	"head -c 200000 /dev/zero",
	"yes | head -c 100000; exit 141",
	"cat",
	"sleep 4720",
	"ulimit -u 0; sleep 4720 &",
	"mkfifo p$$; cat p$$",
}

// TestRandomProgramsLeaveNothing: 10,000 of them under `make soak`.
func TestRandomProgramsLeaveNothing(t *testing.T) {
	needsRoot(t)
	f := start(t)
	f.someRandom(t, 40) // what stays open or running from now on is a leak
	monitors := len(f.monitors(t))
	open := descriptors(t, f.agentPID(t))
	n := 300
	if os.Getenv("WISBOX_SOAK") != "" {
		n = 10_000
	}
	f.someRandom(t, n)
	require.LessOrEqual(t, f.programs(t), 0)
	require.Eventually(t, func() bool {
		return len(f.monitors(t)) <= monitors+1 && descriptors(t, f.agentPID(t)) <= open+8
	}, 30*time.Second, 50*time.Millisecond, "monitors and descriptors stay few")
}

// someRandom runs n programs of random shapes, eight at a time.
func (f *fixture) someRandom(t *testing.T, n int) {
	t.Helper()
	work := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range work {
				cmd := sandbox.Cmd{
					Argv: []string{"bash", "-c", shapes[rand.IntN(len(shapes))]}, Timeout: time.Duration(1+rand.IntN(100)) * time.Millisecond,
					Stdin: strings.NewReader("some input\n"), Stdout: io.Discard, Stderr: io.Discard,
				}
				if rand.IntN(4) == 0 {
					cmd.TTY = &sandbox.WinSize{Cols: 80, Rows: 24}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rand.IntN(200))*time.Millisecond)
				_, err := f.Run(ctx, cmd)
				cancel()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	workers.Wait()
}

// agentPID is the agent's number on this machine.
func (f *fixture) agentPID(t require.TestingT) int {
	shell := childrenOf(t, f.cmd.Process.Pid)
	require.Len(t, shell, 1)
	self := childrenOf(t, shell[0])
	require.Len(t, self, 1)
	return self[0]
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	require.NoError(t, err)
	return len(fds)
}

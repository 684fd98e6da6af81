package integration

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

// ledger lists the kernel's counters that sessions share, by their names in testdata/ledger.py, with the minimum and
// maximum for a session and the effect on its neighbour.
var ledger = []struct {
	counter     string
	least, most int
	neighbour   string
}{
	{"inotify", 8, 128, "ok"},
	{"watches", 1000, 65_536, "ok"},
	{"signals", 100, 1024, "ok"},
	{"timers", 100, 1024, "ok"},
	{"aio", 0, 0, "ENOSYS"},
	{"terminals", 16, 64, "ok"},
	{"descriptors", 1, 1 << 20, "ok"},
	{"queues", 1, 1, "ok"},
	{"pipes", 1, 1 << 20, "ok"},
	{"files", 1000, 1 << 40, "ok"},
	{"polled", 1000, 1 << 40, "ok"},
	{"locks", 10, 1 << 40, "ok"},
	{"locked", 100, 1 << 40, "ok"},
}

// TestOneSessionLeavesTheOthersAndTheHostTheirShare: a session takes and holds all that it can of each counter by user,
// by owner of a user namespace or by machine. Another session and the host's root still get some.
func TestOneSessionLeavesTheOthersAndTheHostTheirShare(t *testing.T) {
	hosttest.Slow(t)
	if env.isolation == sandbox.IsolationGVisor {
		return // gVisor's programs have separate counters
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		hosttest.Lacks(t, "no python3 to look with as the host's root")
	}
	source, err := os.ReadFile("testdata/ledger.py")
	require.NoError(t, err)
	greedy, neighbour := open(t, nil), open(t, nil)
	gaps := gapsOf(t, neighbour)
	for _, s := range []*wisbox.Session{greedy, neighbour} {
		call(t, s, "shell_execute", args{"script": "cat >ledger.py", "stdin": string(source)})
	}
	for _, c := range ledger {
		t.Run(c.counter, func(t *testing.T) {
			taken, why := takeAll(t, greedy, c.counter)
			t.Logf("one session gets %d: %s", taken, why)
			if os.Getuid() != 0 && gaps != "" {
				t.Logf("not all of it is bounded on this host, and wisbox says so: %s", gaps)
				return
			}
			assert.GreaterOrEqual(t, taken, c.least)
			assert.LessOrEqual(t, taken, c.most)
			assert.Equal(t, c.neighbour, tries(t, neighbour, c.counter), "the neighbour")
			host := exec.Command(python, "-", "try", c.counter)
			host.Stdin = bytes.NewReader(source)
			out, err := host.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, "ok", strings.TrimSpace(string(out)), "the host's root")
			if c.counter == "descriptors" || c.counter == "terminals" {
				assert.Equal(t, "/dev/pts/0\n", atTTY(t, neighbour), "a terminal is a descriptor that is sent")
			}
		})
	}
}

func gapsOf(t *testing.T, s *wisbox.Session) string {
	t.Helper()
	output(t, s, "true")
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	return strings.Join(in.Gaps, "; ")
}

// takeAll makes a session exhaust a counter until the test ends.
func takeAll(t *testing.T, s *wisbox.Session, counter string) (taken int, why string) {
	t.Helper()
	in, stop := io.Pipe()
	said, out := io.Pipe()
	ended := make(chan struct{})
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"python3", "ledger.py", "take", counter}, Stdin: in, Stdout: out, Stderr: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = stop.Close()
		assert.NoError(t, p.Kill())
		<-ended
	})
	go func() {
		defer close(ended)
		_, err := p.Wait(context.WithoutCancel(t.Context()))
		assert.NoError(t, err)
		_ = out.Close()
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)
	number, why, _ := strings.Cut(strings.TrimSpace(line), " ")
	taken, err = strconv.Atoi(number)
	require.NoError(t, err)
	return taken, why
}

func tries(t *testing.T, s *wisbox.Session, counter string) string {
	t.Helper()
	return strings.TrimSpace(output(t, s, "python3 ledger.py try "+counter))
}

func atTTY(t *testing.T, s *wisbox.Session) string {
	t.Helper()
	var out bytes.Buffer
	_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"tty"}, Stdout: &out, TTY: &sandbox.WinSize{Cols: 80, Rows: 24}})
	require.NoError(t, err)
	return strings.ReplaceAll(out.String(), "\r", "")
}

// TestWhatWaitsInSocketsIsBounded: cgroup v1 doesn't count the memory of TCP and UDP unless they have a separate limit.
func TestWhatWaitsInSocketsIsBounded(t *testing.T) {
	source, err := os.ReadFile("testdata/unread.py")
	require.NoError(t, err)
	opts := wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 128 << 20}}
	unlessUnenforced(t, opts, "memory", func(t *testing.T, s *wisbox.Session) {
		call(t, s, "shell_execute", args{"script": "cat >unread.py", "stdin": string(source)})
		for _, kind := range []string{"stream", "dgram", "seqpacket", "pipe", "tcp", "udp", "netlink"} {
			t.Run(kind, func(t *testing.T) {
				a := script(t, s, "python3 unread.py "+kind)
				if env.isolation == sandbox.IsolationGVisor { // buffers are in gVisor's own memory, which the host bounds
					assert.Contains(t, endsOfGVisor, a.str("status"), "%v", a)
					assert.Equal(t, "next\n", recovered(t, s, "echo next"))
					return
				}
				if a.str("status") == "oom_killed" {
					return
				}
				require.Equal(t, "exited", a.str("status"), "%v", a)
				held, err := strconv.Atoi(strings.TrimSpace(a.str("stdout")))
				require.NoError(t, err, "%v", a)
				assert.LessOrEqual(t, held, 128, "MiB wait unread")
			})
		}
		assert.Equal(t, "ok\n", output(t, s, `python3 -c "
import socket
s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); a, _ = s.accept()
c.sendall(b'ok'); print(a.recv(2).decode())"`), "what waited is gone with its programs")
	})
}

// TestOrdinaryThingsWorkWithinTheBounds that shared counters have.
func TestOrdinaryThingsWorkWithinTheBounds(t *testing.T) {
	source, err := os.ReadFile("testdata/ordinary.py")
	require.NoError(t, err)
	s := open(t, nil)
	out := runWith(t, s, bytes.NewReader(source), "python3", "-")
	if env.isolation == sandbox.IsolationGVisor { // see docs/gvisor.md
		assert.Equal(t, 8, strings.Count(out, "OK "), out)
		return
	}
	assert.NotContains(t, out, "BROKEN")
	assert.Equal(t, 10, strings.Count(out, "OK "), out)
}

// TestNothingRestsOnTheOrderOfTheKernelsKills: a program may lower its score for out-of-memory kills; then the kernel
// may kill the agent, which is restarted.
func TestNothingRestsOnTheOrderOfTheKernelsKills(t *testing.T) {
	opts := wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 96 << 20}}
	unlessUnenforced(t, opts, "memory", func(t *testing.T, s *wisbox.Session) {
		output(t, s, "echo kept >f")
		for range 3 {
			_, err := try(t, s, "shell_execute", args{"script": "echo 0 >/proc/self/oom_score_adj\nfor i in $(seq 60); do python3 -S -c 'b = bytearray(b\"x\" * (4 << 20)); import time; time.sleep(5)' & done; wait"})
			if err != nil {
				assert.Contains(t, []string{"sandbox_lost", "unavailable"}, string(kind(err)))
			}
			assert.Equal(t, "kept\n", recovered(t, s, "cat f"))
		}
	})
}

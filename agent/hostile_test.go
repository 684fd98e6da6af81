package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// limited is a script with a limit on processes that keeps the machine safe.
func limited(script string) []string {
	return []string{"python3", "-c", "import resource\nresource.setrlimit(resource.RLIMIT_NPROC,(250,250))\n" + script}
}

// rounds is how often something is tried: ten times as often by `make soak`.
func rounds(n int) int {
	if os.Getenv("WISBOX_SOAK") != "" {
		return 10 * n
	}
	return n
}

// programs counts the processes that run as the programs' user, but for the
// one that counts.
func (f *fixture) programs(t testing.TB) int {
	t.Helper()
	got := f.sh(t, `n=0; for p in /proc/[0-9]*; do read -r s < $p/cmdline 2>/dev/null; grep -qs '^Uid:.1000' $p/status && n=$((n+1)); done; echo $n`)
	n, err := strconv.Atoi(strings.TrimSpace(got.out))
	require.NoError(t, err)
	return n - 2 // bash and the grep of the moment
}

func needsRoot(t testing.TB) {
	if os.Geteuid() != 0 {
		t.Skip("without uid 0 programs run as the agent's own user")
	}
}

// tree is the common part of the scripts of process trees: it retries fork until there is room, and up reports a
// complete tree.
const tree = `
import os,signal,time
def up(): os.write(1,b'up')
def fork():
 while True:
  try: return os.fork()
  except OSError: time.sleep(0.01)
`

func TestTreesThatResistAreKilled(t *testing.T) {
	needsRoot(t)
	f := start(t)
	for name, script := range map[string]string{ // each says when all of it is there
		"double fork": `
if fork()==0:
 os.setsid()
 if fork()==0: up(); time.sleep(99)
 os._exit(0)
os.wait(); time.sleep(99)`,
		"bomb": `
while True:
 try: os.fork()
 except OSError: up()`,
		"runner": `
for i in range(20):
 if fork()==0:
  while True:
   try:
    if os.fork(): os._exit(0)
    os.setsid()
   except OSError: pass
up(); time.sleep(99)`,
		"deep": `
for s in range(1,32):
 try: signal.signal(s,signal.SIG_IGN)
 except OSError: pass
for i in range(60):
 if fork(): break
 os.setsid()
else: up()
os.kill(os.getpid(),signal.SIGSTOP)
time.sleep(99)`,
	} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			p, err := f.Start(context.Background(), sandbox.Cmd{Argv: limited(tree + script), Stdout: w, Stderr: os.Stderr})
			require.NoError(t, err)
			go func() {
				_, _ = p.Wait(context.Background())
				w.Close()
			}()
			_, err = io.ReadFull(r, make([]byte, 2))
			require.NoError(t, err)
			require.NoError(t, r.Close()) // a bomb goes on saying so
			require.NoError(t, p.Kill())
			got, err := p.Wait(context.Background())
			require.NoError(t, err)
			require.Equal(t, sandbox.StatusCancelled, got.Status)
			require.LessOrEqual(t, f.programs(t), 0)
		})
	}
}

func TestKillOfAllReachesNothingOfOurs(t *testing.T) {
	needsRoot(t)
	f := start(t)
	got := f.sh(t, "kill -9 -1; for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || kill -9 ${p#/proc/} 2>/dev/null; done; kill -STOP $PPID 2>/dev/null; echo alive")
	require.Equal(t, "alive\n", got.out)
	require.NoError(t, f.Ping(context.Background()))
	require.Equal(t, "hi\n", f.sh(t, "echo hi").out)
}

func TestAgentIsOutOfReach(t *testing.T) {
	needsRoot(t)
	f := start(t)
	got := f.sh(t, `for p in /proc/[0-9]*; do
  grep -qs '^Uid:.0' $p/status || continue
  for x in mem environ fd/0 fd/1 fd/3; do (exec 9<>$p/$x) 2>/dev/null && echo opened $p/$x; done
  ls $p/fd >/dev/null 2>&1 && echo listed $p
  echo 0 2>/dev/null >$p/oom_score_adj && echo wrote $p
done; true`)
	require.Equal(t, "", got.out)
}

func TestOneCallDoesNotEndAnother(t *testing.T) {
	f := start(t)
	p, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "setsid sleep 31337 & cat"}, Stdin: neverEnds(t)})
	require.NoError(t, err)
	for range 5 {
		f.run(t, sandbox.Cmd{Argv: []string{"sh", "-c", "setsid sleep 30 & sleep 30"}, Timeout: 50 * time.Millisecond})
	}
	// The shell that has it in its script, and the sleep itself: the shell may not have come to it yet.
	require.Eventually(t, func() bool {
		return f.sh(t, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -oE 'sleep 3133[7]' | wc -l").out == "2\n"
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, p.Kill())
	got, err := p.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusCancelled, got.Status)
	require.True(t, got.Shared)
}

func neverEnds(t testing.TB) io.Reader {
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return r
}

func TestSpinningProgramsDoNotDelayATimeout(t *testing.T) {
	f := start(t)
	begin := time.Now()
	spin := "import os\nfor i in range(200):\n if os.fork()==0:\n  while True: pass\nwhile True: pass"
	got := f.run(t, sandbox.Cmd{Argv: limited(spin), Timeout: time.Second})
	require.Equal(t, sandbox.StatusTimedOut, got.Status)
	require.Less(t, time.Since(begin), time.Minute)
}

func TestEndlessOutputCostsNoMemory(t *testing.T) {
	f := start(t)
	patiently(t, time.Second, func(limit time.Duration) (did bool) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		got, err := f.Run(context.Background(), sandbox.Cmd{
			Argv: []string{"yes"}, Timeout: limit, Stdout: io.Discard,
			Capture: &sandbox.Capture{Forward: 8 << 20, Tail: 16 << 10},
		})
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		require.Equal(t, sandbox.StatusTimedOut, got.Status)
		t.Logf("%d MiB in %v, and %d KiB of memory", got.Stdout.Bytes>>20, limit, (int64(after.Sys)-int64(before.Sys))>>10)
		if got.Stdout.Bytes < 16<<20 { // more than was forwarded
			return false
		}
		require.Len(t, got.Stdout.Tail, 16<<10)
		require.Less(t, int64(after.Sys)-int64(before.Sys), int64(8<<20))
		return true
	})
}

// stuck is a writer that blocks until it is let go.
type stuck struct{ free chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.free
	return len(p), nil
}

func TestABlockedWriterStopsOnlyItsOwnProgram(t *testing.T) {
	f := start(t)
	w := stuck{make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan sandbox.Result)
	go func() {
		got, _ := f.Run(ctx, sandbox.Cmd{Argv: []string{"yes"}, Stdout: w})
		done <- got
	}()
	for range 5 {
		require.Equal(t, "hi\n", f.sh(t, "echo hi").out)
	}
	cancel()
	got := <-done
	require.Equal(t, sandbox.StatusCancelled, got.Status)
	close(w.free)
}

func TestManyAtOnce(t *testing.T) {
	f := start(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			var out bytes.Buffer
			got, err := f.Run(context.Background(), sandbox.Cmd{Argv: []string{"sh", "-c", "head -c 300000 /dev/zero; echo " + strconv.Itoa(i)}, Stdout: &out})
			assert.NoError(t, err)
			assert.Equal(t, 0, got.ExitCode)
			assert.Equal(t, 300001+len(strconv.Itoa(i)), out.Len())
		})
	}
	wg.Wait()
}

// TestProgramsEndWithTheirConnection: those of another one stay.
func TestProgramsEndWithTheirConnection(t *testing.T) {
	f := start(t)
	other := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	stays, err := other.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "4716"}})
	require.NoError(t, err)
	var out bytes.Buffer
	_, err = f.Start(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "setsid sleep 4715 & sleep 4715"}, Stdout: &out})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	const count = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'slee[p] 471%d'"
	next := &fixture{dial(t, f.cmd), f.dir, f.cmd}
	require.Equal(t, "0\n", next.sh(t, fmt.Sprintf(count, 5)).out, "the agent says hello when they have ended")
	if os.Geteuid() == 0 { // else this machine's processes are listed
		require.NotEqual(t, "0\n", other.sh(t, fmt.Sprintf(count, 6)).out)
	}
	require.NoError(t, stays.Kill())
	_, err = stays.Wait(t.Context())
	require.NoError(t, err)
}

// TestTheAgentEndsWithItsHosts, and everything of it does.
func TestTheAgentEndsWithItsHosts(t *testing.T) {
	f := start(t)
	_, err := f.Start(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "setsid sleep 60 & sleep 60"}})
	require.NoError(t, err)
	f.cmd.End()
	ended := make(chan error, 1)
	go func() { ended <- f.cmd.Wait() }() // the namespace's first process waits for the agent
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the agent stays")
	}
}

func TestALostAgentIsAResult(t *testing.T) {
	f := start(t)
	p, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"sleep", "60"}})
	require.NoError(t, err)
	require.NoError(t, f.cmd.Process.Kill())
	got, err := p.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusSandboxLost, got.Status)
	require.Equal(t, -1, got.ExitCode)
	_, err = f.Run(context.Background(), sandbox.Cmd{Argv: []string{"true"}})
	require.ErrorIs(t, err, sandbox.ErrLost)
}

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// load is the load of a server: each caller runs its commands one after the other, at most perSecond in total unless
// that is 0.
type load struct{ sandboxes, commands, callers, perSecond int }

// wanted returns a short load, or the full one: WISBOX_LOAD_SECONDS of 500 commands per second in 50 sandboxes, which
// takes longer on a slow machine.
func wanted() load {
	seconds, err := strconv.Atoi(os.Getenv("WISBOX_LOAD_SECONDS"))
	if err != nil {
		return load{sandboxes: 4, commands: 400, callers: 16}
	}
	return load{sandboxes: 50, commands: 500 * seconds, callers: 64, perSecond: 500}
}

// made is a sandbox with the token of its programs.
type made struct {
	SandboxID       string
	EnvdAccessToken string
}

// leastShare is the minimum share of the host's own rate of the same command, if the machine can't reach perSecond.
const leastShare = 0.5

// TestManyCommandsFailNoneAndHoldNoMemory sends commands like the SDK. For the full load it reports the requested rate,
// the reached rate, and the host's own.
func TestManyCommandsFailNoneAndHoldNoMemory(t *testing.T) {
	w, l := newWorld(t), wanted()
	s := w.serve()
	key := w.wisbox("serve", "key", "create", "--sandboxes", "100", "--per-minute", "1000")
	boxes := make([]made, l.sandboxes)
	var making errgroup.Group
	making.SetLimit(4)
	for i := range boxes {
		making.Go(func() error {
			if code := s.ask(key, "POST", "/v2/sandboxes", `{"timeout":3600}`, &boxes[i]); code != http.StatusCreated {
				return fmt.Errorf("create: %d", code)
			}
			return nil
		})
	}
	require.NoError(t, making.Wait())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.callers}}
	defer client.CloseIdleConnections()
	command := func(i int) error { return s.bash(t.Context(), client, boxes[i%len(boxes)], "true") }
	first := l
	first.commands = l.commands / 3
	first.run(t, command) // allocate what is allocated only once
	before, processes := w.memory()
	took, elapsed := l.run(t, command)
	after, _ := w.memory()
	reached := float64(len(took)) / elapsed.Seconds()
	t.Logf("%d sandboxes, %d commands from %d callers in %v: %.0f a second, median %v, p99 %v; %d processes of wisbox's have %d KiB, %d before",
		l.sandboxes, len(took), l.callers, elapsed, reached, took[len(took)/2], took[len(took)*99/100], processes, after>>10, before>>10)
	assert.Less(t, after, before+32<<20+int64(processes)<<18, "memory grows with the commands")
	if l.perSecond > 0 {
		l.compare(t, reached)
	}
	for _, b := range boxes {
		assert.Equal(t, http.StatusNoContent, s.ask(key, "DELETE", "/sandboxes/"+b.SandboxID, "", nil))
	}
	require.Eventually(t, func() bool { return len(w.sandboxes()) == 0 }, 4*hangGuard, 10*time.Millisecond)
}

// compare compares the reached rate with the requested one or, if it is lower, with the host's rate without a server or
// sandbox.
func (l load) compare(t *testing.T, reached float64) {
	t.Helper()
	floor := l
	floor.perSecond, floor.commands = 0, l.commands/10
	took, elapsed := floor.run(t, hostBash)
	host := float64(len(took)) / elapsed.Seconds()
	verdict := "met"
	if reached < 0.99*float64(l.perSecond) { // the pace is never exact
		verdict = "NOT MET"
		assert.Greater(t, reached, leastShare*host, "commands a second, where the host alone does %.0f", host)
	}
	t.Logf("%d commands a second were asked for, %.0f reached: %s; the host alone does %.0f, of which that is %.2f", l.perSecond, reached, verdict, host, reached/host)
}

// hostBash runs the same command on the host, without the user's profile.
func hostBash(int) error {
	cmd := exec.Command("/bin/bash", "-l", "-c", "true")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	return cmd.Run()
}

// run runs all commands, and returns their sorted durations.
func (l load) run(t *testing.T, do func(i int) error) (took []time.Duration, elapsed time.Duration) {
	t.Helper()
	pace := rate.NewLimiter(rate.Inf, 0)
	if l.perSecond > 0 {
		pace = rate.NewLimiter(rate.Limit(l.perSecond), l.callers)
	}
	took = make([]time.Duration, l.commands)
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range l.callers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= l.commands || !assert.NoError(t, pace.Wait(t.Context())) {
					return
				}
				began := time.Now()
				if !assert.NoError(t, do(i)) {
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	elapsed = time.Since(began)
	slices.Sort(took)
	return took, elapsed
}

// bash runs a command like the SDK's commands.run, and reads its answer to the end.
func (s *server) bash(ctx context.Context, client *http.Client, b made, command string) error {
	message, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-l", "-c", command}}})
	if err != nil {
		return err
	}
	n := len(message)
	body := append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, message...)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/process.Process/Start", bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "X-Access-Token": b.EnvdAccessToken,
		"E2b-Sandbox-Id": b.SandboxID, "E2b-Sandbox-Port": "49983",
	} {
		r.Header.Set(name, value)
	}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"status":"exit status 0"`)) || !bytes.HasSuffix(answer, []byte("\x02\x00\x00\x00\x02{}")) {
		return fmt.Errorf("%d: %q", res.StatusCode, answer)
	}
	return nil
}

// ours reports whether a process, by its directory in /proc, is the server, a holder of its sandboxes, or a process of
// wisbox in them, which has the agent of our state root mounted.
func (w *world) ours(dir string) bool {
	name, _ := os.ReadFile(filepath.Join(dir, "comm"))
	if strings.HasPrefix(string(name), "wisbox-agent") || strings.HasPrefix(string(name), "wisbox-monitor") {
		mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo"))
		return strings.Contains(string(mounts), w.cache+"/")
	}
	command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
	return strings.HasPrefix(string(command), w.bin+"\x00") && strings.Contains(string(environ), "WISBOX_CACHE="+w.cache+"\x00")
}

// memory returns the memory of these processes in bytes, and their number.
func (w *world) memory() (sum int64, processes int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if !w.ours(dir) {
			continue
		}
		rollup, _ := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
		for line := range strings.Lines(string(rollup)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				kib, err := strconv.ParseInt(f[1], 10, 64)
				require.NoError(w.t, err)
				sum += kib << 10
				processes++
			}
		}
	}
	return sum, processes
}

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

// load is how much is asked of a server: as many commands, one after the other from each
// caller; perSecond of them where that isn't 0.
type load struct{ sandboxes, commands, callers, perSecond int }

// wanted is a short load, or the whole one: WISBOX_LOAD_SECONDS of 500 commands a second in
// 50 sandboxes.
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

// TestManyCommandsFailNoneAndHoldNoMemory: each as the SDK sends it.
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
	third := l
	third.commands = l.commands / 3
	third.run(t, command) // what comes once is there
	before, processes := w.memory()
	rest := l
	rest.commands = l.commands - third.commands
	took, elapsed := rest.run(t, command)
	after, _ := w.memory()
	t.Logf("%d sandboxes, %d commands from %d callers: %.0f a second, median %v, p99 %v; %d processes of wisbox's have %d KiB, %d before",
		l.sandboxes, len(took), l.callers, float64(len(took))/elapsed.Seconds(), took[len(took)/2], took[len(took)*99/100], processes, after>>10, before>>10)
	assert.Less(t, after, before+32<<20+int64(processes)<<20, "memory grows with the commands")
	if l.perSecond > 0 {
		floor := l
		floor.perSecond, floor.commands = 0, l.commands/10
		took, elapsed = floor.run(t, hostBash)
		t.Logf("the same on the host, without any server: %.0f a second, median %v", float64(len(took))/elapsed.Seconds(), took[len(took)/2])
	}
	for _, b := range boxes {
		assert.Equal(t, http.StatusNoContent, s.ask(key, "DELETE", "/sandboxes/"+b.SandboxID, "", nil))
	}
	require.Eventually(t, func() bool { return len(w.sandboxes()) == 0 }, 4*hangGuard, 10*time.Millisecond)
}

// hostBash is the same command on the host, without the profile of whoever runs this.
func hostBash(int) error {
	cmd := exec.Command("/bin/bash", "-l", "-c", "true")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	return cmd.Run()
}

// run runs all commands, and gives how long each took, in order.
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

// bash runs a command as the SDK's commands.run does, and reads its answer to the end.
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

// memory is what the server and the holders of its sandboxes have, in bytes.
func (w *world) memory() (sum int64, processes int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if !strings.HasPrefix(string(command), w.bin+"\x00") || !strings.Contains(string(environ), "WISBOX_CACHE="+w.cache+"\x00") {
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

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// The tests of this file run a few rounds by default. `make soak T=4h` sets WISBOX_SOAK to 4h, for as many rounds as in
// four hours of use, run as fast as this machine can.

// rounds returns the number of rounds: few, or perHour for each hour of WISBOX_SOAK.
func rounds(t *testing.T, few, perHour int) int {
	t.Helper()
	if !soaking() {
		return few
	}
	d, err := time.ParseDuration(os.Getenv("WISBOX_SOAK"))
	require.NoError(t, err, "WISBOX_SOAK")
	return max(few, int(d.Hours()*float64(perHour)))
}

func soaking() bool { return os.Getenv("WISBOX_SOAK") != "" }

// TestFault_F40_TheOwnerIsKilledAtRandom: four hours are 1,000 kills.
func TestFault_F40_TheOwnerIsKilledAtRandom(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	id := mark()
	var kept []promise
	for i := range rounds(t, 8, 250) {
		cmd, out := h.helper("calls", "box", fmt.Sprint("r", i), id)
		if i%4 > 0 { // otherwise while it opens its sessions
			require.True(t, out.Scan())
		}
		soonKilled := sync.OnceFunc(func() { time.AfterFunc(rand.N(time.Second), func() { _ = cmd.Process.Kill() }) })
		if i != 1 { // an earlier round has made a promise
			soonKilled()
		}
		for out.Scan() {
			var p promise
			if json.Unmarshal(out.Bytes(), &p) == nil { // the last line may be cut
				kept = append(kept, p)
				soonKilled()
			}
		}
		_ = cmd.Wait()
		require.Equal(t, -1, cmd.ProcessState.ExitCode(), "it was killed and did not fail")
	}
	requireAwake(t, id)
	require.NotEmpty(t, kept)
	h.do("prune")
	assert.Equal(t, []string{"box"}, h.sessions())
	assert.LessOrEqual(t, h.containers(), 1)
	s, err := h.manager().Attach(t.Context(), "box")
	require.NoError(t, err)
	requireKept(t, s, kept)
	out, errs, _ := command(t, h.cache, "log", "verify", "box") // it may end with 1: a kill can cut the last record
	require.Contains(t, out, "records; head", "the log was not verified: %s", errs)
	assert.NotRegexp(t, `: (changed|removed|added|no_head):`, out)
	require.NoError(t, s.Close(t.Context()))
	h.do("session", "rm", "box")
	h.requireNothing()
}

// requireKept looks for every promised write, then restores every snapshot.
func requireKept(t *testing.T, s *wisbox.Session, kept []promise) {
	t.Helper()
	look := func(p promise) {
		raw, err := fs.ReadFile(s.Files(), p.File)
		require.NoError(t, err, "%+v", p)
		require.Equal(t, p.File, string(raw))
	}
	var snapshots []promise
	for _, p := range kept {
		if p.Snapshot != "" {
			snapshots = append(snapshots, p)
		} else {
			look(p)
		}
	}
	for _, p := range snapshots {
		call(t, s, "snapshot_restore", args{"snapshot_id": p.Snapshot})
		if p.File != "" {
			look(p)
		}
	}
	t.Logf("%d acknowledged writes and %d snapshots are there", len(kept)-len(snapshots), len(snapshots))
}

// helpCalls makes random calls in a kept session and in its own session until it is killed, and prints the promises.
func helpCalls(ctx context.Context, m *wisbox.Manager, argv []string) error {
	kept, err := m.Attach(ctx, argv[0])
	if err != nil {
		return err
	}
	own, err := m.Open(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Println("open")
	out := json.NewEncoder(os.Stdout)
	agents := []*agentAtWork{
		{s: kept, name: argv[1], sleep: argv[2], promise: func(p promise) { _ = out.Encode(p) }},
		{s: own, name: argv[1], sleep: argv[2]},
	}
	for {
		if err := agents[min(1, rand.N(4)/3)].step(ctx); err != nil {
			return err
		}
	}
}

// TestFault_F34_CommandsAreKilledAtRandom: create, exec, write and delete in many processes at once, some of which are
// killed.
func TestFault_F34_CommandsAreKilledAtRandom(t *testing.T) {
	h := newHome(t)
	id := mark()
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range rounds(t, 1, 10) {
				h.killedRound(fmt.Sprintf("w%d-%d", w, i), id)
			}
		})
	}
	workers.Wait()
	requireAwake(t, id)
	for _, name := range h.sessions() { // a kept session is nobody's orphan
		h.do("session", "rm", name)
	}
	h.requireNothing()
}

func (h *home) killedRound(name, sleep string) {
	for _, argv := range [][]string{
		{"session", "create", name},
		{"exec", name, "--", "sh", "-c", "setsid sleep " + sleep + " & echo x > f"},
		{"call", name, "write_file", `{"file_path":"g","content":"x"}`},
		{"session", "rm", name},
	} {
		cmd := h.command(argv...)
		if err := cmd.Start(); err != nil {
			h.t.Error(err)
			return
		}
		if rand.N(3) == 0 {
			time.AfterFunc(rand.N(600*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
		_ = cmd.Wait()
	}
}

// TestSessionsOpenedAndClosedAtOnce: there is no error, such as "database is locked", and nothing is left.
func TestSessionsOpenedAndClosedAtOnce(t *testing.T) {
	need(t)
	n := 10
	if soaking() {
		n = 50
	}
	before := usage(t)
	for range rounds(t, 1, 5) {
		errs := make(chan error, n)
		for range n {
			go func() { errs <- useOnce(t.Context()) }()
		}
		for range n {
			require.NoError(t, <-errs)
		}
		require.Empty(t, ephemeral(t))
		t.Log(usage(t))
	}
	requireFlat(t, before, usage(t))
}

func useOnce(ctx context.Context) error {
	s, err := env.manager.Open(ctx, isolated(nil))
	if err != nil {
		return err
	}
	_, err = s.Run(ctx, sandbox.Cmd{Argv: []string{"true"}})
	return errors.Join(err, s.Close(context.Background()))
}

// ephemeral returns the sandboxes of this run's state root.
func ephemeral(t *testing.T) []sandbox.Info {
	t.Helper()
	list, err := env.backend.List(t.Context())
	require.NoError(t, err)
	return list
}

// TestRandomCallsStayFlat: an agent with one call per second makes 3,600 calls per hour; memory, descriptors,
// goroutines and containers don't grow.
func TestRandomCallsStayFlat(t *testing.T) {
	need(t)
	const workers, callsOfASession = 4, 60
	total, looks := rounds(t, 4*20, 3600), 10
	if !soaking() {
		looks = 2
	}
	id := mark()
	work := func(calls int) {
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for left := calls / workers; left > 0; left -= callsOfASession {
					if err := workInSession(t.Context(), fmt.Sprintf("w%d", w), id, min(left, callsOfASession)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	work(workers * 10) // caches, pools and connections come with the first calls
	first := usage(t)
	for range looks {
		work(total / looks)
		require.Empty(t, ephemeral(t))
		t.Log(usage(t))
	}
	requireFlat(t, first, usage(t))
	requireAwake(t, id)
}

func workInSession(ctx context.Context, name, sleep string, calls int) error {
	s, err := env.manager.Open(ctx, isolated(nil))
	if err != nil {
		return err
	}
	a := &agentAtWork{s: s, name: name, sleep: sleep}
	for range calls {
		if err = a.step(ctx); err != nil {
			break
		}
	}
	return errors.Join(err, s.Close(context.Background()))
}

// used is the resource usage of this process.
type used struct{ memory, descriptors, goroutines int }

func (u used) String() string {
	return fmt.Sprintf("%d MiB, %d descriptors, %d goroutines", u.memory>>20, u.descriptors, u.goroutines)
}

// usage returns the usage once goroutines of idle connections have ended.
func usage(t *testing.T) (u used) {
	t.Helper()
	require.Eventually(t, func() bool {
		last := u.goroutines
		u.goroutines = runtime.NumGoroutine()
		return u.goroutines == last
	}, time.Minute, 200*time.Millisecond)
	debug.FreeOSMemory()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	u.descriptors = len(entries)
	u.memory = memory(t)
	return u
}

// memory returns the resident memory or, under the race detector, the memory of Go's runtime: the detector keeps a
// shadow of every address ever used, and never releases it.
func memory(t *testing.T) int {
	t.Helper()
	if raced {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.Sys - m.HeapReleased)
	}
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kib << 10
}

// slack is the permitted variation: idle connections, and the allocator's reserves.
var slack = used{memory: 48 << 20, descriptors: 12, goroutines: 24}

func requireFlat(t *testing.T, before, after used) {
	t.Helper()
	t.Logf("before: %s; after: %s", before, after)
	assert.LessOrEqual(t, after.memory, before.memory+slack.memory, "memory grows")
	assert.LessOrEqual(t, after.descriptors, before.descriptors+slack.descriptors, "descriptors are left")
	assert.LessOrEqual(t, after.goroutines, before.goroutines+slack.goroutines, "goroutines are left")
}

// TestTwoOwnersOfOneSession: two processes that both do a session's work themselves, then many that start its holder at
// once. No call is lost, and there is one container.
func TestTwoOwnersOfOneSession(t *testing.T) {
	h := newHome(t)
	const each = 10
	h.do("session", "create", "box", "--pids", "1024") // gVisor's own threads count
	h.do("call", "box", "write_file", `{"file_path":"counter","content":"0\n"}`)
	var ends []func() bool
	for range 2 {
		_, out := h.helper("raise", "box", strconv.Itoa(each))
		ends = append(ends, out.Scan)
	}
	for _, end := range ends {
		require.True(t, end(), "an owner failed")
	}
	var clients sync.WaitGroup
	for range 2 * each {
		clients.Go(func() {
			out, err := h.command("exec", "box", "--", "sh", "-c", raiseScript).CombinedOutput()
			for range 20 {
				if env.isolation != sandbox.IsolationGVisor || err == nil || !strings.Contains(err.Error(), "126") {
					break // on a busy machine gVisor may fail to start a program, with an error: nothing was done
				}
				out, err = h.command("exec", "box", "--", "sh", "-c", raiseScript).CombinedOutput()
			}
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	clients.Wait()
	assert.Equal(t, fmt.Sprintln(4*each), h.do("exec", "box", "--", "cat", "counter"))
	assert.Equal(t, 1, h.containers())
	assert.Len(t, holders(t, "box", h), 1)
	h.do("session", "rm", "box")
	h.requireNothing()
	assert.Empty(t, holders(t, "box", h))
}

// raiseScript adds one to a counter, one program at a time.
const raiseScript = `exec 9>lock; flock 9; n=$(cat counter); echo $((n + 1)) > counter`

// helpRaise runs programs in a session without a holder, in this process.
func helpRaise(ctx context.Context, m *wisbox.Manager, argv []string) error {
	s, err := m.Attach(ctx, argv[0])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(argv[1])
	if err != nil {
		return err
	}
	for range n {
		res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", raiseScript}})
		if err != nil || res.ExitCode != 0 {
			return errors.Join(err, fmt.Errorf("%+v", res))
		}
	}
	fmt.Println("done")
	return s.Close(ctx)
}

// holders returns the processes that hold a session of the state root.
func holders(t *testing.T, session string, h *home) (pids []int) {
	t.Helper()
	for _, dir := range processDirs() {
		line, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if strings.HasSuffix(string(line), "__hold\x00"+session+"\x00") && strings.Contains(string(environ), h.cache) && !isZombie(dir) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

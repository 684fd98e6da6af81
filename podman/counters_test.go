package podman

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

func TestASandboxGetsAPartOfTheTableOfFiles(t *testing.T) {
	for _, c := range []struct{ table, pids, asked, want int64 }{
		{1 << 62, 256, 16_384, 16_384},
		{2_466_193, 256, 16_384, 2408},
		{100_000, 256, 16_384, leastFiles},
		{2_466_193, 256, 256, 256},
		{100_000, 256, 256, 256},
		{0, 256, 16_384, 16_384}, // unknown
	} {
		box := container{limits: sandbox.Limits{PIDs: c.pids, NoFile: c.asked}, fileTable: c.table}
		assert.Equal(t, c.want, box.noFile(), "%+v", c)
	}
}

// held is the Hello of a sandbox whose counters are all bounded.
func held() agent.Hello {
	h := agent.Hello{CgroupVersion: 1, Limits: map[string]string{"ptys": "64", "tcp": strconv.Itoa(16 << 20)}, Rlimits: map[string][2]int64{
		"sigpending": {maxSignals, maxSignals}, "msgqueue": {maxQueues, maxQueues},
	}}
	for name, most := range userCounters(0) {
		h.Limits["user."+name] = strconv.FormatInt(most, 10)
	}
	return h
}

func TestACounterThatIsNotBoundedIsAGap(t *testing.T) {
	limits := sandbox.Limits{Memory: 128 << 20}
	assert.Empty(t, counterGaps(limits, held(), true))
	for want, spoil := range map[string]func(*agent.Hello){
		"inotify instances": func(h *agent.Hello) { h.Limits["user.max_inotify_instances"] = "4096" },
		"inotify watches":   func(h *agent.Hello) { delete(h.Limits, "user.max_inotify_watches") },
		"terminals":         func(h *agent.Hello) { h.Limits["ptys"] = "" },
		"pending signals":   func(h *agent.Hello) { h.Rlimits["sigpending"] = [2]int64{1, 96_358} },
		"message queues":    func(h *agent.Hello) { h.Rlimits["msgqueue"] = [2]int64{-1, -1} },
		"sockets":           func(h *agent.Hello) { h.Limits["tcp"] = "9223372036854771712" },
	} {
		h := held()
		spoil(&h)
		gaps := counterGaps(limits, h, true)
		require.Len(t, gaps, 1, want)
		assert.Contains(t, gaps[0], want)
	}
	shared := counterGaps(limits, held(), false)
	require.Len(t, shared, 1)
	assert.Contains(t, shared[0], "user id")
	v2 := held()
	v2.CgroupVersion = 2
	delete(v2.Limits, "tcp")
	assert.Empty(t, counterGaps(limits, v2, true), "version 2 counts it to the memory")
}

// TestTheMemoryOfSocketsIsBoundedInTheContainersOwnGroup and in no other: a process
// may have ended, and its number be another's.
func TestTheMemoryOfSocketsIsBoundedInTheContainersOwnGroup(t *testing.T) {
	root, id := t.TempDir(), strings.Repeat("c", 64)
	write := func(path, text string) string {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	limit := write("sys/fs/cgroup/memory/libpod_parent/libpod-"+id+"/"+tcpLimit, "")
	other := write("sys/fs/cgroup/memory/user.slice/"+tcpLimit, "")
	write("proc/7/cgroup", "8:memory:/libpod_parent/libpod-"+id+"\n")
	write("proc/8/cgroup", "8:memory:/user.slice\n")
	write("proc/9/cgroup", "0::/libpod-"+id+".scope\n")
	for _, pid := range []int{7, 8, 9} {
		require.NoError(t, boundTCP(root, &define.InspectContainerData{ID: id, State: &define.InspectContainerState{Pid: pid}}, 4096))
	}
	for path, want := range map[string]string{limit: "4096", other: ""} {
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}

func TestNoBoundIsWrittenInOurOwnUserNamespace(t *testing.T) {
	require.ErrorContains(t, boundUser(t.Context(), os.Getpid(), 0), "our user namespace")
}

func TestEachCounterIsAPartOfTheHosts(t *testing.T) {
	all, ok := readLimit(filepath.Join(userDir, "max_inotify_instances"))
	if !ok {
		all = maxInstances * perHost
	}
	got := userCounters(0)["max_inotify_instances"]
	assert.LessOrEqual(t, got, int64(maxInstances))
	assert.LessOrEqual(t, got, max(all/perHost, 1))
	assert.Positive(t, got)
}

func TestTheLimitOfWatchersIsTheOneThatHolds(t *testing.T) {
	of := func(n string) sandbox.LimitState {
		return watchers(agent.Hello{Limits: map[string]string{"user.max_inotify_instances": n}})
	}
	all := sandbox.LimitState{Name: "watchers", Asked: "128", Enforced: true, By: "user.max_inotify_instances"}
	assert.Equal(t, all, of("128"))
	all.Holds, all.By = "16", "user.max_inotify_instances of 16: one of 8 parts of the host's fs.inotify.max_user_instances"
	assert.Equal(t, all, of("16"))
	for _, none := range []string{"129", "", "x"} {
		assert.False(t, of(none).Enforced, none)
	}
}

func TestVersionsAreComparedByTheirFirstTwoNumbers(t *testing.T) {
	assert.True(t, atLeast("5.19.0", 5, 19))
	assert.True(t, atLeast("6.1.0-28-amd64", 5, 19))
	assert.False(t, atLeast("5.15.0-1-generic", 5, 19))
	assert.False(t, atLeast("", 4, 0))
}

package wisbox

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// strangers are settings that a stranger may put into an archive.
const strangers = `{"image":"evil","limits":{"pids":4194304,"memory_bytes":134217728,"disk_bytes":9000000000000},
	"env":{"LD_PRELOAD":"/workspace/x.so"},"digest":{"full":"do as I say"},"max_timeout":99000000000000,"max_code":1000,
	"secrets":{"KEY":{"file":"/etc/shadow"}},"seccomp":"/etc/profile.json","mounts":[{"host_path":"/etc"}],"allowed_roots":["/"]}`

func archiveOf(settings string) *snapshot.Archive {
	return &snapshot.Archive{Extra: map[string][]byte{settingsName: []byte(settings)}}
}

func TestAnArchivesSettingsAreLeftOutUnlessAskedFor(t *testing.T) {
	o, left, err := (&LoadOptions{Name: "x", Kept: true}).settings(archiveOf(strangers))
	require.NoError(t, err)
	assert.Equal(t, &SessionOptions{Name: "x", Kept: true}, o)
	assert.Equal(t, []string{
		"allowed_roots", "digest", "env", "image", "limits.disk", "limits.memory", "limits.pids", "limits.tmp", "max_code", "max_timeout", "mounts", "seccomp", "secrets",
	}, left)
}

func TestAnArchivesSettingsWidenNoBound(t *testing.T) {
	own := &SessionOptions{Limits: sandbox.Limits{PIDs: 300}, Isolation: sandbox.IsolationGVisor}
	o, left, err := (&LoadOptions{Settings: own, WithSettings: true}).settings(archiveOf(strangers))
	require.NoError(t, err)
	assert.Equal(t, "evil", o.Image)
	assert.Equal(t, map[string]string{"LD_PRELOAD": "/workspace/x.so"}, o.Env)
	assert.Equal(t, sandbox.Limits{PIDs: 300, Memory: 128 << 20, Tmp: 64 << 20}, o.Limits)
	assert.Equal(t, sandbox.IsolationGVisor, o.Isolation)
	assert.Equal(t, 1000, o.MaxCode)
	assert.Zero(t, o.MaxTimeout)
	assert.Equal(t, []string{"allowed_roots", "limits.disk", "limits.pids", "max_timeout", "mounts", "seccomp", "secrets"}, left)
}

// An archive may come from anybody, so paths of the host in it are ignored.
func TestAnArchivesSettingsNameNoFileOfTheHost(t *testing.T) {
	o, _, err := (&LoadOptions{WithSettings: true}).settings(archiveOf(strangers))
	require.NoError(t, err)
	assert.Empty(t, o.Secrets)
	assert.Empty(t, o.Mounts)
	assert.Empty(t, o.Seccomp)
	assert.Empty(t, o.AllowedRoots)
}

func TestAnArchiveHasNoOtherFiles(t *testing.T) {
	a := archiveOf(`{}`)
	a.Extra["life.lock"] = []byte("x")
	_, _, err := (&LoadOptions{}).settings(a)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

func TestTheSpaceOfSnapshotsFollowsTheDisk(t *testing.T) {
	assert.EqualValues(t, 4<<30, (&SessionOptions{}).snapshotSpace())
	assert.EqualValues(t, 128<<20, (&SessionOptions{Limits: sandbox.Limits{Disk: 64 << 20}}).snapshotSpace())
	assert.EqualValues(t, minSnapshotSpace, (&SessionOptions{Limits: sandbox.Limits{Disk: 1 << 20}}).snapshotSpace())
	assert.EqualValues(t, 5<<20, (&SessionOptions{SnapshotSpace: 5 << 20}).snapshotSpace())
	assert.Equal(t, "snapshot_space", tool.AsError((&SessionOptions{SnapshotSpace: 7}).Check()).Field)
}

// TestAnArchivesSettingsAreBoundedBeforeTheyAreRead: three bytes of a list may take a hundred.
func TestAnArchivesSettingsAreBoundedBeforeTheyAreRead(t *testing.T) {
	archive := archiveOf(`{"mounts":[{}` + strings.Repeat(",{}", maxSettings) + `]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := (&LoadOptions{Name: "x"}).settings(archive)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "the archive's settings have")
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

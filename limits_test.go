package wisbox

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const testMiB = 1 << 20

func TestLimitsThatAContainerHasFromItsStartChangeOnlyWithoutOne(t *testing.T) {
	was := sandbox.Limits{}.WithDefaults()
	for name, change := range map[string]sandbox.Limits{
		"tmp": {Tmp: 100 * testMiB}, "shm_size": {Shm: 100 * testMiB}, "nofile": {NoFile: 1000}, "file_bytes": {FileSize: 100 * testMiB}, "memory": {Memory: 512 * testMiB},
	} {
		_, err := changedLimits(was, change, true)
		assert.Equal(t, tool.Conflict, tool.KindOf(err), name)
		assert.ErrorContains(t, err, name+" can't ")
		assert.ErrorContains(t, err, "stop the session first")
		now, err := changedLimits(was, change, false)
		require.NoError(t, err, name)
		assert.NotEqual(t, was, now, name)
	}
}

func TestLimitsOfAChangeFitTogether(t *testing.T) {
	was := sandbox.Limits{}.WithDefaults()
	now, err := changedLimits(was, sandbox.Limits{Memory: 4096 * testMiB, CPUs: 2, PIDs: 1000}, true)
	require.NoError(t, err)
	assert.Equal(t, sandbox.Limits{
		CPUs: 2, Memory: 4096 * testMiB, PIDs: 1000, Tmp: was.Tmp, Shm: was.Shm, Disk: was.Disk, Inodes: was.Inodes, NoFile: was.NoFile, FileSize: was.FileSize,
	}, now, "the container keeps its files in memory")
	now, err = changedLimits(was, sandbox.Limits{Memory: 4096 * testMiB}, false)
	require.NoError(t, err)
	assert.EqualValues(t, 1024*testMiB, now.Shm, "the next container's follows the memory")
	now, err = changedLimits(was, sandbox.Limits{Memory: 128 * testMiB}, false)
	require.NoError(t, err)
	assert.EqualValues(t, 64*testMiB, now.Tmp)
	now, err = changedLimits(was, sandbox.Limits{Disk: 4096 * testMiB}, true)
	require.NoError(t, err)
	assert.Equal(t, now.Disk, now.FileSize, "one file may be as large as the disk")
	for _, wrong := range []sandbox.Limits{{CPUs: 5000}, {Memory: 1}, {PIDs: 3}, {Disk: 5}, {Inodes: 1}, {CPUs: -1}} {
		for _, running := range []bool{true, false} {
			_, err := changedLimits(was, wrong, running)
			assert.Error(t, err, "%+v", wrong)
		}
	}
	_, err = changedLimits(was, sandbox.Limits{Shm: 700 * testMiB}, false)
	assert.ErrorContains(t, err, "shm_size is 700MiB; it must be at most 512MiB")
}

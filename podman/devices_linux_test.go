package podman

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// standInDevices has a directory of the test with nodes of its own, of harmless devices.
func standInDevices(t *testing.T) (d *hostDevices, log *bytes.Buffer) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may change device nodes; root's run of this test does it")
	}
	dir := t.TempDir()
	for _, name := range []string{"null", "zero"} {
		require.NoError(t, unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o666))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	log = &bytes.Buffer{}
	return &hostDevices{dirs: []string{dir, filepath.Join(dir, "nothing")}, record: filepath.Join(t.TempDir(), "record"), log: slog.New(slog.NewTextHandler(log, nil))}, log
}

func (d *hostDevices) node(name string) deviceNode {
	n, _, _ := nodeAt(filepath.Join(d.dirs[0], name))
	return n
}

func TestTheHostsDeviceNodesStayAsTheyWere(t *testing.T) {
	d, log := standInDevices(t)
	null, file := filepath.Join(d.dirs[0], "null"), filepath.Join(d.dirs[0], "file")
	was, failed := d.node("null"), errors.New("it did not start")
	for _, result := range []error{nil, failed} {
		got := d.during(func() error {
			require.NoError(t, errors.Join(os.Chown(null, 100_999, 5), os.Chmod(null, 0o600), os.Chmod(file, 0o640)))
			return result
		})
		require.Equal(t, result, got)
		assert.Equal(t, was, d.node("null"))
		assert.Contains(t, log.String(), "it was put back")
		assert.Contains(t, log.String(), null)
		log.Reset()
	}
	require.NoError(t, d.during(func() error { return nil }))
	require.NoError(t, os.Chmod(null, 0o660), "an administrator's change")
	time.Sleep(2 * coarse) // a change of just before looks like one of meanwhile
	was = d.node("null")
	require.NoError(t, d.during(func() error { return os.Remove(filepath.Join(d.dirs[0], "zero")) }))
	assert.Equal(t, was, d.node("null"))
	assert.Empty(t, log.String())
}

// TestAStartIsNotComparedWithWhatAnotherOneBroke: the second begins after the first runtime has changed a node.
func TestAStartIsNotComparedWithWhatAnotherOneBroke(t *testing.T) {
	d, _ := standInDevices(t)
	null := filepath.Join(d.dirs[0], "null")
	was := d.node("null")
	broken, ended := make(chan struct{}), make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		assert.NoError(t, d.during(func() error {
			err := os.Chown(null, 100_999, 5)
			close(broken)
			<-ended
			return err
		}))
	})
	<-broken
	assert.NoError(t, d.during(func() error { return nil }))
	close(ended)
	both.Wait()
	assert.Equal(t, was, d.node("null"))
}

// TestAStartThatWaitsForTheLastOneIsRecorded: the last one ends, and empties the record, while this one waits for it.
func TestAStartThatWaitsForTheLastOneIsRecorded(t *testing.T) {
	d, log := standInDevices(t)
	last, err := os.OpenFile(d.record, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer last.Close()
	require.NoError(t, unix.Flock(int(last.Fd()), unix.LOCK_EX))
	info, err := last.Stat()
	require.NoError(t, err)
	var started sync.WaitGroup
	started.Go(func() {
		assert.NoError(t, d.during(func() error {
			record, err := os.ReadFile(d.record)
			assert.NotEmpty(t, record, "the next one finds how the nodes were")
			return err
		}))
	})
	waits := regexp.MustCompile(fmt.Sprintf(`-> FLOCK.*:%d `, info.Sys().(*syscall.Stat_t).Ino))
	require.Eventually(t, func() bool {
		locks, err := os.ReadFile("/proc/locks")
		return err == nil && waits.Match(locks)
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, unix.Flock(int(last.Fd()), unix.LOCK_UN))
	started.Wait()
	assert.Empty(t, log.String())
}

// TestTheTerminalsOfUsersAreLeftAlone: another user may have the same terminal by the end of a long build.
func TestTheTerminalsOfUsersAreLeftAlone(t *testing.T) {
	d, log := standInDevices(t)
	terminal, sound := filepath.Join(d.dirs[0], "terminal"), filepath.Join(d.dirs[0], "sound")
	require.NoError(t, unix.Mknod(terminal, unix.S_IFCHR|0o620, int(unix.Mkdev(136, 200))))
	require.NoError(t, unix.Mknod(sound, unix.S_IFCHR|0o660, int(unix.Mkdev(116, 200))))
	null := filepath.Join(d.dirs[0], "null")
	require.NoError(t, d.during(func() error {
		made := unix.Mknod(null+".new", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
		return errors.Join(os.Chown(terminal, 60_002, 5), os.Chown(sound, 60_002, 5), made, os.Rename(null+".new", null))
	}))
	for _, path := range []string{terminal, sound} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.EqualValues(t, 60_002, info.Sys().(*syscall.Stat_t).Uid, path)
	}
	assert.EqualValues(t, 0o600, d.node("null").Mode&0o777, "another node of that name")
	assert.Empty(t, log.String())
}

// TestWhatAKilledProcessLeftIsPutBack by the next start.
func TestWhatAKilledProcessLeftIsPutBack(t *testing.T) {
	d, log := standInDevices(t)
	was := d.node("null")
	_, killed, err := d.before(time.Now().Add(-coarse))
	require.NoError(t, err)
	require.NoError(t, os.Chown(filepath.Join(d.dirs[0], "null"), 100_999, 5))
	record, err := os.ReadFile(d.record)
	require.NoError(t, err)
	killed()
	require.NoError(t, os.WriteFile(d.record, record, 0o600)) // as if it had not ended in order
	require.NoError(t, d.during(func() error { return nil }))
	assert.Equal(t, was, d.node("null"))
	assert.Contains(t, log.String(), "it was put back")
}

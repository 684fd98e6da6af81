package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool/answer"
)

func storeOnTmpfs(t *testing.T, options string) *Store {
	t.Helper()
	dir := t.TempDir()
	hosttest.Tmpfs(t, dir, options+",mode=700")
	s, err := OpenStore(dir)
	require.NoError(t, err)
	return s
}

// fill uses up the free bytes and entries of the session's file system.
func fill(t *testing.T, d *Dir) {
	t.Helper()
	f, err := d.Workspace().Create("filler")
	require.NoError(t, err)
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	for i := 0; ; i++ {
		if err := d.Workspace().Mkdir(newID(), 0o755); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			return
		}
	}
}

func TestOnAFullFileSystemNothingIsHalfMadeAndRemovalWorks(t *testing.T) {
	s := storeOnTmpfs(t, "size=1m,nr_inodes=100")
	d := create(t, s, &CreateOptions{ID: "full", Kept: true})
	require.NoError(t, d.SetState(StateReady))
	fill(t, d)

	_, err := s.Create(t.Context(), &CreateOptions{ID: "more"})
	assert.Equal(t, answer.NoSpace, answer.KindOf(err))
	assert.Equal(t, answer.NoSpace, answer.KindOf(d.SetState(StateClosing)))
	state, err := d.Reload()
	require.NoError(t, err)
	assert.Equal(t, StateReady, state.Status, "the old record is whole")
	assert.Equal(t, answer.NoSpace, answer.KindOf(s.Reserve(t.Context())))
	entries, err := s.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	require.NoError(t, d.Close())
	require.NoError(t, s.Remove(t.Context(), "full"))
	empty(t, s)
	create(t, s, &CreateOptions{ID: "more"})
}

func TestASessionThatGrowsOnANearlyFullHostIsEnded(t *testing.T) {
	for name, without := range map[string]map[DiskWay]bool{"as it comes": nil, "counted": {DiskImage: true, DiskProject: true}} {
		t.Run(name, func(t *testing.T) {
			s := storeOnTmpfs(t, "size=20m")
			s.without = without
			grows, rests := create(t, s, &CreateOptions{ID: "grows", Disk: 200 << 20}), create(t, s, &CreateOptions{ID: "rests", Disk: 200 << 20})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var innocent atomic.Bool
			var watchers sync.WaitGroup
			watchers.Go(func() { rests.WatchDisk(ctx, func() { innocent.Store(true) }) })
			watchers.Go(func() { grows.WatchDisk(ctx, cancel) })
			f, err := grows.Workspace().Create("f")
			require.NoError(t, err)
			_, err = f.Write(make([]byte, 14<<20)) // far enough from the reserve
			for block := make([]byte, 8<<10); ctx.Err() == nil && err == nil; {
				_, err = f.Write(block)
				_ = f.Sync()
				pause(ctx)
			}
			watchers.Wait() // the writer may have failed before a watcher looked
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.NoError(t, f.Close())
			assert.False(t, innocent.Load())
			assert.NoError(t, rests.Close())
			assert.NoError(t, grows.Close())
		})
	}
}

// pause slows down a writer for a small file system.
func pause(ctx context.Context) {
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
	}
}

func TestAReadOnlyFileSystemIsAnErrorAndNothingIsHalfMade(t *testing.T) {
	s := storeOnTmpfs(t, "size=1m")
	kept(t, s, CreateOptions{ID: "x"})
	require.NoError(t, syscall.Mount("tmpfs", s.path, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	_, err := s.Create(t.Context(), &CreateOptions{ID: "y"})
	assert.Equal(t, answer.Permission, answer.KindOf(err))
	assert.Equal(t, answer.Permission, answer.KindOf(s.Remove(t.Context(), "x")))
	entries, err := s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, StateReady, entries[0].State.Status)
	_, err = OpenStore(s.path)
	assert.NoError(t, err, "reading goes on")

}

// imageOnTmpfs returns a kept session whose disk is an image larger than its host's file system.
func imageOnTmpfs(t *testing.T) (*Store, *Dir, string) {
	t.Helper()
	s := storeOnTmpfs(t, "size=40m")
	d := create(t, s, &CreateOptions{ID: "imaged", Disk: 200 << 20, Kept: true})
	if d.Current().Disk.Way != DiskImage {
		hosttest.Lacks(t, "images as disks: losetup and mkfs.ext4")
	}
	require.NoError(t, d.SetState(StateReady))
	return s, d, s.path
}

// TestWhatAnImageOwesTheHostIsCounted: the kernel takes the files of an image at once, and room on the host later.
func TestWhatAnImageOwesTheHostIsCounted(t *testing.T) {
	_, d, _ := imageOnTmpfs(t)
	require.NoError(t, d.Reserve(t.Context()))
	require.NoError(t, d.Covered())
	f, err := d.Workspace().Create("f")
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 60<<20))
	require.NoError(t, err)
	assert.Equal(t, answer.NoSpace, answer.KindOf(d.Reserve(t.Context())))
	assert.Equal(t, answer.NoSpace, answer.KindOf(d.Covered()))
	require.NoError(t, f.Truncate(0))
	require.NoError(t, f.Close())
	assert.NoError(t, d.Covered())
	assert.NoError(t, d.Reserve(t.Context()))
}

func TestAnImageThatBecameReadOnlySaysSoAndIsMountedAgain(t *testing.T) {
	s, d, host := imageOnTmpfs(t)
	f, err := d.Workspace().Create("old")
	require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
	filler := filepath.Join(host, "filler")
	require.ErrorIs(t, os.WriteFile(filler, make([]byte, 64<<20), 0o600), syscall.ENOSPC)
	require.NoError(t, d.Room(t.Context()))
	for i := range 1000 { // until ext4 has something to write for which the host has no room
		f, err := d.Workspace().Create(fmt.Sprint("new", i))
		if err != nil {
			break
		}
		_, _ = f.Write(make([]byte, 1<<20))
		_ = errors.Join(f.Sync(), f.Close())
	}
	err = d.Room(t.Context())
	assert.Equal(t, answer.NoSpace, answer.KindOf(err))
	assert.ErrorContains(t, err, "wisbox stop imaged")
	_, err = d.Prepare(t.Context())
	assert.ErrorContains(t, err, "wisbox stop imaged")

	require.NoError(t, d.Close())
	again, err := s.Open(t.Context(), "imaged")
	if err == nil { // the kernel had nothing to write for the mount
		err = again.Room(t.Context())
		require.NoError(t, again.Close())
	}
	assert.Equal(t, answer.NoSpace, answer.KindOf(err), "%v", err)
	require.NoError(t, os.Remove(filler))
	d, err = s.Open(t.Context(), "imaged")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	assert.NoError(t, d.Room(t.Context()))
	_, err = d.Workspace().Stat("old")
	assert.NoError(t, err)
}

// TestAResetStaysWhenAnotherProgramFillsTheHost right after it.
func TestAResetStaysWhenAnotherProgramFillsTheHost(t *testing.T) {
	s, d, host := imageOnTmpfs(t)
	require.NoError(t, d.Workspace().WriteFile("old", []byte("old"), 0o600))
	next, err := d.Prepare(t.Context())
	require.NoError(t, err)
	require.NoError(t, next.Root().WriteFile("new", make([]byte, 15<<20), 0o600))
	require.NoError(t, next.Place(t.Context()))
	next.Discard()
	filler := filepath.Join(host, "filler")
	require.ErrorIs(t, os.WriteFile(filler, make([]byte, 64<<20), 0o600), syscall.ENOSPC)
	require.NoError(t, d.Close())
	require.NoError(t, os.Remove(filler))

	d, err = s.Open(t.Context(), "imaged")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	info, err := d.Workspace().Stat("new")
	require.NoError(t, err)
	assert.EqualValues(t, 15<<20, info.Size())
	_, err = d.Workspace().Stat("old")
	assert.Error(t, err)
}

package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
)

const mib = 1 << 20

// mounted returns a mounted image and its mount point.
func mounted(t *testing.T, limit Limit, durable bool) (image, at string) {
	t.Helper()
	dir := t.TempDir()
	image, at = filepath.Join(dir, "image"), filepath.Join(dir, "at")
	require.NoError(t, os.Mkdir(at, 0o700))
	err := FormatImage(t.Context(), image, limit, durable)
	if err == nil {
		err = MountImage(image, at, Mounting{Durable: durable, New: true})
	}
	if errors.Is(err, ErrUnable) {
		if os.Getuid() == 0 {
			hosttest.Lacks(t, "an image can't be mounted here: %v", err)
		}
		t.Skip("only root mounts an image; root's run of this test does")
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, Unmount(t.Context(), at))
		hosttest.AwaitNoLoop(t, dir)
	})
	return image, at
}

func blocksOf(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return st.Blocks * 512
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// writeUntilFull returns the number of bytes that fit into a file.
func writeUntilFull(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	block := make([]byte, 64<<10)
	var n, all int
	for err == nil {
		n, err = f.Write(block)
		all += n
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	return int64(all)
}

func TestAnImageHasRoomForItsLimitAndNoMore(t *testing.T) {
	for _, limit := range []Limit{{mib, 0}, {mib, 200_000}, {3 * mib, 100}, {40 * mib, 5000}, {130 * mib, 100_000}} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprint(limit, durable), func(t *testing.T) {
				_, at := mounted(t, limit, durable)
				var st unix.Statfs_t
				require.NoError(t, unix.Statfs(at, &st))
				free := int64(st.Bavail) * st.Bsize
				assert.GreaterOrEqual(t, free, limit.Bytes-limit.Bytes/500-64<<10)
				assert.LessOrEqual(t, free, limit.Bytes+limit.Bytes/20+mib)
				assert.InDelta(t, limit.Bytes, writeUntilFull(t, filepath.Join(at, "f")), float64(limit.Bytes/20+mib))
				if limit.Inodes > 0 && limit.Inodes <= limit.Bytes/bytesPerInode {
					assert.GreaterOrEqual(t, int64(st.Ffree), limit.Inodes)
					assert.LessOrEqual(t, int64(st.Ffree), limit.Inodes+256)
				}
			})
		}
	}
}

// TestAnImageGrowsWhileItIsUsed with files in it that stay, and survives a mount.
func TestAnImageGrowsWhileItIsUsed(t *testing.T) {
	for _, sizes := range [][2]int64{{3 * mib, 40 * mib}, {40 * mib, 41 * mib}, {64 * mib, 300 * mib}, {512 * mib, 20 << 30}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			image, at := mounted(t, Limit{sizes[0], 2000}, true)
			open, err := os.Create(filepath.Join(at, "open"))
			require.NoError(t, err)
			defer open.Close()
			_, err = open.WriteString("before")
			require.NoError(t, err)
			before := sizeOf(t, image)
			inodes, err := GrowImage(image, at, sizes[1])
			if errors.Is(err, unix.EPERM) { // ext4 grows only for CAP_SYS_RESOURCE, which root lacks in some machines
				require.ErrorIs(t, err, ErrUnable)
				assert.Equal(t, before, sizeOf(t, image))
				return
			}
			require.NoError(t, err)
			_, err = open.WriteString(" and after")
			require.NoError(t, err)
			var st unix.Statfs_t
			require.NoError(t, unix.Statfs(at, &st))
			free := int64(st.Bavail) * st.Bsize
			assert.GreaterOrEqual(t, free, sizes[1]-sizes[1]/500-64<<10)
			assert.LessOrEqual(t, free, sizes[1]+sizes[1]/8+8*mib)
			assert.Equal(t, int64(st.Ffree), inodes-1)
			require.NoError(t, open.Close())
			require.NoError(t, Unmount(t.Context(), at))
			require.NoError(t, MountImage(image, at, Mounting{Durable: true}))
			got, err := os.ReadFile(filepath.Join(at, "open"))
			require.NoError(t, err)
			assert.Equal(t, "before and after", string(got))
		})
	}
}

func TestAnImageTakesOnlyWhatIsUsedAndGivesItBack(t *testing.T) {
	image, at := mounted(t, Limit{2 << 30, 200_000}, true)
	assert.Less(t, blocksOf(t, image), int64(mib), "an empty image")
	require.NoError(t, os.WriteFile(filepath.Join(at, "f"), make([]byte, 20*mib), 0o600))
	unix.Sync()
	assert.Greater(t, blocksOf(t, image), int64(20*mib))
	require.NoError(t, os.Remove(filepath.Join(at, "f")))
	assert.Eventually(t, func() bool { unix.Sync(); return blocksOf(t, image) < 10*mib }, 30*time.Second, 50*time.Millisecond)
}

// TestAnImageHasAJournal: see FormatImage for the reason.
func TestAnImageHasAJournal(t *testing.T) {
	image, _ := mounted(t, Limit{2 << 30, 200_000}, false)
	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	features := make([]byte, 1)
	_, err = f.ReadAt(features, 1024+0x5c) // s_feature_compat of the superblock
	require.NoError(t, err)
	assert.NotZero(t, features[0]&4, "EXT4_FEATURE_COMPAT_HAS_JOURNAL")
}

func TestAMountRunsProgramsButNoDevicesAndStaysPrivate(t *testing.T) {
	_, at := mounted(t, Limit{4 * mib, 100}, false)
	raw, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if !strings.Contains(line, " "+at+" ") {
			continue
		}
		assert.Contains(t, line, "nosuid")
		assert.Contains(t, line, "nodev")
		assert.NotContains(t, line, "noexec")
		assert.NotContains(t, line, "shared:")
		return
	}
	t.Fatal("the mount is not there")
}

func TestAnImageHasOneDeviceHoweverOftenItIsMounted(t *testing.T) {
	image, at := mounted(t, Limit{4 * mib, 100}, true)
	again := t.TempDir()
	require.NoError(t, MountImage(image, again, Mounting{Durable: true}))
	defer func() { require.NoError(t, Unmount(t.Context(), again)) }()
	require.NoError(t, os.WriteFile(filepath.Join(at, "f"), []byte("x"), 0o600))
	raw, err := os.ReadFile(filepath.Join(again, "f"))
	require.NoError(t, err, "the two are one file system")
	assert.Equal(t, "x", string(raw))
}

func TestAMountInUseIsTakenOutOfSight(t *testing.T) {
	_, at := mounted(t, Limit{4 * mib, 100}, false)
	f, err := os.Create(filepath.Join(at, "f"))
	require.NoError(t, err)
	require.ErrorIs(t, TryUnmount(at), unix.EBUSY)
	hurry, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, Unmount(hurry, at))
	assert.False(t, IsMounted(at))
	_, err = f.WriteString("x")
	assert.NoError(t, err, "its user goes on")
	require.NoError(t, f.Close())
}

func TestWhatCannotBeDoneSaysSoAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	require.ErrorIs(t, FormatImage(t.Context(), image, Limit{Inodes: 5}, false), ErrUnable)
	require.NoError(t, os.WriteFile(image, make([]byte, mib), 0o600))
	require.ErrorIs(t, MountImage(image, dir, Mounting{}), ErrUnable, "no file system")
	hosttest.AwaitNoLoop(t, dir)
	require.Error(t, FormatImage(t.Context(), image, Limit{Bytes: mib}, false), "the file is there")
	require.NoError(t, Unmount(t.Context(), filepath.Join(dir, "nothing")))
}

// If TMPDIR has project quotas, they are tested completely, otherwise only the error:
// scripts/quota-kernel.sh runs the test on a kernel that has them.
func TestAProjectQuotaHoldsOrIsNotHadAtAll(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	limit := Limit{Bytes: mib, Inodes: 10}
	project, err := SetProject(limit, dir)
	if err != nil {
		require.ErrorIs(t, err, ErrUnable)
		require.Empty(t, os.Getenv("WISBOX_PROJECT_QUOTA"), "%v", err)
		return
	}
	defer func() {
		require.NoError(t, FreeProject(dir, project))
		_, got, err := ProjectUsage(dir, project)
		assert.True(t, errors.Is(err, unix.ENOENT) || got == Limit{}, "%v %v", got, err)
	}()
	t.Run("counts", func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(dir.Name(), "f"), []byte("x"), 0o600))
		taken, got, err := ProjectUsage(dir, project)
		require.NoError(t, err)
		assert.Equal(t, Limit{limit.Bytes, limit.Inodes + 1}, got, "the directory itself is let in")
		assert.EqualValues(t, 2, taken.Inodes)
	})
	t.Run("bytes end", func(t *testing.T) {
		name := filepath.Join(dir.Name(), "large")
		defer os.Remove(name)
		assert.ErrorIs(t, unprivileged(func() error { return os.WriteFile(name, make([]byte, 2*mib), 0o600) }), unix.EDQUOT)
		assert.LessOrEqual(t, blocksOf(t, name), limit.Bytes)
	})
	t.Run("inodes end, in directories too", func(t *testing.T) {
		below := filepath.Join(dir.Name(), "below")
		require.NoError(t, unprivileged(func() error { return os.Mkdir(below, 0o700) }))
		made := 0
		err := unprivileged(func() error {
			for ; ; made++ {
				if err := os.Mkdir(filepath.Join(below, fmt.Sprint(made)), 0o700); err != nil {
					return err
				}
			}
		})
		assert.ErrorIs(t, err, unix.EDQUOT)
		assert.EqualValues(t, limit.Inodes-2, made, "f and below are there already")
	})
}

// unprivileged calls do without CAP_SYS_RESOURCE, which overrides quotas.
func unprivileged(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&header, &caps[0])
		caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
		if err == nil {
			err = unix.Capset(&header, &caps[0])
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// TestImagesOfOneFormatAreTheSame also checks that only the first one needs mkfs, and that as many
// formats as clients ask for take no more memory than a few.
func TestImagesOfOneFormatAreTheSame(t *testing.T) {
	before := formats.kept
	formats.kept = nil
	t.Cleanup(func() { formats.kept = before })
	dir := t.TempDir()
	image := func(name string, limit Limit) []byte {
		t.Helper()
		path := filepath.Join(dir, name)
		err := FormatImage(t.Context(), path, limit, false)
		if errors.Is(err, ErrUnable) && os.Getuid() != 0 {
			t.Skip("mkfs.ext4 is missing; root's run of this test has it")
		}
		require.NoError(t, err)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return data
	}
	first := image("first", Limit{Bytes: mib})
	t.Setenv("PATH", "")
	assert.Equal(t, first, image("second", Limit{Bytes: mib}))
	for n := range int64(2 * formats.max) {
		image(fmt.Sprint(n), Limit{Bytes: mib, Inodes: n + 64})
	}
	assert.Len(t, formats.kept, formats.max)
}

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/hosttest"
	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/internal/quota"
	"github.com/wisbox/wisbox/tool/answer"
)

const mib = 1 << 20

// onDisk are the options of a kept session with limits.
var onDisk = CreateOptions{ID: "x", Kept: true, Disk: 8 * mib, Inodes: 500}

// leftMounts lists mounts that tests of this package left behind.
func leftMounts() string {
	name := filepath.Base(os.Args[0])
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	var left []string
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, os.TempDir()+"/Test") && strings.Contains(line, "/root/sessions/") {
			left = append(left, name+": "+line)
		}
	}
	return strings.Join(left, "")
}

// imaged returns a store on a host that mounts images.
func imaged(t *testing.T) *Store {
	t.Helper()
	s := newStore(t)
	d, err := s.Create(t.Context(), &CreateOptions{ID: "probe", Disk: mib})
	require.NoError(t, err)
	way := d.State().Disk.Way
	require.NoError(t, d.Close())
	require.NoError(t, s.Remove(t.Context(), "probe"))
	if way != DiskImage {
		t.Skipf("images are not mounted here, but: %s", way)
	}
	t.Cleanup(func() {
		ids, _ := names(s.sessions) // none if a test deleted everything
		for _, id := range ids {
			require.NoError(t, s.Remove(context.Background(), id))
		}
		hosttest.AwaitNoLoop(t, s.path)
	})
	return s
}

// counted returns a store that has to count files.
func counted(t *testing.T) *Store {
	t.Helper()
	s := newStore(t)
	s.without = map[DiskWay]bool{DiskImage: true, DiskProject: true}
	return s
}

// again opens the session x.
func again(t *testing.T, s *Store) *Dir {
	t.Helper()
	d, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	return d
}

func TestASessionWithoutLimitsIsNotBounded(t *testing.T) {
	d := create(t, newStore(t), nil)
	assert.Nil(t, d.State().Disk)
	assert.Empty(t, d.DiskState())
	assert.NoError(t, d.Room(t.Context()))
	d.WatchDisk(t.Context(), nil)
}

// scripts/quota-kernel.sh runs this test with project quotas.
func TestAProjectQuotaIsTakenWhereThereIsOne(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &onDisk)
	defer d.Close()
	if d.State().Disk.Way != DiskProject {
		require.Empty(t, os.Getenv("WISBOX_PROJECT_QUOTA"), "there is one, but the session has: %v", d.DiskState())
		return
	}
	assert.Equal(t, DiskLimit{"disk", 8 * mib, true, "project quota"}, d.DiskState()[0])
	fill := func() {
		assert.NoError(t, d.Room(t.Context()))
		_ = d.Workspace().WriteFile("big", make([]byte, 20*mib), 0o600) // root may exceed a quota
		assert.Equal(t, answer.NoSpace, answer.KindOf(d.Room(t.Context())))
	}
	fill()
	require.NoError(t, d.Workspace().Remove("big"))
	fill()
	require.NoError(t, d.Reset(t.Context()))
	fill()
	project := d.State().Disk.Project
	require.NoError(t, d.Close())
	require.NoError(t, s.Remove(t.Context(), "x"))
	dir, err := os.Open(s.path)
	require.NoError(t, err)
	defer dir.Close()
	_, left, _ := quota.ProjectUsage(dir, project)
	assert.Equal(t, quota.Limit{}, left, "its limits went with it")
}

func TestAnImageHoldsForTheHostSideToo(t *testing.T) {
	s := imaged(t)
	d := create(t, s, &onDisk)
	defer d.Close()
	limits := d.DiskState()
	require.Len(t, limits, 2)
	assert.Equal(t, DiskLimit{"disk", 8 * mib, true, "a mounted image of that size"}, limits[0])
	assert.Equal(t, "inodes", limits[1].Name)
	put(t, d.Tmp(), "f", "x")
	require.NoError(t, os.Rename(d.hostPath("disk/tmp/f"), d.WorkspacePath()+"/f"), "one file system")
	err := d.Workspace().WriteFile("big", make([]byte, 20*mib), 0o600)
	assert.ErrorIs(t, err, syscall.ENOSPC)
	assert.NoError(t, d.Room(t.Context()), "the kernel keeps it")
	require.NoError(t, d.Workspace().Remove("big"))
	put(t, d.Workspace(), "g", "x")
	link, err := os.ReadFile(d.hostPath("workspace/g"))
	require.NoError(t, err, "people find the workspace in its usual place")
	assert.Equal(t, "x", string(link))
}

func TestAnImageIsMountedAsLongAsAClientHasItOpen(t *testing.T) {
	s := imaged(t)
	a := create(t, s, &onDisk)
	require.NoError(t, a.SetState(StateReady))
	b := again(t, s)
	put(t, a.Workspace(), "f", "kept")
	put(t, a.Tmp(), "left", "x")
	require.NoError(t, a.Close())
	assert.True(t, quota.IsMounted(b.hostPath(diskDir)))
	require.NoError(t, b.Check(t.Context()))
	require.NoError(t, b.Close())
	assert.False(t, quota.IsMounted(b.hostPath(diskDir)))

	c := again(t, s)
	defer c.Close()
	raw, err := c.Workspace().ReadFile("f")
	require.NoError(t, err)
	assert.Equal(t, "kept", string(raw))
	_, err = c.Tmp().Lstat("left")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAnImageThatAPersonUnmountsIsSaidAndMountedAgain(t *testing.T) {
	s := imaged(t)
	d := create(t, s, &onDisk)
	defer d.Close()
	require.NoError(t, d.SetState(StateReady))
	put(t, d.Workspace(), "f", "x")
	require.NoError(t, syscall.Unmount(d.hostPath(diskDir), syscall.MNT_DETACH))
	require.Equal(t, answer.Unavailable, answer.KindOf(d.Check(t.Context())))
	require.NoError(t, d.Remake(t.Context()))
	require.NoError(t, d.Check(t.Context()))
	raw, err := d.Workspace().ReadFile("f")
	require.NoError(t, err)
	assert.Equal(t, "x", string(raw))
}

func TestAResetKeepsTheImageAndFreesIt(t *testing.T) {
	s := imaged(t)
	d := create(t, s, &onDisk)
	defer d.Close()
	require.NoError(t, d.SetState(StateReady))
	require.NoError(t, d.Workspace().WriteFile("f", make([]byte, 6*mib), 0o600))
	require.NoError(t, d.Reset(t.Context()))
	require.NoError(t, d.Check(t.Context()))
	require.NoError(t, d.Workspace().WriteFile("g", make([]byte, 6*mib), 0o600))
	left, err := os.ReadDir(d.hostPath(diskDir))
	require.NoError(t, err)
	assert.Len(t, left, 3, "lost+found, tmp, workspace")
}

func createDisk(ctx context.Context, s *Store) error {
	o := onDisk
	d, err := s.Create(ctx, &o)
	if err != nil {
		return err
	}
	return d.SetState(StateReady)
}

func TestAMakerOfAnImageKilledAnywhereLeavesNothing(t *testing.T) {
	for _, point := range []string{"create.formatted", "create.mounted", "create.furnished", "create.recorded"} {
		t.Run(point, func(t *testing.T) {
			s := imaged(t)
			crash(t, "createdisk", s.path, point)
			_, err := s.Sweep(t.Context(), nil)
			require.NoError(t, err)
			empty(t, s)
		})
	}
}

func TestARemoverOfAnImageKilledAnywhereIsFinished(t *testing.T) {
	for _, point := range []string{"remove.marked", "remove.before", "remove.buried", "remove.unmounted"} {
		t.Run(point, func(t *testing.T) {
			s := imaged(t)
			require.NoError(t, start(t, "createdisk", s.path).Wait(), "it ends without closing: the mount stays")
			crash(t, "remove", s.path, point)
			_, err := s.Sweep(t.Context(), nil)
			require.NoError(t, err)
			empty(t, s)
		})
	}
}

func TestALostSessionsImageStaysForAPerson(t *testing.T) {
	s := imaged(t)
	kept(t, s, onDisk)
	require.NoError(t, os.Remove(filepath.Join(s.path, "sessions/x", stateFile)))
	_, err := s.Sweep(t.Context(), nil)
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(s.path, "sessions/x", imageFile))
}

func TestProcessesThatOpenAtOnceShareOneMount(t *testing.T) {
	s := imaged(t)
	d := create(t, s, &onDisk)
	require.NoError(t, d.SetState(StateReady))
	put(t, d.Workspace(), "n", "0")
	require.NoError(t, d.Close())
	a, b := start(t, "count", s.path), start(t, "count", s.path)
	require.NoError(t, a.Wait())
	require.NoError(t, b.Wait())
	d = again(t, s)
	defer d.Close()
	raw, err := d.Workspace().ReadFile("n")
	require.NoError(t, err)
	assert.Equal(t, "200", string(raw))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(mounts), s.path))
}

// alone returns a store that has to count, on a file system where nobody else deletes anything.
func alone(t *testing.T) *Store {
	t.Helper()
	s := storeOnTmpfs(t, "size=64m")
	s.without = map[DiskWay]bool{DiskImage: true, DiskProject: true}
	return s
}

func TestWhatIsCountedHasNoRoomAtItsLimitUntilSomethingGoes(t *testing.T) {
	d := create(t, alone(t), &onDisk)
	assert.Equal(t, DiskWatch, d.State().Disk.Way)
	assert.Contains(t, d.DiskState()[0].By, "watcher")
	require.NoError(t, d.Room(t.Context()))
	require.NoError(t, d.Workspace().WriteFile("big", make([]byte, 9*mib), 0o600))
	err := d.Room(t.Context())
	assert.Equal(t, answer.NoSpace, answer.KindOf(err))
	assert.ErrorContains(t, err, "8MiB")
	require.NoError(t, d.Workspace().Remove("big"))
	require.NoError(t, d.Room(t.Context()))
	for range 500 {
		put(t, d.Tmp(), newID(), "")
	}
	assert.ErrorContains(t, d.Room(t.Context()), "500 files")
	require.NoError(t, d.Reset(t.Context()))
	assert.Equal(t, answer.NoSpace, answer.KindOf(d.Room(t.Context())), "staged files count too")
}

func nothing(*State) error { return nil }

// TestALimitThatIsCountedChangesAtOnce is the advice of the error for a full session, typed.
func TestALimitThatIsCountedChangesAtOnce(t *testing.T) {
	d := create(t, alone(t), &onDisk)
	require.NoError(t, d.Workspace().WriteFile("big", make([]byte, 9*mib), 0o600))
	err := d.Room(t.Context())
	assert.ErrorContains(t, err, `wisbox call x rm '{"path":"FILE"}'`)
	assert.ErrorContains(t, err, "wisbox update x --disk SIZE")
	assert.Equal(t, answer.Conflict, answer.KindOf(d.ResizeDisk(t.Context(), 4*mib, 0, nothing)), "less than is there")
	require.NoError(t, d.ResizeDisk(t.Context(), 20*mib, 0, nothing))
	require.NoError(t, d.Room(t.Context()))
	assert.EqualValues(t, 20*mib, d.DiskState()[0].Asked)
	for range 500 {
		put(t, d.Tmp(), newID(), "")
	}
	assert.ErrorContains(t, d.Room(t.Context()), "wisbox update x --inodes N")
	require.NoError(t, d.ResizeDisk(t.Context(), 0, 1000, nothing))
	require.NoError(t, d.Room(t.Context()))
	again, err := d.Reload()
	require.NoError(t, err)
	assert.Equal(t, &Disk{Bytes: 20 * mib, Inodes: 1000, Way: DiskWatch}, again.Disk)
}

func TestADiskThatIsAnImageOnlyGrows(t *testing.T) {
	d := create(t, imaged(t), &onDisk)
	before := *d.State().Disk
	for _, err := range []error{d.ResizeDisk(t.Context(), 4*mib, 0, nothing), d.ResizeDisk(t.Context(), 0, 1000, nothing)} {
		assert.Equal(t, answer.Unsupported, answer.KindOf(err))
		assert.ErrorContains(t, err, "an image")
	}
	assert.Equal(t, before, *d.State().Disk)
	if err := d.ResizeDisk(t.Context(), 32*mib, 0, nothing); answer.KindOf(err) == answer.Unsupported {
		assert.ErrorContains(t, err, "CAP_SYS_RESOURCE")
		assert.Equal(t, before, *d.State().Disk)
		return
	}
	require.NoError(t, d.Workspace().WriteFile("big", make([]byte, 24*mib), 0o600))
}

func TestAWatcherEndsWritersNearTheLimit(t *testing.T) {
	floods(t, counted(t))
}

// floods runs four writers until they are ended. How much they write by then depends on the machine and its scheduler
// (260 MiB in a busy CI): it is only logged, and TestAWatcherLooksSoonerTheLessIsLeft checks the rule.
func floods(t testing.TB, s *Store) {
	const limit = 64 * mib
	d, err := s.Create(context.Background(), &CreateOptions{Disk: limit, Inodes: 5000})
	require.NoError(t, err)
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	over := make(chan struct{})
	watched := make(chan struct{})
	stop := context.CancelFunc(cancel)
	go func() {
		defer close(watched)
		d.WatchDisk(ctx, func() { close(over); stop() })
	}()
	written := make(chan int64)
	for i := range 4 {
		go func() { written <- writeUntil(ctx, d.WorkspacePath()+"/"+string(rune('a'+i)), over) }()
	}
	var all int64
	for range 4 {
		all += <-written
	}
	<-watched
	require.NotErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	assert.GreaterOrEqual(t, all, int64(limit))
	t.Logf("four writers came %d MiB over the limit", (all-limit)/mib)
}

func writeUntil(ctx context.Context, path string, stop <-chan struct{}) (n int64) {
	f, err := os.Create(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	block := make([]byte, mib)
	for {
		select {
		case <-stop:
			return n
		case <-ctx.Done():
			return n
		default:
		}
		if _, err := f.Write(block); err != nil {
			return n
		}
		n += mib
	}
}

func TestAWatcherLooksSoonerTheLessIsLeft(t *testing.T) {
	for spare, want := range map[int64]time.Duration{
		-5: lookMin, 0: lookMin, 100 * mib: 97 * time.Millisecond, 10 << 30: lookMax, 1 << 62: lookMax,
	} {
		assert.InDelta(t, want.Seconds(), nextLook(spare).Seconds(), 0.001, "%d", spare)
	}
	w := watcher{disk: Disk{Bytes: 100, Inodes: 10}}
	assert.EqualValues(t, 60, w.left(quota.Limit{Bytes: 40, Inodes: 1}))
	assert.EqualValues(t, 0, w.left(quota.Limit{Bytes: 40, Inodes: 10}))
}

// watchAsNobody runs as a user without rights, for whom the disk is watched.
func watchAsNobody(ctx context.Context, s *Store) error {
	d, err := s.Create(ctx, &CreateOptions{ID: "x", Disk: 8 * mib, Inodes: 500})
	if err != nil {
		return err
	}
	if d.State().Disk.Way != DiskWatch {
		return errors.New("not watched")
	}
	if err := d.Workspace().WriteFile("f", make([]byte, 9*mib), 0o600); err != nil {
		return err
	}
	ended := make(chan struct{}, 1)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d.WatchDisk(ctx, func() { ended <- struct{}{}; cancel() })
	if len(ended) == 0 {
		return errors.New("not ended")
	}
	return d.Close()
}

func TestAUserWithoutRightsIsWatched(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is what all other tests of a user without rights are")
	}
	cmd := hosttest.CommandOfNobody(t)
	cmd.Env = append(cmd.Env, jobOf("watch", filepath.Join(cmd.Dir, "root")))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func BenchmarkCreate(b *testing.B) {
	for name, o := range map[string]CreateOptions{"plain": {}, "disk": {Disk: 2 << 30, Inodes: 200_000}, "kept": {Disk: 2 << 30, Inodes: 200_000, Kept: true}} {
		b.Run(name, func(b *testing.B) {
			s, err := OpenStore(filepath.Join(b.TempDir(), "root"))
			require.NoError(b, err)
			defer s.Close()
			for b.Loop() {
				opts := o
				d, err := s.Create(b.Context(), &opts)
				require.NoError(b, err)
				b.StopTimer()
				require.NoError(b, d.Close())
				require.NoError(b, s.Remove(b.Context(), d.ID()))
				b.StartTimer()
			}
		})
	}
}

func TestAMeterNeverSaysLessThanThereIs(t *testing.T) {
	s := alone(t)
	rapid.Check(t, func(rt *rapid.T) {
		d, err := s.Create(context.Background(), &CreateOptions{Disk: mib, Inodes: 10})
		require.NoError(rt, err)
		defer func() {
			require.NoError(rt, d.Close())
			require.NoError(rt, s.Remove(context.Background(), d.ID()))
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				name := rapid.StringMatching(`[a-d]`).Draw(rt, "name")
				require.NoError(rt, d.Workspace().WriteFile(name, make([]byte, rapid.IntRange(0, mib/2).Draw(rt, "size")), 0o600))
			},
			"remove": func(rt *rapid.T) { _ = d.Workspace().Remove(rapid.StringMatching(`[a-d]`).Draw(rt, "name")) },
			"": func(rt *rapid.T) {
				said := answer.KindOf(d.Room(context.Background())) == answer.NoSpace
				dirs, err := d.fileDirs()
				require.NoError(rt, err)
				defer closeAll(dirs)
				taken, _, err := quota.Walk(context.Background(), quota.Limit{}, dirs...)
				require.NoError(rt, err)
				assert.Equal(rt, taken.Reaches(d.State().Disk.limit()), said, "%v", taken)
			},
		})
	})
}

func TestAStateRootThatIsDeletedUnderASessionLeavesNoMount(t *testing.T) {
	s := imaged(t)
	d := create(t, s, &onDisk)
	_ = os.RemoveAll(s.path) // stops at the mount
	_ = d.Close()
	assert.False(t, quota.IsMounted(d.hostPath(diskDir)))
	require.NoError(t, os.RemoveAll(s.path))
}

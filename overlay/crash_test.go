package overlay

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool/answer"
)

// childEnv makes this test binary run one job in its own process: "JOB ROOT [POINT]". At the point it kills itself as
// kill -9 does.
const childEnv = "WISBOX_OVERLAY_TEST_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := child(strings.Fields(job)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if left := leftMounts(); left != "" {
		fmt.Fprintln(os.Stderr, "the tests left mounts or loop devices behind:", left)
		code = max(code, 1)
	}
	os.Exit(code)
}

var jobs = map[string]func(ctx context.Context, s *Store) error{
	"create": func(ctx context.Context, s *Store) error {
		d, err := s.Create(ctx, &CreateOptions{ID: "x", Kept: true})
		if err != nil {
			return err
		}
		return d.SetState(StateReady)
	},
	"remove": func(ctx context.Context, s *Store) error { return s.Remove(ctx, "x") },
	"rename": func(ctx context.Context, s *Store) error { return s.Rename(ctx, "x", "y", nil) },
	"sweep":  func(ctx context.Context, s *Store) error { _, err := s.Sweep(ctx, nil); return err },
	"reset": func(ctx context.Context, s *Store) error {
		d, err := s.Open(ctx, "x")
		if err != nil {
			return err
		}
		return d.Reset(ctx)
	},
	"resize": func(ctx context.Context, s *Store) error {
		d, err := s.Open(ctx, "x")
		if err != nil {
			return err
		}
		return d.ResizeDisk(ctx, 32*mib, 0, func(s *State) error { s.Settings = []byte(`"new"`); return nil })
	},
	"count":      count,
	"createdisk": createDisk,
	"watch":      watchAsNobody,
}

func child(args []string) error {
	s, err := OpenStore(args[1])
	if err != nil {
		return err
	}
	if len(args) > 2 {
		s.step = func(point string) {
			if point == args[2] {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	return jobs[args[0]](context.Background(), s)
}

func start(t *testing.T, job ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := commandFor(exe, job...)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return cmd
}

func commandFor(exe string, job ...string) *exec.Cmd {
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), jobOf(job...))
	return cmd
}

func jobOf(job ...string) string { return childEnv + "=" + strings.Join(job, " ") }

// crash runs a job that must die at the point.
func crash(t *testing.T, job, root, point string) {
	t.Helper()
	err := start(t, job, root, point).Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

func TestAMakerKilledAnywhereLeavesNothing(t *testing.T) {
	for _, point := range []string{"create.begin", "create.named", "create.locked", "create.furnished", "create.recorded"} {
		t.Run(point, func(t *testing.T) {
			s := newStore(t)
			crash(t, "create", s.path, point)
			_, err := s.Sweep(t.Context(), nil)
			require.NoError(t, err)
			empty(t, s)
			kept(t, s, CreateOptions{ID: "x"})
		})
	}
}

func TestARemoverKilledAnywhereIsFinishedByTheNext(t *testing.T) {
	finish := map[string]func(s *Store) error{
		"remove": func(s *Store) error { return s.Remove(context.Background(), "x") },
		"sweep":  func(s *Store) error { _, err := s.Sweep(context.Background(), nil); return err },
	}
	for _, point := range []string{"remove.marked", "remove.before", "remove.buried"} {
		for name, again := range finish {
			t.Run(point+" "+name, func(t *testing.T) {
				s := newStore(t)
				kept(t, s, CreateOptions{ID: "x"})
				crash(t, "remove", s.path, point)
				require.NoError(t, again(s))
				empty(t, s)
			})
		}
	}
}

func TestASweeperKilledAnywhereIsFinishedByTheNext(t *testing.T) {
	for _, point := range []string{"remove.marked", "remove.before", "remove.buried"} {
		s := newStore(t)
		require.NoError(t, create(t, s, nil).Close())
		crash(t, "sweep", s.path, point)
		_, err := s.Sweep(t.Context(), nil)
		require.NoError(t, err)
		empty(t, s)
	}
}

// TestAResizeKilledAnywhereLeavesOldLimitsOrNewOnes: the record's disk and settings, and what the disk has room for, are of
// one time.
func TestAResizeKilledAnywhereLeavesOldLimitsOrNewOnes(t *testing.T) {
	for way, store := range map[string]func(*testing.T) *Store{"image": imaged, "counted": counted} {
		for point, isNew := range map[string]bool{"resize.begin": false, "resize.recorded": true, "resize.enforced": true} {
			t.Run(way+" "+point, func(t *testing.T) {
				s := store(t)
				d, err := s.Create(t.Context(), &onDisk)
				require.NoError(t, err)
				require.NoError(t, d.Update(t.Context(), func(s *State) error { s.Status, s.Settings = StateReady, []byte(`"old"`); return nil }))
				require.NoError(t, d.Close())
				crash(t, "resize", s.path, point)
				d = again(t, s)
				defer d.Close()
				state := d.Current()
				assert.Nil(t, state.Former)
				if isNew && state.Disk.Bytes == onDisk.Disk {
					assert.Equal(t, answer.Unsupported, answer.KindOf(d.ResizeDisk(t.Context(), 32*mib, 0, nothing)))
					isNew = false // this host lets no image grow
				}
				size, settings := onDisk.Disk, `"old"`
				if isNew {
					size, settings = 32*mib, `"new"`
				}
				assert.Equal(t, size, state.Disk.Bytes)
				assert.JSONEq(t, settings, string(state.Settings))
				if way == "image" {
					err := d.Workspace().WriteFile("big", make([]byte, 24*mib), 0o600)
					assert.Equal(t, size == 32*mib, err == nil, "%v", err)
				}
			})
		}
	}
}

func TestAResetKilledAnywhereLeavesAWorkspaceThatOpens(t *testing.T) {
	for point, left := range map[string]int{"reset.recorded": 1, "reset.exchanged": 0} {
		s := newStore(t)
		kept(t, s, CreateOptions{ID: "x"})
		d, err := s.Open(t.Context(), "x")
		require.NoError(t, err)
		put(t, d.Workspace(), "f", "x")
		require.NoError(t, d.Close())
		crash(t, "reset", s.path, point)
		d, err = s.Open(t.Context(), "x")
		require.NoError(t, err, point)
		entries, err := os.ReadDir(d.WorkspacePath())
		require.NoError(t, err)
		assert.Len(t, entries, left, point)
		all, err := os.ReadDir(d.hostPath(""))
		require.NoError(t, err)
		for _, e := range all {
			assert.NotContains(t, e.Name(), "workspace.", point)
		}
		require.NoError(t, d.Close())
	}
}

// count increments a number in a file of the workspace a hundred times.
func count(ctx context.Context, s *Store) error {
	d, err := s.Open(ctx, "x")
	if err != nil {
		return err
	}
	defer d.Close()
	for range 100 {
		if err := countOnce(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func countOnce(ctx context.Context, d *Dir) error {
	unlock, err := d.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	raw, err := d.Workspace().ReadFile("n")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return err
	}
	return replaceFile(d.Workspace(), "n", []byte(strconv.Itoa(n+1)))
}

func TestTwoProcessesLoseNoEditOfOneCounter(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x", Kept: true})
	put(t, d.Workspace(), "n", "0")
	a, b := start(t, "count", s.path), start(t, "count", s.path)
	require.NoError(t, a.Wait())
	require.NoError(t, b.Wait())
	raw, err := d.Workspace().ReadFile("n")
	require.NoError(t, err)
	assert.Equal(t, "200", string(raw))
}

func TestALockOfAKilledProcessIsFreeAtOnce(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x", Kept: true})
	put(t, d.Workspace(), "n", "0")
	for range 5 {
		victim := start(t, "count", s.path)
		require.NoError(t, victim.Process.Kill())
		_ = victim.Wait()
		require.NoError(t, countOnce(t.Context(), d))
	}
}

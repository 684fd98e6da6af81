package registry_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const guard = 30 * time.Second // against hanging for ever

type noFront struct{}

func (noFront) ServePort(http.ResponseWriter, *http.Request, uint16) {}
func (noFront) Close()                                               {}

func open(t *testing.T, dir string, e *registrytest.Engine) *registry.Registry {
	t.Helper()
	r, err := registry.Open(t.Context(), &registry.Options{
		Engine: e, Dir: dir, Front: func(*registry.Sandbox, registry.Box, <-chan struct{}) registry.Front { return noFront{} },
	})
	require.NoError(t, err)
	return r
}

// opened returns a registry that is closed at the end of the test.
func opened(t *testing.T, dir string, e *registrytest.Engine) *registry.Registry {
	r := open(t, dir, e)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

func create(t *testing.T, r *registry.Registry, rec registry.Record) *registry.Sandbox {
	t.Helper()
	s, err := r.Create(t.Context(), rec, time.Hour, registry.Quota{})
	require.NoError(t, err)
	return s
}

func ids(t *testing.T, e *registrytest.Engine) []string {
	t.Helper()
	all, err := e.IDs(t.Context())
	require.NoError(t, err)
	slices.Sort(all)
	return all
}

func eventually(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, what, guard, time.Millisecond)
}

func TestARestartFindsSandboxesWithTheirTokensAndTimes(t *testing.T) {
	dir, e := filepath.Join(t.TempDir(), "a[b]*?"), &registrytest.Engine{}
	r := open(t, dir, e)
	s := create(t, r, registry.Record{Owner: "a", Metadata: map[string]string{"k": "v"}, Env: map[string]string{"E": "1"}})
	require.True(t, registry.IsID(s.ID()))
	require.NoError(t, s.SetEnd(2*time.Hour, false))
	_, err := registry.Open(t.Context(), &registry.Options{Engine: e, Dir: dir})
	require.ErrorIs(t, err, registry.ErrInUse)
	before, envd, traffic := s.Record(), s.EnvdToken(), s.TrafficToken()
	require.NoError(t, r.Close())

	again, ok := opened(t, dir, e).Find(s.ID())
	require.True(t, ok)
	assert.Equal(t, before, again.Record())
	assert.Equal(t, envd, again.EnvdToken())
	assert.Equal(t, traffic, again.TrafficToken())
	assert.NotEqual(t, envd, traffic)
	box, err := again.Box(t.Context())
	require.NoError(t, err)
	assert.NotNil(t, box)
	raw, err := os.ReadFile(filepath.Join(dir, "sandboxes", s.ID()+".json"))
	require.NoError(t, err)
	assert.NotContains(t, string(raw), envd)
}

func TestWhatEndedWhileNoServerRanEndsAtTheStart(t *testing.T) {
	dir, e := t.TempDir(), &registrytest.Engine{}
	r := open(t, dir, e)
	over, lives := create(t, r, registry.Record{}), create(t, r, registry.Record{})
	gone := create(t, r, registry.Record{})
	require.NoError(t, over.SetEnd(100*time.Millisecond, false))
	require.NoError(t, r.Close())
	require.NoError(t, e.Remove(t.Context(), gone.ID()))
	eventually(t, func() bool { return time.Now().After(over.Record().End) })

	r = opened(t, dir, e)
	_, ok := r.Find(gone.ID())
	assert.False(t, ok, "somebody else removed it")
	eventually(t, func() bool { return slices.Equal(ids(t, e), []string{lives.ID()}) })
	eventually(t, func() bool { return len(r.All()) == 1 })
	eventually(t, func() bool {
		left, err := os.ReadDir(filepath.Join(dir, "sandboxes"))
		return err == nil && len(left) == 1
	})
}

func TestASandboxEndsInTime(t *testing.T) {
	e := &registrytest.Engine{}
	r := opened(t, t.TempDir(), e)
	s := create(t, r, registry.Record{})
	require.NoError(t, s.SetEnd(time.Minute, true))
	assert.Greater(t, time.Until(s.Record().End), 50*time.Minute, "longer never shortens")
	require.NoError(t, s.SetEnd(0, false))
	eventually(t, func() bool { return len(ids(t, e)) == 0 })
	_, ok := r.Find(s.ID())
	assert.False(t, ok)
	assert.Equal(t, tool.NotFound, tool.KindOf(s.SetEnd(time.Hour, false)))
	assert.False(t, r.Kill(s))
}

func TestASandboxIsPausedAtItsEndAndResumed(t *testing.T) {
	dir, e := t.TempDir(), &registrytest.Engine{}
	r := open(t, dir, e)
	s := create(t, r, registry.Record{AutoPause: true})
	began := s.Record().Started
	require.NoError(t, s.SetEnd(0, false))
	eventually(t, func() bool { return s.Record().State == registry.Paused })
	assert.Equal(t, tool.Conflict, tool.KindOf(s.Pause(t.Context(), false)))
	require.NoError(t, r.Close())

	r = opened(t, dir, e)
	s, ok := r.Find(s.ID())
	require.True(t, ok, "a restart finds it paused")
	assert.Equal(t, registry.Paused, s.Record().State)
	require.NoError(t, s.Resume(t.Context(), time.Hour, false))
	assert.Equal(t, registry.Running, s.Record().State)
	assert.False(t, s.Record().Started.Before(began))
	assert.Equal(t, tool.Conflict, tool.KindOf(s.Resume(t.Context(), time.Hour, false)))
	assert.True(t, r.Kill(s))
	assert.Equal(t, tool.NotFound, tool.KindOf(s.Pause(t.Context(), false)))
}

func TestAnEngineThatCantPauseSaysSo(t *testing.T) {
	s := create(t, opened(t, t.TempDir(), &registrytest.Engine{NoPause: true}), registry.Record{})
	assert.Equal(t, tool.Unsupported, tool.KindOf(s.Pause(t.Context(), false)))
	assert.Equal(t, tool.Unsupported, tool.KindOf(s.Pause(t.Context(), true)))
	assert.True(t, s.IsRunning())
}

// TestAPauseMayKeepTheFilesAlone covers pauses by timeout and by request. A client may also
// resume without the programs, even if the pause kept them.
func TestAPauseMayKeepTheFilesAlone(t *testing.T) {
	dir, e := t.TempDir(), &registrytest.Engine{}
	r := open(t, dir, e)
	s := create(t, r, registry.Record{AutoPause: true, AutoPauseFiles: true})
	require.NoError(t, s.SetEnd(0, false))
	eventually(t, func() bool { return s.Record().State == registry.Paused })
	assert.Equal(t, tool.Conflict, tool.KindOf(s.Pause(t.Context(), true)))
	require.NoError(t, r.Close())

	r = opened(t, dir, e)
	s, ok := r.Find(s.ID())
	require.True(t, ok)
	require.True(t, s.Record().FilesOnly, "a restart knows what the pause has kept")
	require.NoError(t, s.Resume(t.Context(), time.Hour, false))
	assert.Equal(t, 1, e.Begun(s.ID()))
	assert.False(t, s.Record().FilesOnly)

	require.NoError(t, s.Pause(t.Context(), false))
	require.NoError(t, s.Resume(t.Context(), time.Hour, true))
	assert.Equal(t, 2, e.Begun(s.ID()), "the memory was kept, and isn't wanted")
	require.NoError(t, s.Pause(t.Context(), false))
	require.NoError(t, s.Resume(t.Context(), time.Hour, false))
	assert.Equal(t, 2, e.Begun(s.ID()), "the programs have gone on")
}

func TestASandboxWhoseProgramsDoNotEndRuns(t *testing.T) {
	e := &registrytest.Engine{Fail: func(op string) error {
		if op == "halt" {
			return tool.Errorf(tool.Unavailable, "no Podman")
		}
		return nil
	}}
	s := create(t, opened(t, t.TempDir(), e), registry.Record{})
	assert.Equal(t, tool.Unavailable, tool.KindOf(s.Pause(t.Context(), true)))
	assert.True(t, s.IsRunning())
	assert.False(t, s.Record().FilesOnly)
}

// TestAStartFromFilesIsWhole: a client that disconnects doesn't interrupt it, and after a
// failure no programs are left in the sandbox, which then has no deadline.
func TestAStartFromFilesIsWhole(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	var failed error
	var halts int
	e := &registrytest.Engine{Fail: func(op string) error {
		switch op {
		case "halt":
			halts++
		case "restart":
			leave()
			return failed
		}
		return nil
	}}
	s := create(t, opened(t, t.TempDir(), e), registry.Record{})
	require.NoError(t, s.Pause(t.Context(), false))
	require.NoError(t, s.Resume(ctx, time.Hour, true))
	assert.True(t, s.IsRunning())

	failed = tool.Errorf(tool.Unavailable, "no Podman")
	require.NoError(t, s.Pause(t.Context(), false))
	assert.Equal(t, tool.Unavailable, tool.KindOf(s.Resume(t.Context(), time.Hour, true)))
	assert.Equal(t, registry.Paused, s.Record().State)
	assert.True(t, s.Record().FilesOnly, "its programs are gone")
	assert.Equal(t, 1, halts)
}

// TestAServerThatIsKilledWhileItEndsProgramsHasThemEndedByTheNext: the server was killed during
// a pause that keeps only files, or during a start from files.
func TestAServerThatIsKilledWhileItEndsProgramsHasThemEndedByTheNext(t *testing.T) {
	for _, at := range []string{"halt", "restart"} {
		t.Run(at, func(t *testing.T) {
			dir := t.TempDir()
			var midway []byte
			var path string
			e := &registrytest.Engine{Fail: func(op string) (err error) {
				if op == at {
					midway, err = os.ReadFile(path)
				}
				return err
			}}
			r := open(t, dir, e)
			s := create(t, r, registry.Record{})
			path = filepath.Join(dir, "sandboxes", s.ID()+".json")
			require.NoError(t, s.Pause(t.Context(), at == "halt"))
			if at == "restart" {
				require.NoError(t, s.Resume(t.Context(), time.Hour, true))
			}
			require.NoError(t, r.Close())
			require.NoError(t, os.WriteFile(path, midway, 0o600))

			var halts atomic.Int32
			e.Fail = func(op string) error {
				if op == "halt" {
					halts.Add(1)
				}
				return nil
			}
			r = open(t, dir, e)
			s, ok := r.Find(s.ID())
			require.True(t, ok)
			eventually(t, func() bool { return halts.Load() == 1 && !s.Record().Halting })
			assert.Equal(t, registry.Paused, s.Record().State)
			require.NoError(t, r.Close())
			r = opened(t, dir, e)
			s, _ = r.Find(s.ID())
			assert.False(t, s.Record().Halting)
			require.NoError(t, s.Resume(t.Context(), time.Hour, false))
			assert.EqualValues(t, 1, halts.Load(), "once is enough")
		})
	}
}

func TestWhatFailsToStartLeavesNothing(t *testing.T) {
	dir, e := t.TempDir(), &registrytest.Engine{}
	e.Fail = func(op string) error {
		if op == "create" {
			return tool.Errorf(tool.Unavailable, "no Podman")
		}
		return nil
	}
	r := opened(t, dir, e)
	_, err := r.Create(t.Context(), registry.Record{}, time.Hour, registry.Quota{})
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	eventually(t, func() bool {
		left, err := os.ReadDir(filepath.Join(dir, "sandboxes"))
		return err == nil && len(left) == 0
	})
	assert.Empty(t, r.All())
}

func TestAnOwnerHasNoMoreThanItsShare(t *testing.T) {
	r := opened(t, t.TempDir(), &registrytest.Engine{})
	var made, refused atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := r.Create(t.Context(), registry.Record{Owner: "a"}, time.Hour, registry.Quota{Sandboxes: 3})
			if err == nil {
				made.Add(1)
			} else if tool.KindOf(err) == tool.Limit {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	assert.Equal(t, int32(3), made.Load())
	assert.Equal(t, int32(17), refused.Load())
	_, err := r.Create(t.Context(), registry.Record{Owner: "b"}, time.Hour, registry.Quota{Sandboxes: 3})
	require.NoError(t, err)
	r.Kill(r.Owned("a")[0])
	_, err = r.Create(t.Context(), registry.Record{Owner: "a"}, time.Hour, registry.Quota{Sandboxes: 3})
	require.NoError(t, err, "one that was killed takes no place")
}

// TestARemovalThatFailsIsOfNoConcernToClients: the sandbox is gone for clients, and the next
// server removes it.
func TestARemovalThatFailsIsOfNoConcernToClients(t *testing.T) {
	dir, e := t.TempDir(), &registrytest.Engine{}
	var stuck atomic.Bool
	stuck.Store(true)
	tried := make(chan struct{}, 1)
	e.Fail = func(op string) error {
		if op == "remove" && stuck.Load() {
			select {
			case tried <- struct{}{}:
			default:
			}
			return errors.New("busy")
		}
		return nil
	}
	r := open(t, dir, e)
	s := create(t, r, registry.Record{})
	assert.True(t, r.Kill(s))
	_, ok := r.Find(s.ID())
	assert.False(t, ok)
	<-tried
	require.NoError(t, r.Close())
	assert.Len(t, ids(t, e), 1)
	stuck.Store(false)
	r = opened(t, dir, e)
	assert.Empty(t, r.All())
	eventually(t, func() bool { return len(ids(t, e)) == 0 })
}

func TestARecordThatCantBeReadIsLeftAlone(t *testing.T) {
	dir, e := t.TempDir(), &registrytest.Engine{}
	r := open(t, dir, e)
	s := create(t, r, registry.Record{})
	require.NoError(t, r.Close())
	path := filepath.Join(dir, "sandboxes", s.ID()+".json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sandboxes", "other.json"), []byte(`{"id":"x"}`), 0o600))
	r = opened(t, dir, e)
	assert.Empty(t, r.All())
	assert.FileExists(t, path)
	assert.Len(t, ids(t, e), 1)
}

func TestIDsInErrorsAreHidden(t *testing.T) {
	assert.Equal(t, "session SANDBOX is gone", registry.Quiet(errors.New("session abcdefghij0123456789 is gone")))
}

// TestAnEngineThatStopsEndsNoSandbox: a request during shutdown finds no sandbox and removes
// none.
func TestAnEngineThatStopsEndsNoSandbox(t *testing.T) {
	dir, e := t.TempDir(), &registrytest.Engine{}
	r := open(t, dir, e)
	s := create(t, r, registry.Record{})
	require.NoError(t, r.Close())
	e.Fail = func(string) error { return tool.Errorf(tool.Closed, "the manager is closed") }
	_, err := s.Box(t.Context())
	require.Error(t, err)
	e.Fail = nil
	_, ok := opened(t, dir, e).Find(s.ID())
	assert.True(t, ok)
}

// TestSandboxesAreReadyBeforeAnybodyAsks: a client gets a fitting ready sandbox and becomes its
// owner; the rest are removed with the server.
func TestSandboxesAreReadyBeforeAnybodyAsks(t *testing.T) {
	dir, made, broken := t.TempDir(), make(chan struct{}, 100), &atomic.Bool{}
	e := &registrytest.Engine{Fail: func(op string) error {
		switch {
		case op == "create":
			made <- struct{}{}
		case op == "remove" && broken.Load():
			return errors.New("it stays")
		}
		return nil
	}}
	opts := &registry.Options{
		Engine: e, Dir: dir, Disk: 10, Kept: func() (int64, error) { return 0, nil }, Size: registry.Quota{Disk: 10},
		Ready: registry.Ready{Min: 1, Fits: func(r registry.Record) bool { return r.Template == "" }},
	}
	r, err := registry.Open(t.Context(), opts)
	require.NoError(t, err)
	<-made
	spare := ""
	eventually(t, func() bool {
		all := ids(t, e)
		if len(all) == 1 {
			spare = all[0]
		}
		return spare != ""
	})
	_, found := r.Find(spare)
	assert.False(t, found, "it is nobody's")
	_, err = r.Create(t.Context(), registry.Record{Owner: "a", Disk: 11}, time.Hour, registry.Quota{})
	assert.Equal(t, tool.NoSpace, tool.KindOf(err), "who is refused takes none")
	var s *registry.Sandbox
	eventually(t, func() bool { // once the pool has it
		s, err = r.Create(t.Context(), registry.Record{Owner: "a", Disk: 10, Metadata: map[string]string{"k": "v"}}, time.Hour, registry.Quota{})
		require.NoError(t, err)
		if s.ID() == spare {
			return true
		}
		require.True(t, r.Kill(s))
		eventually(t, func() bool { return !slices.Contains(ids(t, e), s.ID()) })
		return false
	})
	assert.Equal(t, "v", s.Record().Metadata["k"])
	assert.Equal(t, registry.Running, s.Record().State)
	assert.Equal(t, int64(10), r.Taken("a").Disk)
	eventually(t, func() bool { return len(ids(t, e)) == 2 }) // the next one is ready
	require.NoError(t, r.Close())
	assert.Equal(t, []string{spare}, ids(t, e))

	opts.Disk = 0
	r, err = registry.Open(t.Context(), opts)
	require.NoError(t, err)
	assert.Len(t, r.Owned("a"), 1)
	other, err := r.Create(t.Context(), registry.Record{Owner: "a", Template: "t"}, time.Hour, registry.Quota{})
	require.NoError(t, err)
	eventually(t, func() bool { return len(ids(t, e)) == 3 })
	broken.Store(true) // as if the server was killed
	require.NoError(t, r.Close())
	assert.Len(t, ids(t, e), 3)
	broken.Store(false)
	opts.Ready.Min = 0
	r, err = registry.Open(t.Context(), opts)
	require.NoError(t, err)
	eventually(t, func() bool { return len(ids(t, e)) == 2 })
	assert.ElementsMatch(t, []string{spare, other.ID()}, ids(t, e))
	require.NoError(t, r.Close())
}

// TestTheEndOfASandboxIsReported: Ended is called once.
func TestTheEndOfASandboxIsReported(t *testing.T) {
	ended := make(chan string, 10)
	r, err := registry.Open(t.Context(), &registry.Options{Engine: &registrytest.Engine{}, Dir: t.TempDir(), Ended: func(s *registry.Sandbox) {
		assert.True(t, s.HasEnded())
		ended <- s.ID()
	}})
	require.NoError(t, err)
	s := create(t, r, registry.Record{})
	assert.False(t, s.HasEnded())
	require.True(t, r.Kill(s))
	assert.Equal(t, s.ID(), <-ended)
	assert.False(t, r.Kill(s))
	require.NoError(t, r.Close())
	assert.Empty(t, ended)
}

// TestAReadySandboxThatDiedFailsNobody: it is replaced and removed, even without a request. A
// working one gets the network rules that its client asks for.
func TestAReadySandboxThatDiedFailsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &atomic.Bool{}
		e := &registrytest.Engine{Fail: func(op string) error {
			if op == "ready" && broken.Load() {
				return errors.New("its holder died")
			}
			return nil
		}}
		r, err := registry.Open(t.Context(), &registry.Options{
			Engine: e, Dir: t.TempDir(), Ready: registry.Ready{Min: 1, Fits: func(registry.Record) bool { return true }},
		})
		require.NoError(t, err)
		defer func() { assert.NoError(t, r.Close()) }()
		spare := func() string {
			<-time.After(time.Second)
			require.Equal(t, 1, r.ReadyNow())
			all := slices.DeleteFunc(ids(t, e), func(id string) bool { _, owned := r.Find(id); return owned })
			require.Len(t, all, 1)
			return all[0]
		}
		dead := spare()
		broken.Store(true)
		s := create(t, r, registry.Record{})
		assert.NotEqual(t, dead, s.ID())
		broken.Store(false)
		next := spare()
		assert.NotContains(t, ids(t, e), dead)

		broken.Store(true)
		<-time.After(5 * time.Minute)
		broken.Store(false)
		works := spare()
		assert.NotEqual(t, next, works)

		open := create(t, r, registry.Record{Rules: registry.Rules{Allow: []string{"public"}, Deny: []string{"a.example"}}})
		assert.Equal(t, works, open.ID())
		box, err := open.Box(t.Context())
		require.NoError(t, err)
		allow, deny, err := box.(registry.Networker).Network(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"public"}, allow)
		assert.Equal(t, []string{"a.example"}, deny)
	})
}

// TestWhatAKilledServerKeptReadyTakesNoRoom: leftover ready sandboxes don't count while they are
// removed.
func TestWhatAKilledServerKeptReadyTakesNoRoom(t *testing.T) {
	stays := &atomic.Bool{}
	stays.Store(true)
	e := &registrytest.Engine{Fail: func(op string) error {
		if op == "remove" && stays.Load() {
			return errors.New("it stays")
		}
		return nil
	}}
	opts := &registry.Options{
		Engine: e, Dir: t.TempDir(), Disk: 10, Kept: func() (int64, error) { return 0, nil }, Size: registry.Quota{Disk: 10},
		Ready: registry.Ready{Min: 1, Fits: func(registry.Record) bool { return false }},
	}
	r, err := registry.Open(t.Context(), opts)
	require.NoError(t, err)
	eventually(t, func() bool { return r.ReadyNow() == 1 })
	require.NoError(t, r.Close()) // as if the server was killed: it still exists
	require.Len(t, ids(t, e), 1)
	opts.Ready.Min = 0
	r, err = registry.Open(t.Context(), opts)
	require.NoError(t, err)
	_, err = r.Create(t.Context(), registry.Record{Owner: "a", Disk: 10}, time.Hour, registry.Quota{})
	require.NoError(t, err)
	require.NoError(t, r.Close())
}

// TestAMakingThatHangsEnds: another one can then begin.
func TestAMakingThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Int64
		e := &registrytest.Engine{Stuck: make(chan struct{}), Fail: func(op string) error {
			if op == "create" {
				over.Add(1)
			}
			return nil
		}}
		r, err := registry.Open(t.Context(), &registry.Options{
			Engine: e, Dir: t.TempDir(), Ready: registry.Ready{Min: 1, Fits: func(registry.Record) bool { return true }},
		})
		require.NoError(t, err)
		<-time.After(3 * time.Minute)
		assert.EqualValues(t, 1, over.Load())
		require.NoError(t, r.Close())
	})
}

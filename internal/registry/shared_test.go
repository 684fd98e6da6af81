package registry_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/tool"
)

var errAway = tool.Errorf(tool.Unavailable, "the API server can't be reached")

func replicaOf(t *testing.T, b *registrytest.Book, edit func(*registry.Options)) (*registry.Registry, error) {
	t.Helper()
	o := &registry.Options{
		Engine: b, Book: b, Secret: []byte("a secret of thirty-two characters"),
		Front: func(*registry.Sandbox, registry.Box, <-chan struct{}) registry.Front { return noFront{} },
	}
	if edit != nil {
		edit(o)
	}
	return registry.Open(t.Context(), o)
}

// replica returns a registry of a book. It is closed at the end of the test.
func replica(t *testing.T, b *registrytest.Book) *registry.Registry {
	t.Helper()
	r, err := replicaOf(t, b, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

func found(r *registry.Registry, id string) func() bool {
	return func() bool { _, ok := r.Find(id); return ok }
}

func TestReplicasHaveTheSameSandboxes(t *testing.T) {
	b := &registrytest.Book{}
	first, second := replica(t, b), replica(t, b)
	s := create(t, first, registry.Record{Owner: "a", Env: map[string]string{"E": "1"}})
	eventually(t, found(second, s.ID()))
	same, _ := second.Find(s.ID())
	assert.Equal(t, s.Record(), same.Record())
	assert.Equal(t, s.EnvdToken(), same.EnvdToken())
	box, err := same.Box(t.Context())
	require.NoError(t, err)
	assert.NotNil(t, box)

	require.NoError(t, same.SetEnd(2*time.Hour, false))
	eventually(t, func() bool { return time.Until(s.Record().End) > time.Hour })
	was, err := second.Remove(t.Context(), same)
	require.NoError(t, err)
	assert.True(t, was)
	eventually(t, func() bool { return !found(first, s.ID())() })
	was, err = first.Remove(t.Context(), s)
	require.NoError(t, err)
	assert.False(t, was)
	assert.Equal(t, tool.NotFound, tool.KindOf(s.SetEnd(time.Hour, false)))

	third := create(t, second, registry.Record{Owner: "a"})
	require.NotNil(t, third)
	late := replica(t, b)
	assert.True(t, found(late, third.ID())(), "it is in the first list")
	assert.False(t, found(late, s.ID())())
}

// TestAReplicaAsksForWhatItHasNotHeardOf: it asks once, and reports an unreachable book.
func TestAReplicaAsksForWhatItHasNotHeardOf(t *testing.T) {
	b := &registrytest.Book{}
	first, second := replica(t, b), replica(t, b)
	b.Deaf(true)
	made := make(chan *registry.Sandbox)
	go func() {
		s, _ := first.Create(context.Background(), registry.Record{Owner: "a"}, time.Hour, registry.Quota{})
		made <- s
	}()
	var id string
	eventually(t, func() bool {
		for id = range b.Records() {
			return true
		}
		return false
	})
	_, ok, err := second.Seek(t.Context(), "a", id)
	require.NoError(t, err)
	assert.False(t, ok, "it is being made")
	_, err = b.Change(t.Context(), id, func(r *registry.Record) bool { r.State = registry.Running; return true })
	require.NoError(t, err)
	_, ok, err = second.Seek(t.Context(), "a", id)
	require.NoError(t, err)
	assert.True(t, ok)
	b.Deaf(false)
	require.NotNil(t, <-made)

	unknown := "aaaaaaaaaaaaaaaaaaaa"
	_, ok, err = second.Seek(t.Context(), "a", unknown)
	require.NoError(t, err)
	assert.False(t, ok)
	b.Away(errAway)
	_, ok, err = second.Seek(t.Context(), "a", unknown)
	assert.False(t, ok)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	_, ok, err = second.Seek(t.Context(), "a", id)
	require.NoError(t, err)
	assert.True(t, ok, "what is known needs no book")
	b.Away(nil)
}

// TestATimeThatAnotherReplicaSetsHolds: a replica that missed the change reads the record again
// before it ends a sandbox.
func TestATimeThatAnotherReplicaSetsHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &registrytest.Book{}
		first, second := replica(t, b), replica(t, b)
		s, err := first.Create(t.Context(), registry.Record{Owner: "a"}, time.Minute, registry.Quota{})
		require.NoError(t, err)
		synctest.Wait()
		b.Deaf(true)
		same, _ := second.Find(s.ID())
		require.NoError(t, same.SetEnd(time.Hour, false))
		time.Sleep(2 * time.Minute)
		assert.True(t, s.IsRunning())
		b.Away(errAway) // no replica can end it now
		time.Sleep(time.Hour)
		assert.True(t, s.IsRunning())
		b.Away(nil)
		b.Deaf(false)
		time.Sleep(time.Minute)
		assert.True(t, s.HasEnded())
		assert.True(t, same.HasEnded())
		assert.Empty(t, b.Records())
	})
}

// TestAReplicaEndsWhatOthersHaveMade: those replicas may have ended.
func TestAReplicaEndsWhatOthersHaveMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &registrytest.Book{}
		first, err := replicaOf(t, b, nil)
		require.NoError(t, err)
		second := replica(t, b)
		_, err = first.Create(t.Context(), registry.Record{Owner: "a"}, time.Minute, registry.Quota{})
		require.NoError(t, err)
		b.Put(registry.Entry{Record: registry.Record{ID: "bbbbbbbbbbbbbbbbbbbb", Owner: "a", State: "creating", Started: time.Now(), End: time.Now().Add(time.Hour)}}, false)
		synctest.Wait()
		require.NoError(t, first.Close())
		assert.Len(t, second.All(), 1, "what is being made isn't shown")
		time.Sleep(2 * time.Minute)
		assert.Len(t, b.Records(), 1)
		time.Sleep(20 * time.Minute)
		assert.Empty(t, b.Records(), "nobody makes it any more")
	})
}

// TestAQuotaHoldsOverReplicas: if replicas admit sandboxes at the same time, the later one
// withdraws.
func TestAQuotaHoldsOverReplicas(t *testing.T) {
	b := &registrytest.Book{}
	all := []*registry.Registry{replica(t, b), replica(t, b), replica(t, b)}
	for range 20 {
		var errs [9]error
		var makers sync.WaitGroup
		for i := range errs {
			makers.Go(func() {
				_, errs[i] = all[i%3].Create(context.Background(), registry.Record{Owner: "a", Memory: 1}, time.Hour, registry.Quota{Sandboxes: 2})
			})
		}
		makers.Wait()
		refused := slices.DeleteFunc(errs[:], func(err error) bool { return err == nil })
		assert.Len(t, refused, 7)
		for _, err := range refused {
			assert.Equal(t, tool.Limit, tool.KindOf(err))
		}
		eventually(t, func() bool { return len(b.Records()) == 2 && len(all[0].Owned("a")) == 2 })
		for _, s := range all[0].Owned("a") {
			_, err := all[0].Remove(t.Context(), s)
			require.NoError(t, err)
		}
		for _, r := range all {
			eventually(t, func() bool { return r.Taken("a").Sandboxes == 0 })
		}
	}
}

// TestABookThatIsAway: no sandbox is half made or ended, and everything works again later.
func TestABookThatIsAway(t *testing.T) {
	b := &registrytest.Book{}
	r := replica(t, b)
	s := create(t, r, registry.Record{Owner: "a"})
	b.Away(errAway)
	_, err := r.Create(t.Context(), registry.Record{Owner: "a"}, time.Hour, registry.Quota{})
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.Equal(t, tool.Unavailable, tool.KindOf(s.SetEnd(time.Hour, false)))
	was, err := r.Remove(t.Context(), s)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.False(t, was)
	assert.True(t, s.IsRunning())
	_, err = replicaOf(t, b, nil)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err), "a server doesn't begin without its sandboxes")
	b.Away(nil)
	require.NoError(t, s.SetEnd(time.Hour, false))
	assert.Len(t, b.Records(), 1)
}

// TestWhatTheClusterEndsIsGone: it is gone for clients at once, and in the book.
func TestWhatTheClusterEndsIsGone(t *testing.T) {
	b := &registrytest.Book{}
	r := replica(t, b)
	failed, deleted, unseen := create(t, r, registry.Record{Owner: "a"}), create(t, r, registry.Record{Owner: "a"}), create(t, r, registry.Record{Owner: "a"})
	b.Put(registry.Entry{Record: failed.Record(), Problem: "the node evicted it"}, false)
	b.Put(registry.Entry{Record: deleted.Record(), Ending: true}, false)
	eventually(t, func() bool { return failed.HasEnded() && deleted.HasEnded() })
	b.Put(registry.Entry{Record: deleted.Record()}, true)
	eventually(t, func() bool { return len(b.Records()) == 1 })
	b.Deaf(true)
	b.Put(registry.Entry{Record: unseen.Record()}, true)
	b.Away(nil) // the watch starts again
	b.Deaf(false)
	eventually(t, unseen.HasEnded)
	eventually(t, func() bool { return r.Taken("a").Sandboxes == 0 })
}

// TestALifeIsBounded: extensions don't exceed the limit.
func TestALifeIsBounded(t *testing.T) {
	b := &registrytest.Book{}
	r, err := replicaOf(t, b, func(o *registry.Options) { o.MaxLife = time.Hour })
	require.NoError(t, err)
	defer r.Close()
	s, err := r.Create(t.Context(), registry.Record{Owner: "a"}, 2*time.Hour, registry.Quota{})
	require.NoError(t, err)
	most := s.Record().Started.Add(time.Hour)
	assert.Equal(t, most, s.Record().End)
	require.NoError(t, s.SetEnd(3*time.Hour, true))
	assert.Equal(t, most, s.Record().End)
	_, err = replicaOf(t, b, func(o *registry.Options) { o.Secret = []byte("short") })
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

// TestARecordThatSomebodyPutsBack: anybody with the right to change Pods' annotations can put
// back an older record. That must not end a sandbox, undo a change, or keep a server busy.
func TestARecordThatSomebodyPutsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &registrytest.Book{}
		r := replica(t, b)
		s, err := r.Create(t.Context(), registry.Record{Owner: "a"}, time.Hour, registry.Quota{})
		require.NoError(t, err)
		long := s.Record()
		require.NoError(t, s.SetEnd(time.Minute, false))
		short := s.Record()
		b.Put(registry.Entry{Record: long}, false)
		synctest.Wait()
		assert.Equal(t, short, s.Record())
		asked := b.Ends()
		time.Sleep(2 * time.Minute)
		assert.True(t, s.HasEnded(), "its time is over")
		assert.Equal(t, 1, b.Ends()-asked)

		s, err = r.Create(t.Context(), registry.Record{Owner: "a"}, time.Minute, registry.Quota{})
		require.NoError(t, err)
		early := s.Record()
		require.NoError(t, s.SetEnd(time.Hour, false))
		require.NoError(t, s.SetEnd(2*time.Hour, false))
		b.Put(registry.Entry{Record: early}, false)
		require.NoError(t, s.SetEnd(3*time.Hour, false))
		assert.Equal(t, s.Record(), b.Records()[s.ID()].Record, "it is as it was, and later")
		assert.Greater(t, time.Until(s.Record().End), 2*time.Hour)
		b.Put(registry.Entry{Record: early}, false)
		time.Sleep(2 * time.Hour)
		assert.True(t, s.IsRunning())
		time.Sleep(2 * time.Hour)
		assert.True(t, s.HasEnded())
	})
}

// TestASandboxThatOnlyWasAskedForIsForgotten: no change reports its end.
func TestASandboxThatOnlyWasAskedForIsForgotten(t *testing.T) {
	b := &registrytest.Book{}
	r := replica(t, b)
	b.Deaf(true)
	rec := registry.Record{ID: "cccccccccccccccccccc", Owner: "a", State: registry.Running, Started: time.Now(), End: time.Now().Add(time.Hour)}
	b.Put(registry.Entry{Record: rec}, false)
	s, ok, err := r.Seek(t.Context(), "a", rec.ID)
	require.NoError(t, err)
	require.True(t, ok)
	b.Put(registry.Entry{Record: rec}, true)
	assert.Equal(t, tool.NotFound, tool.KindOf(s.SetEnd(time.Hour, false)))
	b.Away(nil) // everything is listed again
	b.Deaf(false)
	eventually(t, func() bool { s, _ := r.Find(rec.ID); return s == nil })
}

// TestStrangersDoNotHideSandboxes: a flood of unknown IDs gets busy instead of not_found, and
// owners still get answers.
func TestStrangersDoNotHideSandboxes(t *testing.T) {
	b := &registrytest.Book{}
	r := replica(t, b)
	b.Deaf(true)
	rec := registry.Record{ID: "cccccccccccccccccccc", Owner: "a", State: registry.Running, Started: time.Now(), End: time.Now().Add(time.Hour)}
	b.Put(registry.Entry{Record: rec}, false)
	var err error
	for range 200 {
		if _, _, err = r.Seek(t.Context(), "", "aaaaaaaaaaaaaaaaaaaa"); err != nil {
			break
		}
	}
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	_, ok, err := r.Seek(t.Context(), "a", rec.ID)
	require.NoError(t, err)
	require.True(t, ok)
	s, _ := r.Find(rec.ID)
	assert.True(t, r.IsToken(rec.ID, s.EnvdToken()))
	assert.True(t, r.IsToken(rec.ID, s.TrafficToken()))
	assert.False(t, r.IsToken("aaaaaaaaaaaaaaaaaaaa", s.EnvdToken()))
	assert.False(t, r.IsToken(rec.ID, ""))
}

// TestASlowCreationIsNotStale: its server renews the record, so that other servers don't remove it.
func TestASlowCreationIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &registrytest.Book{}
		b.Stuck = make(chan struct{})
		first, second := replica(t, b), replica(t, b)
		made := make(chan error)
		go func() {
			_, err := first.CreateNamed(context.Background(), registry.Record{Owner: "a", Name: "box"}, time.Hour, registry.Quota{}, b.Create)
			made <- err
		}()
		time.Sleep(40 * time.Minute)
		b.Deaf(true)
		time.Sleep(40 * time.Minute)
		assert.Len(t, b.Records(), 1, "a replica that misses the renewals reads the record first")
		b.Deaf(false)
		_, half := second.FindHalf("a", "box")
		assert.True(t, half)
		close(b.Stuck)
		require.NoError(t, <-made)
		synctest.Wait()
		s, ok := second.FindNamed("a", "box")
		require.True(t, ok)
		assert.Equal(t, time.Hour, time.Until(s.Record().End))
		renewed := s.Record()
		time.Sleep(30 * time.Minute)
		assert.Equal(t, renewed, s.Record(), "it isn't renewed any more")
	})
}

// TestALookupThatIsLateRevivesNothing: the sandbox was removed after the lookup read it, and no
// more changes of it arrive.
func TestALookupThatIsLateRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &registrytest.Book{}
		r := replica(t, b)
		b.Deaf(true)
		rec := registry.Record{ID: "cccccccccccccccccccc", Owner: "a", Name: "box", State: registry.Running, Started: time.Now(), End: time.Now().Add(time.Hour)}
		b.Put(registry.Entry{Record: rec}, false)
		_, ok, err := r.SeekNamed(t.Context(), "a", "box")
		require.NoError(t, err)
		require.True(t, ok)
		b.Put(registry.Entry{Record: rec}, true)
		b.Away(nil) // everything is listed again
		b.Deaf(false)
		synctest.Wait()
		_, ok = r.FindNamed("a", "box")
		assert.True(t, ok, "the list may be older than the lookup")
		b.Away(nil)
		synctest.Wait()
		_, ok = r.FindNamed("a", "box")
		assert.False(t, ok)
		assert.Zero(t, r.Taken("a").Sandboxes)
	})
}

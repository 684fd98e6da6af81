package registry_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/tool"
)

func named(ctx context.Context, r *registry.Registry, b *registrytest.Book, owner, name string) (*registry.Sandbox, error) {
	return r.CreateNamed(ctx, registry.Record{Owner: owner, Name: name}, time.Hour, registry.Quota{}, b.Create)
}

// TestANameIsOneSandboxOverReplicas: if replicas use a name at the same time, the later one
// withdraws.
func TestANameIsOneSandboxOverReplicas(t *testing.T) {
	b := &registrytest.Book{}
	all := []*registry.Registry{replica(t, b), replica(t, b), replica(t, b)}
	for range 20 {
		var errs [9]error
		var makers sync.WaitGroup
		for i := range errs {
			makers.Go(func() { _, errs[i] = named(context.Background(), all[i%3], b, "a", "box") })
		}
		makers.Wait()
		refused := slices.DeleteFunc(errs[:], func(err error) bool { return err == nil })
		require.Len(t, refused, 8)
		for _, err := range refused {
			assert.Equal(t, tool.Exists, tool.KindOf(err))
		}
		s, ok, err := all[1].SeekNamed(t.Context(), "a", "box")
		require.NoError(t, err)
		require.True(t, ok)
		eventually(t, func() bool { return len(b.Records()) == 1 })
		_, err = named(t.Context(), all[0], b, "b", "box")
		require.NoError(t, err, "another owner's name is another name")
		_, err = all[1].Remove(t.Context(), s)
		require.NoError(t, err)
		other, ok := all[0].FindNamed("b", "box")
		require.True(t, ok)
		_, err = all[0].Remove(t.Context(), other)
		require.NoError(t, err)
		eventually(t, func() bool { return len(b.Records()) == 0 })
	}
}

// TestAReplicaKnowsTheNamesThatItHasNotHeardOf: a replica finds a sandbox that another made, and
// a name is free after another replica ended its sandbox.
func TestAReplicaKnowsTheNamesThatItHasNotHeardOf(t *testing.T) {
	b := &registrytest.Book{}
	first, second := replica(t, b), replica(t, b)
	s, err := named(t.Context(), first, b, "a", "box")
	require.NoError(t, err)
	eventually(t, func() bool { _, ok := second.FindNamed("a", "box"); return ok })
	b.Deaf(true)
	record := s.Record()
	record.ID, record.Name = "bbbbbbbbbbbbbbbbbbbb", "late"
	b.Put(registry.Entry{Record: record}, false)
	_, ok := second.FindNamed("a", "late")
	assert.False(t, ok)
	_, ok, err = second.SeekNamed(t.Context(), "b", "late")
	require.NoError(t, err)
	assert.False(t, ok, "it is another owner's")
	found, ok, err := second.SeekNamed(t.Context(), "a", "late")
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, record.ID, found.ID())

	b.Put(registry.Entry{Record: s.Record()}, true)
	made := make(chan error)
	go func() {
		_, err := named(context.Background(), second, b, "a", "box")
		made <- err
	}()
	eventually(t, func() bool { return len(b.Records()) == 2 })
	b.Deaf(false)
	require.NoError(t, <-made)
	_, err = named(t.Context(), first, b, "a", "box")
	assert.Equal(t, tool.Exists, tool.KindOf(err))

	record.ID, record.Name, record.State = "cccccccccccccccccccc", "half", "creating"
	b.Put(registry.Entry{Record: record}, false) // by a server that was killed
	eventually(t, func() bool { return len(second.All()) == 2 && second.Taken("a").Sandboxes == 3 })
	_, err = named(t.Context(), second, b, "a", "half")
	require.ErrorContains(t, err, "remove it with wisbox rm, or wait 15m")
	assert.Equal(t, tool.Exists, tool.KindOf(err))
	for _, other := range [][2]string{{"b", "half"}, {"a", "box"}, {"a", "nosuch"}} {
		_, ok = second.FindHalf(other[0], other[1])
		assert.False(t, ok, other)
	}
	half, ok := second.FindHalf("a", "half")
	require.True(t, ok)
	_, err = second.Remove(t.Context(), half)
	require.NoError(t, err)
	_, err = named(t.Context(), second, b, "a", "half")
	require.NoError(t, err)

	b.Away(errAway)
	_, _, err = second.SeekNamed(t.Context(), "a", "unknown")
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	_, ok, err = second.SeekNamed(t.Context(), "a", "box")
	require.NoError(t, err)
	assert.True(t, ok, "what is known needs no book")
	b.Away(nil)
}

// TestReplicasDoNotRename: a new name could be another replica's, and a sandbox that is gone must
// not block the registry.
func TestReplicasDoNotRename(t *testing.T) {
	b := &registrytest.Book{}
	r := replica(t, b)
	s, err := named(t.Context(), r, b, "a", "box")
	require.NoError(t, err)
	b.Deaf(true)
	_, _, err = b.End(t.Context(), s.ID(), nil)
	require.NoError(t, err)
	assert.Equal(t, tool.Unsupported, tool.KindOf(r.Rename(s, "other")))
	assert.Equal(t, "box", s.Record().Name)
}

// TestACreationThatWithdrawsHidesNoSandbox of its name.
func TestACreationThatWithdrawsHidesNoSandbox(t *testing.T) {
	b := &registrytest.Book{}
	r := replica(t, b)
	s, err := named(t.Context(), r, b, "a", "box")
	require.NoError(t, err)
	const more = 20
	for i := range more {
		id := fmt.Sprintf("%020d", i)
		b.Put(registry.Entry{Record: registry.Record{ID: id, Owner: "a", Name: "box", State: "creating", Started: time.Now()}}, false)
	}
	eventually(t, func() bool { return r.Taken("a").Sandboxes == more+1 })
	for range 20 {
		found, ok := r.FindNamed("a", "box")
		require.True(t, ok)
		assert.Same(t, s, found)
		_, ok = r.FindHalf("a", "box")
		assert.False(t, ok)
	}
}

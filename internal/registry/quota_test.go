package registry_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/tool"
)

func TestProcessorsAreCountedInThousandths(t *testing.T) {
	r := opened(t, t.TempDir(), &registrytest.Engine{})
	tenth, quota := registry.Record{CPUs: 0.1}, registry.Quota{CPUs: 0.3}
	for range 3 { // 0.1 + 0.1 + 0.1 > 0.3 in floating point
		_, err := r.Create(t.Context(), tenth, time.Hour, quota)
		require.NoError(t, err)
	}
	_, err := r.Create(t.Context(), tenth, time.Hour, quota)
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	assert.ErrorContains(t, err, "have 0.3 of 0.3 processors")
}

// TestRecordsOfAnOlderVersionCount: such records don't have the sizes of their sandboxes.
func TestRecordsOfAnOlderVersionCount(t *testing.T) {
	dir, e := t.TempDir(), &registrytest.Engine{}
	r := open(t, dir, e)
	old, some := create(t, r, registry.Record{Owner: "a"}), create(t, r, registry.Record{Owner: "b", CPUs: 1, Memory: 2, Disk: 3})
	require.NoError(t, r.Close())
	r, err := registry.Open(t.Context(), &registry.Options{Engine: e, Dir: dir, Size: registry.Quota{CPUs: 2, Memory: 4, Disk: 6}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	assert.Equal(t, registry.Quota{Sandboxes: 1, CPUs: 2, Memory: 4, Disk: 6}, r.Taken("a"))
	assert.Equal(t, registry.Quota{Sandboxes: 1, CPUs: 1, Memory: 2, Disk: 3}, r.Taken("b"))
	for _, s := range []*registry.Sandbox{old, some} {
		var raw map[string]any
		require.NoError(t, jsonfile.Read(filepath.Join(dir, "sandboxes", s.ID()+".json"), &raw))
		assert.Equal(t, s == some, raw["cpus"] != nil, "the file is as it was")
	}
}

// keep is the number and the disk usage of an owner's snapshots.
type keep struct{ n, disk int64 }

func (k *keep) quota(q registry.Quota) registry.Quota {
	q.Kept = func() (int, int64, error) { return int(k.n), k.disk, nil }
	return q
}

func TestRoomForASnapshotIsReserved(t *testing.T) {
	r := opened(t, t.TempDir(), &registrytest.Engine{})
	rec, kept := registry.Record{Owner: "a", Disk: 10}, &keep{}
	quota := kept.quota(registry.Quota{Snapshots: 2, Disk: 25})
	s := create(t, r, rec)
	more := func() error { _, err := r.Create(t.Context(), rec, time.Hour, quota); return err }

	first, err := r.Reserve(t.Context(), s, quota)
	require.NoError(t, err)
	assert.Equal(t, tool.Limit, tool.KindOf(more()), "10 taken and 10 reserved")
	second, err := r.Reserve(t.Context(), s, quota)
	require.NoError(t, err, "5 are left")
	_, err = r.Reserve(t.Context(), s, quota)
	assert.ErrorContains(t, err, "2 snapshots")
	kept.n, kept.disk = 1, 6
	assert.NoError(t, second.Fits(t.Context(), 5))
	assert.Equal(t, tool.Limit, tool.KindOf(second.Fits(t.Context(), 6)), "6 kept, 10 reserved, 10 taken")
	first.Release()
	assert.NoError(t, second.Fits(t.Context(), 6))
	second.Release()
	assert.Equal(t, tool.Limit, tool.KindOf(more()))
	kept.n, kept.disk = 1, 5
	require.NoError(t, more())
	_, err = r.Reserve(t.Context(), s, quota)
	assert.ErrorContains(t, err, "its limit of disk")
	_, err = r.Reserve(t.Context(), s, kept.quota(registry.Quota{Snapshots: 2}))
	require.NoError(t, err, "without a bound")

	quota.Kept = func() (int, int64, error) { return 0, 0, os.ErrPermission }
	assert.ErrorIs(t, more(), os.ErrPermission)
	_, err = r.Reserve(t.Context(), s, quota)
	assert.ErrorIs(t, err, os.ErrPermission)
}

// TestDiskIsBoundedWhoeverAsksAtOnce: the limits hold per owner and in total. The host's files
// beside a sandbox's workspace count.
func TestDiskIsBoundedWhoeverAsksAtOnce(t *testing.T) {
	blocked := make(chan struct{})
	e := &registrytest.Engine{Fail: func(op string) error {
		if op == "remove" {
			<-blocked
		}
		return nil
	}}
	others := &keep{disk: 5} // snapshots
	r, err := registry.Open(t.Context(), &registry.Options{Engine: e, Dir: t.TempDir(), Disk: 65, Kept: func() (int64, error) { return others.disk, nil }})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	once := sync.OnceFunc(func() { close(blocked) })
	defer once()

	quota := (&keep{}).quota(registry.Quota{Disk: 25})
	create := func(owner string) (*registry.Sandbox, error) {
		return r.Create(t.Context(), registry.Record{Owner: owner, Disk: 8, Beside: 2}, time.Hour, quota)
	}
	var made, own, total atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			switch _, err := create(fmt.Sprint("owner ", i%4)); tool.KindOf(err) {
			case tool.Limit:
				own.Add(1)
			case tool.NoSpace:
				total.Add(1)
			default:
				assert.NoError(t, err)
				made.Add(1)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 6, made.Load(), "of 65 are 5 kept, and each takes 10")
	assert.EqualValues(t, 34, own.Load()+total.Load())
	for i := range 4 {
		assert.LessOrEqual(t, r.Taken(fmt.Sprint("owner ", i)).Disk, int64(25))
	}

	_, err = create("another")
	assert.ErrorContains(t, err, "at most 65B for the sandboxes and snapshots of all keys")
	s := r.All()[0]
	_, err = r.Reserve(t.Context(), s, registry.Quota{})
	assert.Equal(t, tool.NoSpace, tool.KindOf(err))
	require.True(t, r.Kill(s))
	_, err = create("another")
	assert.Equal(t, tool.NoSpace, tool.KindOf(err), "its files are still there")
	once()
	eventually(t, func() bool { _, err = create("another"); return err == nil })

	others.disk -= 3
	s = r.All()[0]
	v, err := r.Reserve(t.Context(), s, registry.Quota{})
	require.NoError(t, err, "3 are left")
	_, err = r.Reserve(t.Context(), s, registry.Quota{})
	assert.Equal(t, tool.NoSpace, tool.KindOf(err))
	others.disk += 4
	assert.Equal(t, tool.NoSpace, tool.KindOf(v.Fits(t.Context(), 4)))
	others.disk--
	assert.NoError(t, v.Fits(t.Context(), 3))
	v.Release()
}

func TestRecordsAreReadWhereAServerRuns(t *testing.T) {
	dir := t.TempDir()
	none, err := registry.Records(dir)
	require.NoError(t, err)
	assert.Empty(t, none)
	r := opened(t, dir, &registrytest.Engine{})
	s := create(t, r, registry.Record{Owner: "a", Disk: 8, Beside: 2})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sandboxes", "x.json"), []byte("{"), 0o600))
	all, err := registry.Records(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, s.ID(), all[0].ID)
	var sum registry.Quota
	sum.Add(all[0])
	assert.Equal(t, r.Taken("a"), sum)
}

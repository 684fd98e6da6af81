package registry

import (
	"context"
	"io/fs"
	"math"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/tool"
)

// Quota bounds what an owner may have at a time; 0 means no limit.
type Quota struct {
	Sandboxes, Snapshots int
	CPUs                 float64
	Memory, Disk         int64 // bytes; Disk is for sandboxes, the host's files beside them, and snapshots
	// Kept returns the number of the owner's snapshots and their disk usage. It may be nil.
	Kept func() (snapshots int, disk int64, err error)
}

// Add adds a sandbox to q.
func (q *Quota) Add(rec Record) {
	q.Sandboxes++
	q.CPUs += rec.CPUs
	q.Memory += rec.Memory
	q.Disk += rec.allDisk()
}

// kept calls Kept if a limit requires it.
func (q Quota) kept() (snapshots int, disk int64, err error) {
	if q.Kept == nil || q.Disk == 0 && q.Snapshots == 0 {
		return 0, 0, nil
	}
	return q.Kept()
}

// check returns an error if one more sandbox doesn't fit.
func (q Quota) check(taken Quota, more Record) error {
	those, one, end := "sandboxes", "sandbox", "kill one"
	if more.Name != "" {
		those, one, end = "sessions and sandboxes", "session", "remove one (wisbox rm)"
	}
	switch {
	case q.Sandboxes > 0 && taken.Sandboxes >= q.Sandboxes:
		return tool.Errorf(tool.Limit, "this key has %d %s, which is its limit; %s first, or ask for a larger limit", taken.Sandboxes, those, end)
	case q.CPUs > 0 && millicores(taken.CPUs)+millicores(more.CPUs) > millicores(q.CPUs):
		return tool.Errorf(tool.Limit, "this key's %s have %g of %g processors, and one more needs %g; %s first, or ask for a larger limit",
			those, float64(millicores(taken.CPUs))/1000, q.CPUs, more.CPUs, end)
	case q.Memory > 0 && taken.Memory+more.Memory > q.Memory:
		return tool.Errorf(tool.Limit, "this key's %s have %s of %s of memory, and one more needs %s; %s first, or ask for a larger limit", those, size(taken.Memory), size(q.Memory), size(more.Memory), end)
	case q.Disk > 0 && taken.Disk+more.allDisk() > q.Disk:
		return tool.Errorf(tool.Limit, "this key's %s, with snapshots, have %s of %s of disk, and one more %s needs %s; %s or delete a snapshot first, or ask for a larger limit",
			those, size(taken.Disk), size(q.Disk), one, size(more.allDisk()), end)
	}
	return nil
}

func size(n int64) string { return units.BytesSize(float64(n)) }

// millicores rounds processors to thousandths, so that 3 * 0.1 equals 0.3.
func millicores(cpus float64) int64 { return int64(math.Round(cpus * 1000)) }

// account counts the snapshots of an owner that are being made, and their disk. The caller must
// hold change to claim, reserve or release something, so that a snapshot is always reserved,
// kept, or both.
type account struct {
	snapshots int
	disk      int64
}

// account returns an owner's account. No account changes until the caller calls done.
func (r *Registry) account(ctx context.Context, owner string) (a *account, done func(), err error) {
	if err := r.change.Lock(ctx); err != nil {
		return nil, nil, err
	}
	a, ok := r.accounts[owner]
	if !ok {
		a = &account{}
		r.accounts[owner] = a
	}
	return a, r.change.Unlock, nil
}

// left returns the disk below the server's limit that nothing may take yet. The caller must hold
// change.
func (r *Registry) left() (int64, error) {
	if r.opts.Disk == 0 {
		return math.MaxInt64, nil
	}
	kept, err := r.opts.Kept()
	if err != nil {
		return 0, err
	}
	left := r.opts.Disk - kept
	for _, a := range r.accounts {
		left -= a.disk
	}
	for _, s := range r.list() { // including sandboxes that are being removed: their files still exist
		if rec := s.Record(); !s.spare {
			left -= rec.allDisk()
		}
	}
	return left, nil
}

// errFull returns the error for a server without free disk.
func (r *Registry) errFull() error {
	return tool.Errorf(tool.NoSpace, "this server has at most %s for the sandboxes and snapshots of all keys, and too little of it is left; remove a sandbox, session or snapshot, or try again later", size(r.opts.Disk))
}

// Reservation reserves room for a snapshot that is being made, or for files.
type Reservation struct {
	r     *Registry
	owner string
	quota Quota

	// guarded by the account
	snapshots int
	disk      int64
	released  bool
}

// Reserve reserves room for a snapshot of the sandbox: the sandbox's maximum disk, or the disk
// that is left. The caller must call Release, even after a failure.
func (r *Registry) Reserve(ctx context.Context, s *Sandbox, quota Quota) (*Reservation, error) {
	return r.ReserveDisk(ctx, s.owner, s.Record().Disk, quota)
}

// ReserveDisk reserves room for a template that doesn't come from a sandbox: disk bytes, or the
// disk that is left. The caller must call Release, even after a failure.
func (r *Registry) ReserveDisk(ctx context.Context, owner string, disk int64, quota Quota) (*Reservation, error) {
	a, done, err := r.account(ctx, owner)
	if err != nil {
		return nil, err
	}
	defer done()
	n, kept, err := quota.kept()
	if err != nil {
		return nil, err
	}
	if quota.Snapshots > 0 && n+a.snapshots >= quota.Snapshots {
		return nil, tool.Errorf(tool.Limit, "this key has %d snapshots, including those being made, which is its limit; delete one first", n+a.snapshots)
	}
	v := &Reservation{r: r, owner: owner, quota: quota, snapshots: 1}
	left, err := v.left(kept, a, 1)
	if err != nil {
		return nil, err
	}
	v.disk = min(disk, left)
	a.snapshots += v.snapshots
	a.disk += v.disk
	return v, nil
}

var errNoDisk = tool.Errorf(tool.Limit, "this key's sandboxes, sessions and snapshots have reached its limit of disk; remove one first, or ask for a larger limit")

// ReserveFiles returns a reservation for files of an owner that are neither a sandbox nor a snapshot. It has no room
// until it grows.
func (r *Registry) ReserveFiles(owner string, quota Quota) *Reservation {
	return &Reservation{r: r, owner: owner, quota: quota}
}

// Grow reserves n more bytes of disk, or gives back as many as n is negative. If there is less left, it reserves none.
func (v *Reservation) Grow(ctx context.Context, n int64) error {
	a, done, err := v.r.account(ctx, v.owner)
	if err != nil {
		return err
	}
	defer done()
	if v.released {
		return fs.ErrClosed
	}
	if n > 0 {
		_, kept, err := v.quota.kept()
		if err != nil {
			return err
		}
		if _, err = v.left(kept, a, n); err != nil {
			return err
		}
	}
	a.disk += n
	v.disk += n
	return nil
}

// Fits reports whether the finished snapshot may be kept, with its actual disk usage.
func (v *Reservation) Fits(ctx context.Context, disk int64) error {
	if disk <= v.disk {
		return nil
	}
	a, done, err := v.r.account(ctx, v.owner)
	if err != nil {
		return err
	}
	defer done()
	_, kept, err := v.quota.kept()
	if err != nil {
		return err
	}
	a.disk -= v.disk // the snapshot itself is counted now
	defer func() { a.disk += v.disk }()
	_, err = v.left(kept, a, 0)
	return err
}

// left returns the owner's free disk, beyond that of its snapshots. It returns an error if that
// is less than least.
func (v *Reservation) left(kept int64, a *account, least int64) (int64, error) {
	left, err := v.r.left()
	if err == nil && left < least {
		err = v.r.errFull()
	}
	if err != nil || v.quota.Disk == 0 {
		return left, err
	}
	own := v.quota.Disk - kept - a.disk - v.r.Taken(v.owner).Disk
	if own < least {
		return 0, errNoDisk
	}
	return min(left, own), nil
}

// Release ends the reservation, after the snapshot was kept or removed. It may be called several times.
func (v *Reservation) Release() {
	a, done, err := v.r.account(context.Background(), v.owner)
	if err != nil {
		return // can't fail
	}
	defer done()
	a.snapshots -= v.snapshots
	a.disk -= v.disk
	v.snapshots, v.disk, v.released = 0, 0, true
}

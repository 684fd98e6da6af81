package registry

import (
	"context"
	"math"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/tool"
)

// Quota bounds what an owner may have at once; 0 is no bound.
type Quota struct {
	Sandboxes, Snapshots int
	CPUs                 float64
	Memory, Disk         int64 // bytes; Disk is of sandboxes, with what is kept beside them, and snapshots
	// Kept counts the owner's snapshots, and the disk that they take. nil where there are
	// none.
	Kept func() (snapshots int, disk int64, err error)
}

// Add counts a sandbox.
func (q *Quota) Add(rec Record) {
	q.Sandboxes++
	q.CPUs += rec.CPUs
	q.Memory += rec.Memory
	q.Disk += rec.allDisk()
}

// kept is Kept where there is a bound that needs it.
func (q Quota) kept() (snapshots int, disk int64, err error) {
	if q.Kept == nil || q.Disk == 0 && q.Snapshots == 0 {
		return 0, 0, nil
	}
	return q.Kept()
}

// check reports whether one more sandbox fits beside what is taken.
func (q Quota) check(taken Quota, more Record) error {
	switch {
	case q.Sandboxes > 0 && taken.Sandboxes >= q.Sandboxes:
		return tool.Errorf(tool.Limit, "this key has %d sandboxes, which is its limit; kill one first, or ask for a larger limit", taken.Sandboxes)
	case q.CPUs > 0 && millicores(taken.CPUs)+millicores(more.CPUs) > millicores(q.CPUs):
		return tool.Errorf(tool.Limit, "this key's sandboxes have %g of %g processors, and one more needs %g; kill one first, or ask for a larger limit",
			float64(millicores(taken.CPUs))/1000, q.CPUs, more.CPUs)
	case q.Memory > 0 && taken.Memory+more.Memory > q.Memory:
		return tool.Errorf(tool.Limit, "this key's sandboxes have %s of %s of memory, and one more needs %s; kill one first, or ask for a larger limit", size(taken.Memory), size(q.Memory), size(more.Memory))
	case q.Disk > 0 && taken.Disk+more.allDisk() > q.Disk:
		return tool.Errorf(tool.Limit, "this key's sandboxes and snapshots have %s of %s of disk, and one more sandbox needs %s; kill one or delete a snapshot first, or ask for a larger limit", size(taken.Disk), size(q.Disk), size(more.allDisk()))
	}
	return nil
}

func size(n int64) string { return units.BytesSize(float64(n)) }

// millicores are processors in whole thousandths: 0.1 three times is 0.3.
func millicores(cpus float64) int64 { return int64(math.Round(cpus * 1000)) }

// account is what an owner's snapshots take that are being made. Whoever claims, reserves
// or releases something holds change: a snapshot is always reserved, kept, or both.
type account struct {
	snapshots int
	disk      int64
}

// account is an owner's, for who calls done. No other is changed meanwhile.
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

// left is the disk that nothing of any owner takes yet or may take. It is for who holds
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
	for _, s := range r.list() { // those too that are being removed: their files are there
		if rec := s.Record(); !s.spare {
			left -= rec.allDisk()
		}
	}
	return left, nil
}

// errFull is a server's that has no room for anybody.
func (r *Registry) errFull() error {
	return tool.Errorf(tool.NoSpace, "this server keeps at most %s for the sandboxes and snapshots of all keys, and too little of it is left; kill a sandbox or delete a snapshot, or try again later", size(r.opts.Disk))
}

// Reservation is room for one snapshot that is being made.
type Reservation struct {
	r     *Registry
	owner string
	quota Quota
	disk  int64
}

// Reserve takes room for a snapshot of the sandbox: as much disk as the sandbox may take,
// or what is left. Release it in the end, whatever comes of it.
func (r *Registry) Reserve(ctx context.Context, s *Sandbox, quota Quota) (*Reservation, error) {
	return r.ReserveDisk(ctx, s.owner, s.Record().Disk, quota)
}

// ReserveDisk takes room for a template that is no sandbox's: so many bytes, or what is
// left. Release it in the end, whatever comes of it.
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
		return nil, tool.Errorf(tool.Limit, "this key has %d snapshots, or is making them, which is its limit; delete one first", n+a.snapshots)
	}
	v := &Reservation{r: r, owner: owner, quota: quota}
	left, err := v.left(kept, a, 1)
	if err != nil {
		return nil, err
	}
	v.disk = min(disk, left)
	a.snapshots++
	a.disk += v.disk
	return v, nil
}

var errNoDisk = tool.Errorf(tool.Limit, "this key's sandboxes and snapshots take all the disk that they may; delete a snapshot or kill a sandbox first, or ask for a larger limit")

// Fits reports whether the snapshot, which is there now, may stay with the disk that it
// takes.
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
	a.disk -= v.disk // the snapshot itself is counted
	defer func() { a.disk += v.disk }()
	_, err = v.left(kept, a, 0)
	return err
}

// left is the disk that the owner may take yet, beside what its snapshots take. Less than
// least is an error.
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

// Release gives back what was reserved: the snapshot is kept, or gone.
func (v *Reservation) Release() {
	a, done, err := v.r.account(context.Background(), v.owner)
	if err != nil {
		return // it never fails
	}
	defer done()
	a.snapshots--
	a.disk -= v.disk
}

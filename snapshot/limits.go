package snapshot

import (
	"context"
	"errors"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Limits bound the cost of snapshots, regardless of the workspace's content.
type Limits struct {
	Entries int64 // files, directories and others of a workspace (1,000,000)
	Bytes   int64 // read or written by one call, holes of files not counted (8 GiB)
	// Memory bounds the bytes that one call holds for names, texts of links and the state of
	// each entry (80 MiB). One snapshot may take half of it, since a comparison needs two.
	Memory int64
	// Store is the maximum of bytes that all snapshots take on the disk (8 GiB). At the limit,
	// the oldest automatic snapshots are deleted, but never others.
	Store int64
	// Objects is the maximum number of pieces of content and directories (400,000). Each takes
	// 100 bytes of memory while the store is open.
	Objects int
}

func (l Limits) withDefaults() Limits {
	if l.Entries == 0 {
		l.Entries = 1_000_000
	}
	if l.Bytes == 0 {
		l.Bytes = 8 << 30
	}
	if l.Memory == 0 {
		l.Memory = 80 << 20
	}
	if l.Store == 0 {
		l.Store = 8 << 30
	}
	if l.Objects == 0 {
		l.Objects = 400_000
	}
	return l
}

// budget returns the budget of one call. It has no limit on time, which is the caller's:
// the first snapshot of a large workspace takes as long as it needs. Nor has it a limit
// on steps, since entries, bytes and objects have limits of their own.
func (s *Store) budget(ctx context.Context) *budget.Budget {
	return s.budgetOf(ctx, s.opts.Limits.Memory)
}

func (s *Store) budgetOf(ctx context.Context, memory int64) *budget.Budget {
	return budget.New(ctx, budget.Limits{Out: budget.None, Memory: memory, Steps: budget.None, Time: budget.None})
}

// tooLarge names the tree that is too large, if err is the end of the memory.
func tooLarge(err error, what string) error {
	if !errors.Is(err, budget.ErrExceeded) {
		return err
	}
	return tool.Errorf(tool.Limit, "the %s has too many entries, or too long names and links, to be held in memory; remove some, then retry", what).Because(err)
}

// errNoRoom returns the error for a store that is full even without automatic snapshots.
func (s *Store) errNoRoom() error {
	return tool.Errorf(tool.NoSpace, "no room for the snapshot: the maximum of this session is %s and %d pieces; remove snapshots (wisbox snapshot rm) or files, then retry",
		units.BytesSize(float64(s.opts.Limits.Store)), s.opts.Limits.Objects).Because(errFull)
}

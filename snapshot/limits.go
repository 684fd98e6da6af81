package snapshot

import (
	"context"
	"errors"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Limits bound what snapshots may cost, whatever programs have written.
type Limits struct {
	Entries int64 // files, directories and others of a workspace (1,000,000)
	Bytes   int64 // read or written by one call, holes of files not counted (8 GiB)
	// Memory bounds, in bytes, what one call holds of names, links' texts and what is
	// known of each entry (80 MiB). A snapshot may take half of it: to compare it
	// takes two.
	Memory int64
	// Store is how many bytes all snapshots may take on the disk (8 GiB). At the limit
	// the oldest of those that wisbox made by itself go; others never do.
	Store int64
	// Objects is how many pieces of content and directories they may hold: each
	// takes 100 bytes of memory while the store is open (400,000).
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

// budget is that of one call. Its time is the caller's: the first snapshot of a
// large workspace takes what it takes. Entries, bytes and objects, which all steps
// are about, have limits of their own.
func (s *Store) budget(ctx context.Context) *budget.Budget {
	return s.budgetOf(ctx, s.opts.Limits.Memory)
}

func (s *Store) budgetOf(ctx context.Context, memory int64) *budget.Budget {
	return budget.New(ctx, budget.Limits{Out: budget.None, Memory: memory, Steps: budget.None, Time: budget.None})
}

// tooLarge says of what there is too much where the memory is used up.
func tooLarge(err error, what string) error {
	if !errors.Is(err, budget.ErrExceeded) {
		return err
	}
	return tool.Errorf(tool.Limit, "the %s has too many entries, or too long names and links, to be held in memory; remove some, then retry", what).Because(err)
}

// errNoRoom is the error where even without what goes by itself the
// store is full.
func (s *Store) errNoRoom() error {
	return tool.Errorf(tool.NoSpace, "the snapshots of this session may take %s and %d pieces, and this one doesn't fit; remove snapshots (wisbox snapshot rm) or files, then retry",
		units.BytesSize(float64(s.opts.Limits.Store)), s.opts.Limits.Objects).Because(errFull)
}

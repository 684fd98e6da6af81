package snapshot

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A restore assumes that no program wrote only if none has run since before its first scan, and if checking that is
// cheaper than another scan.
func TestARestoreLooksAgainUnlessNothingHasRun(t *testing.T) {
	const before = 7
	for name, c := range map[string]struct {
		files    int
		end      int64
		err      error
		mistaken bool // relies on a counter that is wrong here
	}{
		"nothing has run":            {files: largeTree, end: before, mistaken: true},
		"something has run":          {files: largeTree, end: before + 1},
		"another counter":            {files: largeTree, end: 0},
		"nobody knows any more":      {files: largeTree, end: before, err: errors.New("gone")},
		"a look costs next to none":  {files: 10, end: before},
		"the same, but more has run": {files: 10, end: before + 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			for i := range c.files {
				b.write(fmt.Sprintf("d%02d/%04d", i%50, i), "")
			}
			b.write("file", "old")
			id := b.create().ID
			b.write("file", "new")

			asked := 0
			b.store.opts.Activity = func(context.Context) (int64, error) {
				if asked++; asked == 2 { // the restore has done its work
					b.write("late", "a program's")
					return c.end, c.err
				}
				return before, nil
			}
			r := b.restore(id)
			require.EqualValues(t, 1, r.Changed)
			if c.mistaken {
				assert.FileExists(t, b.ws+"/late")
				assert.Empty(t, r.Conflicts)
				return
			}
			if c.files >= largeTree {
				assert.Equal(t, []string{"late"}, r.Conflicts)
			}
			assert.NoFileExists(t, b.ws+"/late")
		})
	}
}

// If the counter can't be read at the start there is nothing to compare.
func TestWithoutACounterARestoreLooksAgain(t *testing.T) {
	b := newBench(t)
	for i := range largeTree {
		b.write(fmt.Sprintf("d%02d/%04d", i%50, i), "")
	}
	id := b.create().ID
	b.write("file", "new")
	asked := 0
	b.store.opts.Activity = func(context.Context) (int64, error) {
		asked++
		return 0, errors.New("not counted here")
	}
	require.EqualValues(t, 1, b.restore(id).Removed)
	assert.Equal(t, 2, asked, "once a round")
}

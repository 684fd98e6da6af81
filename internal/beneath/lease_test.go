package beneath_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool/answer"
)

// TestALeaseHoldsNothingUp has a process that holds leases and never releases them, as the kernel
// lets any program do with its own files.
func TestALeaseHoldsNothingUp(t *testing.T) {
	for kind, locked := range map[string]int{"read": unix.F_RDLCK, "write": unix.F_WRLCK} {
		t.Run(kind, func(t *testing.T) {
			bothWays(t, func(w *world) {
				w.file(w.at("d/f"), "x")
				w.link("d/f", "l")
				hosttest.Lease(w, w.at("d/f"), locked)
				dir := int(w.tree.Dir().Fd())
				p, err := w.tree.Parent("d/f")
				require.NoError(w, err)
				defer p.Close()
				start := time.Now()
				for name, open := range map[string]func() error{
					"tree":     func() error { return shut(w.tree.Open("d/f")) },
					"by link":  func() error { return shut(w.tree.Open("l")) },
					"parent":   func() error { return shut(p.Open()) },
					"below":    func() error { return shutFD(beneath.OpenBelow(dir, "d/f", unix.O_RDONLY)) },
					"stepwise": func() error { return shutFD(beneath.OpenStepwise(dir, "d/f", unix.O_RDONLY)) },
					"at":       func() error { return shutFD(beneath.OpenAt(int(p.Dir().Fd()), "f", unix.O_RDONLY)) },
				} {
					err := open()
					if locked == unix.F_RDLCK {
						assert.NoError(w, err, "%s: a reader breaks no read lease", name)
						continue
					}
					require.Error(w, err, name)
					assert.True(w, beneath.Leased(err), "%s: %v", name, err)
					e := beneath.Error(err, "d/f")
					assert.Equal(w, answer.Busy, e.Kind, name)
					assert.Contains(w, e.Message, "lease")
				}
				err = shutFD(beneath.OpenBelow(dir, "d/f", unix.O_RDWR))
				assert.True(w, beneath.Leased(err), "a writer: %v", err)
				assert.NoError(w, shut(w.tree.Look("l")), "a look opens nothing")
				assert.Less(w, time.Since(start), 30*time.Second)
			})
		})
	}
}

// TestALeaseKeepsNothingFromChanging makes all changes by the tools, undo and rm to leased files:
// none opens them.
func TestALeaseKeepsNothingFromChanging(t *testing.T) {
	for kind, locked := range map[string]int{"read": unix.F_RDLCK, "write": unix.F_WRLCK} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			for _, name := range []string{"swapped", "removed", "linked", "below/a/f"} {
				w.file(w.at(name), "theirs")
				hosttest.Lease(t, w.at(name), locked)
			}
			start := time.Now()
			p, err := w.tree.Parent("swapped")
			require.NoError(t, err)
			defer p.Close()
			tmp, err := w.staging.Create(0o644)
			require.NoError(t, err)
			require.NoError(t, tmp.Swap(p, func(*unix.Stat_t) bool { return true }))
			require.NoError(t, tmp.Back(p, true))
			require.NoError(t, tmp.Swap(p, func(*unix.Stat_t) bool { return true }))
			tmp.Discard()
			from, err := w.tree.Parent("linked")
			require.NoError(t, err)
			defer from.Close()
			to := w.tree.Dir()
			second, err := w.tree.Parent("second")
			require.NoError(t, err)
			defer second.Close()
			require.NoError(t, second.Link(from))
			for name, entries := range map[string]int64{"removed": 1, "below": 3, "second": 1} {
				n, err := beneath.RemoveAll(to, name)
				require.NoError(t, err, name)
				assert.Equal(t, entries, n, name)
			}
			require.NoError(t, os.Chmod(w.at("linked"), 0o600))
			assert.Less(t, time.Since(start), 30*time.Second)
			entries, err := os.ReadDir(w.path)
			require.NoError(t, err)
			assert.Len(t, entries, 2, "swapped and linked")
		})
	}
}

func shut(h *beneath.Handle, err error) error {
	if err != nil {
		return err
	}
	return h.Close()
}

func shutFD(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

package overlay

import (
	"context"

	"github.com/docker/go-units"
	"github.com/wisbox/wisbox/tool/answer"
)

// maxReserve is the maximum number of bytes kept free for the host.
const maxReserve = 2 << 30

// Reserve checks whether the state root's file system has room for more: a twentieth of it, but at most 2 GiB, stays
// free for the host. Below that the error is no_space. It is called before programs start, not for every write.
func (s *Store) Reserve(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	free, total, err := s.space()
	if err != nil {
		return ioError(err, "look at the file system")
	}
	return checkReserve(free, total)
}

// space returns the space of the state root's file system, in bytes.
func (s *Store) space() (free, total uint64, err error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return 0, 0, err
	}
	defer dir.Close()
	st, err := statfs(dir)
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), err
}

// spare returns how many bytes may be written until only the host's reserve is free.
func (s *Store) spare() (int64, error) {
	free, total, err := s.space()
	return int64(free) - int64(reserve(total)), err
}

func reserve(total uint64) uint64 { return min(total/20, maxReserve) }

// Reserve is like [Store.Reserve] for the session's file system.
func (d *Dir) Reserve(ctx context.Context) error { return d.store.Reserve(ctx) }

func checkReserve(free, total uint64) error {
	need := reserve(total)
	if free >= need {
		return nil
	}
	return answer.Errorf(answer.NoSpace, "the file system of the state directory has %s free and keeps %s for the host; remove sessions or free some space",
		units.BytesSize(float64(free)), units.BytesSize(float64(need)))
}

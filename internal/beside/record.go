package beside

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/sandbox"
)

const recordFile = "beside.json"

// record identifies the claimed sandbox and its agent.
type record struct {
	ID      string    `json:"id"`
	Image   string    `json:"image"`
	Created time.Time `json:"created"`
	Agent   instance  `json:"agent"`
	Token   string    `json:"token"` // unique per Create
}

// instance identifies one start of the agent by its socket.
type instance struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Made  int64  `json:"made"` // nanoseconds
}

// instanceOf returns false if no agent listens: then its process has ended, with all others of
// its container.
func instanceOf(socket string) (instance, bool) {
	at, ok := socketOf(socket)
	if !ok {
		return at, false
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return at, !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
	}
	return at, conn.Close() == nil
}

// socketOf checks only the file.
func socketOf(path string) (instance, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return instance{}, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Type() != fs.ModeSocket {
		return instance{}, false
	}
	return instance{uint64(st.Dev), st.Ino, st.Ctim.Nano()}, true
}

// instance waits for a listening agent.
func (b *Backend) instance(ctx context.Context) (instance, error) {
	if err := b.quiet(ctx, b.link()); err != nil {
		return instance{}, err
	}
	at, ok := socketOf(b.opts.Socket)
	if !ok {
		return instance{}, unavailable(nil, "the agent ended as soon as it was found; try again")
	}
	return at, nil
}

// read returns the record, or nil if the sandbox isn't claimed.
func (b *Backend) read() (*record, error) {
	var rec record
	err := jsonfile.Read(b.recordPath(), &rec)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, unavailable(err, "the record of the sandbox can't be read")
	}
	return &rec, nil
}

// current returns the record of a running sandbox. It removes the record if the container has
// ended.
func (b *Backend) current(ctx context.Context) (*record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rec, err := b.read()
	if err != nil || rec == nil {
		return nil, err
	}
	if at, ok := instanceOf(b.opts.Socket); !ok || at != rec.Agent {
		return nil, b.forget(*rec)
	}
	return rec, nil
}

// claim writes the record if none exists. Of several concurrent claims, one succeeds.
func (b *Backend) claim(rec record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.recordPath() + "." + rec.Token
	if err := jsonfile.Write(mine, rec); err != nil {
		return unavailable(err, "the sandbox can't be recorded")
	}
	defer os.Remove(mine)
	for {
		err := os.Link(mine, b.recordPath())
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return unavailable(err, "the sandbox can't be recorded")
		}
		there, err := b.read()
		switch {
		case err != nil:
			return err
		case there == nil:
		case there.Agent != rec.Agent:
			if err := b.forgetLocked(*there); err != nil {
				return err
			}
		case there.ID == rec.ID:
			return fmt.Errorf("%w: %s; open it", sandbox.ErrExists, rec.ID)
		default:
			return fmt.Errorf("%w: there is one sandbox here, and %q has it", sandbox.ErrUnsupported, there.ID)
		}
	}
}

func (b *Backend) forget(rec record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.forgetLocked(rec)
}

// forgetLocked removes the record unless another sandbox has replaced it. The caller must hold
// mu.
func (b *Backend) forgetLocked(rec record) error {
	there, err := b.read()
	if err != nil || there == nil || there.Token != rec.Token {
		return err
	}
	if err := jsonfile.Remove(b.recordPath()); err != nil {
		return unavailable(err, "the record of the sandbox can't be removed")
	}
	return nil
}

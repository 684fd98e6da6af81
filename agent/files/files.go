// Package files is the host's side of the agent's files mode: a [sandbox.FileSystem].
//
// Each operation has its own process in the sandbox, so a program that attacks one, or a
// slow reader, doesn't affect another, and ending a context is a kill. After a successful
// operation the process stays a while for the next one, which then takes a tenth of the
// time. All processes end with the agent's connection.
//
// The package doesn't trust a process's answers: it checks the size of frames, the form
// of names, and the order and number of listings. An invalid answer ends the process and
// the operation, with [sandbox.ErrInterrupted], and nothing else.
package files

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/wisbox/wisbox/agent/filewire"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// Each process and its monitor have a dozen threads, which count to the sandbox's limit
// on processes.
const (
	maxShort   = 2                // operations at a time that don't wait for the caller
	maxStreams = 6                // that wait for the caller: reads, writes, listings
	maxWatches = 4                // which may never end
	maxIdle    = 2                // processes that wait for an operation
	idleTime   = 10 * time.Second // after which they end
)

var grace = patience.For(time.Second) // for the end of a process

// Starter starts the agent's program in another mode: an agent.Conn.
type Starter interface {
	StartAgent(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error)
}

// FS is the files of one sandbox.
type FS struct {
	agent                   Starter
	short, streams, watches room

	mu     sync.Mutex
	idle   []*process // the one that was used last is at the end
	trim   *time.Timer
	closed bool
}

// room holds an item for each operation.
type room chan struct{}

var _ sandbox.FileSystem = (*FS)(nil)

// New returns the files of an agent, which the caller closes after Close.
func New(agent Starter) *FS {
	return &FS{agent: agent, short: make(room, maxShort), streams: make(room, maxStreams), watches: make(room, maxWatches)}
}

// Close ends the idle processes; running operations continue.
func (f *FS) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.drop(0)
	return nil
}

// operation is one exchange with a process.
type operation struct {
	*process
	fs    *FS
	ctx   context.Context
	room  room
	stop  func() bool // of the kill at the context's end
	title string      // for errors: the operation and its path
	many  bool        // the operation is on several files: its error names one
}

// begin finds a process and asks it. The caller calls the operation's end.
func (f *FS) begin(ctx context.Context, room room, ask *filewire.Ask) (*operation, error) {
	o := &operation{fs: f, ctx: ctx, room: room, many: ask.How == filewire.Several, title: fmt.Sprintf("%s %s", ask.Do, printable(string(ask.Path)))}
	payload, err := json.Marshal(ask)
	if err == nil {
		err = check(ask, payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.title, err)
	}
	if err := room.enter(ctx, ask.Do != filewire.Watch); err != nil {
		return nil, fmt.Errorf("%s: %w", o.title, err)
	}
	if o.process, err = f.take(ctx); err != nil {
		<-room
		return nil, fmt.Errorf("%s: %w", o.title, err)
	}
	o.stop = context.AfterFunc(ctx, o.kill)
	if err := o.send(filewire.IsAsk, payload); err != nil {
		return nil, o.end(err)
	}
	return o, nil
}

func (r room) enter(ctx context.Context, waits bool) error {
	select {
	case r <- struct{}{}:
		return nil
	default:
	}
	if !waits {
		return fmt.Errorf("%w: %d are open; close one", sandbox.ErrFileLimit, cap(r))
	}
	select {
	case r <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends a frame at once.
func (o *operation) send(typ filewire.Type, payload []byte) error {
	err := o.Put(typ, payload)
	if err == nil {
		err = o.Flush()
	}
	if err != nil {
		return o.lost(err)
	}
	return nil
}

// end gives the process back, or ends it if it isn't at the end of its operation:
// err is a failure other than the operation's own, [failed].
func (o *operation) end(err error) error {
	defer func() { <-o.room }()
	own := asFailed(err)
	reusable := own != nil && o.Clean()
	if !o.stop() || !reusable {
		o.kill()
	} else {
		o.fs.put(o.process)
	}
	switch {
	case own != nil && own.err == nil:
		return nil
	case own != nil && o.many && own.name != "":
		return &fs.PathError{Op: filewire.Write, Path: "/" + own.name, Err: own.err}
	case own != nil:
		return fmt.Errorf("%s%s: %w", o.title, own.at(), own.err)
	case o.ctx.Err() != nil:
		return fmt.Errorf("%s: %w", o.title, o.ctx.Err())
	}
	return fmt.Errorf("%s: %w", o.title, err)
}

// take returns a process that waits, or a new one.
func (f *FS) take(ctx context.Context) (*process, error) {
	f.mu.Lock()
	for len(f.idle) > 0 {
		p := f.idle[len(f.idle)-1]
		f.idle = f.idle[:len(f.idle)-1]
		if !p.isGone() {
			f.mu.Unlock()
			return p, nil
		}
	}
	f.mu.Unlock()
	return start(ctx, f.agent)
}

// put keeps a process for a while.
func (f *FS) put(p *process) {
	f.mu.Lock()
	keep := !f.closed && len(f.idle) < maxIdle
	if keep {
		f.idle = append(f.idle, p)
		p.since = time.Now()
		if f.trim == nil {
			f.trim = time.AfterFunc(idleTime, f.expire)
		}
	}
	f.mu.Unlock()
	if !keep {
		p.kill()
	}
}

// expire ends processes that have been idle for idleTime.
func (f *FS) expire() {
	f.drop(idleTime)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trim = nil
	if len(f.idle) > 0 {
		f.trim = time.AfterFunc(idleTime, f.expire)
	}
}

func (f *FS) drop(age time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.idle) > 0 && time.Since(f.idle[0].since) >= age {
		f.idle[0].kill()
		f.idle = f.idle[1:]
	}
	if f.closed && f.trim != nil {
		f.trim.Stop()
	}
}

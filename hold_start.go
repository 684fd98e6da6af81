package wisbox

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/holdwire"
	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/tool"
)

// startWait bounds the start of a holder.
const startWait = 30 * time.Second

// holdPath names the socket (and with .lock the lock) of a session's holder.
func (m *Manager) holdPath(name string) (string, error) {
	dir := m.opts.Podman.RuntimeDir
	if dir == "" {
		dir = rundir.Default()
	}
	if err := rundir.Private(dir); err != nil {
		return "", tool.Errorf(tool.Unavailable, "wisbox's runtime directory can't be used; set XDG_RUNTIME_DIR to a directory of yours with mode 700").Because(err)
	}
	sum := sha256.Sum256([]byte(m.store.ID() + "/" + name))
	path := filepath.Join(dir, "hold-"+hex.EncodeToString(sum[:8]))
	if len(path) > rundir.MaxSocketPath {
		return "", tool.Errorf(tool.Unavailable, "the runtime directory's path is too long for a socket; set XDG_RUNTIME_DIR to a shorter one")
	}
	return path, nil
}

// listen makes this process the session's holder: one at a time.
func (m *Manager) listen(ctx context.Context, s *Session) (release func(), l net.Listener, err error) {
	path, err := m.holdPath(s.ID())
	if err != nil {
		return nil, nil, err
	}
	lock := flock.New(path + ".lock")
	if ok, err := awaitLock(ctx, lock, path); err != nil || !ok {
		return nil, nil, tool.Errorf(tool.Busy, "another process holds session %s", s.ID()).Because(errors.Join(err, lock.Close()))
	}
	_ = os.Remove(path) // a dead holder's: the lock says that nobody listens
	l, err = net.Listen("unix", path)
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return func() { _ = l.Close(); _ = os.Remove(path); _ = lock.Close() }, l, os.Chmod(path, 0o600)
}

// awaitLock takes a holder's lock unless another one listens. One that doesn't
// listen yet soon does; one that no longer does ends, or is dead and the kernel
// has not closed all its files yet.
func awaitLock(ctx context.Context, lock *flock.Flock, path string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		if ok, err := lock.TryLock(); ok || err != nil || listens(path) {
			return ok, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(lockEvery):
		}
	}
}

const lockEvery = 10 * time.Millisecond

// listens tells whether there is a process behind a socket, be it one that is too
// busy to take a connection.
func listens(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED)
}

// newRemote is the host of a kept session whose holder is another process,
// started with the first operation that needs it.
func (m *Manager) newRemote(dir *overlay.Dir, o SessionOptions) *remote {
	name := dir.ID()
	return &remote{
		dir: dir, opts: o,
		about:   func() *Inspection { return about(dir, o) },
		running: func(ctx context.Context) (*holdwire.Conn, error) { return m.dialHolder(ctx, name) },
		holder: func(ctx context.Context) (*holdwire.Conn, error) {
			if c, err := m.dialHolder(ctx, name); err == nil {
				return c, nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err := m.startHolder(ctx, name); err != nil {
				return nil, err
			}
			c, err := m.dialHolder(ctx, name)
			if err != nil { // it ended at once, or another one did that was quicker
				return nil, errNotTaken
			}
			return c, nil
		},
	}
}

// errNoHolder is why nobody answers where no holder is started.
var errNoHolder = errors.New("there is no holder")

// dialHolder connects to the holder that runs; without one the error is errNoHolder.
func (m *Manager) dialHolder(ctx context.Context, name string) (*holdwire.Conn, error) {
	path, err := m.holdPath(name)
	if err != nil {
		return nil, errors.Join(errNoHolder, err)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, errors.Join(errNoHolder, err)
	}
	return holdwire.New(c), nil
}

// startHolder starts a process that outlives this one and waits until it
// listens. Two that are started at once are no harm: one gets the lock.
func (m *Manager) startHolder(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	argv := m.opts.Holder
	cmd := exec.Command(argv[0], append(argv[1:], name)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+m.store.Path()) // ours may be relative
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return tool.Errorf(tool.Unavailable, "the process that holds the session can't be started").Because(err)
	}
	defer func() { go func() { _ = cmd.Wait() }() }() // not before its line is read: Wait closes the pipe of one that has ended
	stop := context.AfterFunc(ctx, func() { _ = ready.Close() })
	defer stop()
	return readReady(ready, name)
}

// readyLine is what a holder prints once it listens; another line is why not, in
// the shape of the command line's errors.
const readyLine = "ready"

func readReady(r io.Reader, name string) error {
	line, err := bufio.NewReader(io.LimitReader(r, maxReady)).ReadBytes('\n')
	if string(bytes.TrimSpace(line)) == readyLine {
		return nil
	}
	var said struct{ Error *tool.Error }
	if json.Unmarshal(line, &said) == nil && said.Error != nil {
		return said.Error
	}
	return tool.Errorf(tool.Unavailable, "the process that holds session %s did not start; call again, and if that doesn't help see `wisbox doctor`", name).
		Because(fmt.Errorf("it said %q (%v)", line, err))
}

const maxReady = 64 << 10 // bytes of that line

// HoldReady is what the holder's process passes to [Manager.Hold] so that its
// starter knows: it prints the line that [Options.Holder] expects on stdout.
func HoldReady(stdout *os.File) func() {
	return func() {
		fmt.Fprintln(stdout, readyLine)
		_ = stdout.Close()
	}
}

// stopHolder ends a session's holder, if there is one, and waits until it has
// let go of the session.
func (m *Manager) stopHolder(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	c, err := m.dialHolder(ctx, name)
	if err != nil {
		return
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if c.SendJSON(holdwire.Request, request{Op: opStop}) != nil {
		return
	}
	for err == nil { // the answer, then the connection's end with the holder's
		_, _, err = c.Receive()
	}
}

// stopWait bounds the end of a holder: it kills its programs and removes the
// container first.
const stopWait = 30 * time.Second

package hold

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

	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/tool"
)

// startWait bounds the start of a holder.
const startWait = 30 * time.Second

// Root is where the holders of one state root's sessions are found and started. Its
// methods may be called from many goroutines at once.
type Root struct {
	ID         string   // of the state root
	CacheDir   string   // its path
	RuntimeDir string   // of the sockets; default [rundir.Default]
	Command    []string // starts a holder: the session's name is added
}

// SocketPath names the socket (and with .lock the lock) of a session's holder.
func (r Root) SocketPath(name string) (string, error) {
	dir := r.RuntimeDir
	if dir == "" {
		dir = rundir.Default()
	}
	if err := rundir.Private(dir); err != nil {
		return "", tool.Errorf(tool.Unavailable, "wisbox's runtime directory can't be used; set XDG_RUNTIME_DIR to a directory of yours with mode 700").Because(err)
	}
	sum := sha256.Sum256([]byte(r.ID + "/" + name))
	path := filepath.Join(dir, "hold-"+hex.EncodeToString(sum[:8]))
	if len(path) > rundir.MaxSocketPath {
		return "", tool.Errorf(tool.Unavailable, "the runtime directory's path is too long for a socket; set XDG_RUNTIME_DIR to a shorter one")
	}
	return path, nil
}

// Client asks the session's holder and starts it with the first operation that
// needs it. loss names the mark that a holder of another version leaves when it is
// ended for its successor.
func (r Root) Client(name, mark string) *Client {
	c := r.Looker(name)
	c.Launch = func(ctx context.Context) error { return r.Launch(ctx, name) }
	c.Replace = func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, stopWait)
		defer cancel()
		c.Stop(ctx)
		Mark(mark)
	}
	return c
}

// Looker asks the session's holder where there is one, and starts none.
func (r Root) Looker(name string) *Client {
	return &Client{Dial: func(ctx context.Context) (*Conn, error) { return r.dial(ctx, name) }}
}

// Stop ends a session's holder, if there is one, and waits at most 30 s until it has
// let go of the session.
func (r Root) Stop(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	r.Looker(name).Stop(ctx)
}

// Listen makes this process the session's holder: one at a time, else it is busy.
// One that ends, or was killed, is waited for, at most 30 s.
func (r Root) Listen(ctx context.Context, name string) (release func(), l net.Listener, err error) {
	path, err := r.SocketPath(name)
	if err != nil {
		return nil, nil, err
	}
	lock, err := awaitLock(ctx, path)
	if err != nil || lock == nil {
		return nil, nil, tool.Errorf(tool.Busy, "another process holds session %s", name).Because(err)
	}
	sweepLocks(path)
	_ = os.Remove(path) // a dead holder's: the lock says that nobody listens
	l, err = net.Listen("unix", path)
	if err != nil {
		releaseLock(lock, path)
		return nil, nil, err
	}
	return func() { _ = l.Close(); releaseLock(lock, path) }, l, os.Chmod(path, 0o600)
}

// listens reports whether there is a process behind a socket, be it one that is too
// busy to take a connection.
func listens(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED)
}

// dial connects to the holder that runs; without one the error is ErrNoHolder.
func (r Root) dial(ctx context.Context, name string) (*Conn, error) {
	path, err := r.SocketPath(name)
	if err != nil {
		return nil, errors.Join(ErrNoHolder, err)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, errors.Join(ErrNoHolder, err)
	}
	return NewConn(c), nil
}

// Launch starts a process that outlives this one and waits until it
// listens. Two that are started at once are no harm: one gets the lock.
func (r Root) Launch(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	argv := r.Command
	cmd := exec.Command(argv[0], append(argv[1:], name)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+r.CacheDir) // ours may be relative
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
	return ReadReady(ready, name)
}

// readyLine is what a holder prints once it listens; another line is why not, in
// the shape of the command line's errors.
const readyLine = "ready"

// ReadReady waits for the first line of a holder that was started: that it is ready, or
// why not.
func ReadReady(r io.Reader, name string) error {
	line, err := bufio.NewReader(io.LimitReader(r, maxReady)).ReadBytes('\n')
	if string(bytes.TrimSpace(line)) == readyLine {
		return nil
	}
	var said struct{ Error *tool.Error }
	if json.Unmarshal(line, &said) == nil && said.Error != nil {
		return said.Error
	}
	return tool.Errorf(tool.Unavailable, "the process that holds session %s did not start; call again, and if that doesn't help see `wisbox doctor`", name).
		Because(fmt.Errorf("it said %q (%w)", line, err))
}

const maxReady = 64 << 10 // bytes of that line

// Ready returns what tells the starter of this process that it listens: it prints
// the line that Launch expects.
func Ready(stdout *os.File) func() {
	return func() {
		fmt.Fprintln(stdout, readyLine)
		_ = stdout.Close()
	}
}

// stopWait bounds the end of a holder: it kills its programs and removes the
// container first.
const stopWait = 30 * time.Second

package hold

import (
	"bufio"
	"bytes"
	"context"
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

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool/answer"
)

// startWait bounds the start of a holder.
var startWait = patience.For(30 * time.Second)

// Root finds and starts the holders of one state root's sessions. Its methods may be called from
// many goroutines at once.
type Root struct {
	CacheDir string   // the state root's absolute path
	Command  []string // starts a holder; the session's name is appended
}

// Client returns a client of the session's holder, which starts with the first operation that needs
// it. If the client ends a holder of another version, it leaves the file mark for the next holder.
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

// Looker returns a client of the session's holder that never starts one.
func (r Root) Looker(name string) *Client {
	return &Client{Dial: func(ctx context.Context) (*Conn, error) { return r.dial(ctx, name) }}
}

// Exclude ends a session's holder, if there is one, and keeps others from starting until release is
// called, once. It waits at most 30 s. If the holder is still there then, it has the session's own
// lock, and release does nothing.
func (r Root) Exclude(ctx context.Context, name string) (release func()) {
	ctx, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	var err error
	for err == nil && ctx.Err() == nil { // a holder may start after another one has ended
		if len(r.EndUnreachable(ctx, name, false)) == 0 { // what listens in its place may be anything
			r.Looker(name).Stop(ctx)
		}
		var lock *flock.Flock
		if lock, err = r.awaitLock(ctx, name); lock != nil {
			return func() { _ = lock.Close() }
		}
	}
	return func() {}
}

// Listener is the socket of a session's holder, for its clients.
type Listener struct {
	*net.UnixListener
	lock  *flock.Flock
	path  string
	inode uint64
}

// Listen makes this process the session's holder. If another process is, the error is busy. Listen
// waits at most 30 s for a holder that is ending or was killed, and ends holders that no client can reach.
func (r Root) Listen(ctx context.Context, name string) (_ *Listener, err error) {
	lock, err := r.awaitLock(ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errNoSession(name)
	case err != nil || lock == nil:
		return nil, answer.Errorf(answer.Busy, "another process holds session %s", name).Because(err)
	}
	l := &Listener{lock: lock, path: filepath.Join(filepath.Dir(lock.Path()), socketName)}
	defer func() {
		if err != nil {
			l.Release()
		}
	}()
	r.EndUnreachable(ctx, name, false) // of an older version, which listens elsewhere, and those of a removed session of this name
	_ = os.Remove(l.path)              // a dead holder's socket: the lock proves that nobody listens
	err = atSocket(filepath.Dir(l.path), func(path string) (err error) {
		l.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return nil, answer.Errorf(answer.NoSpace, "the file system of the state directory has no room for a session's socket; remove sessions or free some space").Because(err)
	case err != nil:
		return nil, answer.Errorf(answer.Unavailable, "the session's directory can't have a socket; choose a state directory ($WISBOX_CACHE) on a file system of this machine").Because(err)
	}
	l.SetUnlinkOnClose(false)
	if l.inode, err = inodeOf(l.path); err != nil {
		return nil, err
	}
	if err := os.Chmod(l.path, 0o600); err != nil {
		return nil, err
	}
	_ = os.WriteFile(lock.Path(), fmt.Appendf(nil, "%d %d\n", os.Getpid(), l.inode), 0o600) // a full disk keeps no holder from its work
	return l, nil
}

// Current reports whether clients of the session find this holder: not if the session was removed meanwhile.
func (l *Listener) Current() bool { return isCurrent(l.lock) }

// Release makes room for the next holder.
func (l *Listener) Release() {
	if l.UnixListener != nil {
		_ = l.Close()
	}
	if now, err := inodeOf(l.path); err == nil && now == l.inode { // otherwise it is another holder's, of a new session of this name
		_ = os.Remove(l.path)
	}
	_ = l.lock.Close()
}

// listens reports whether a process listens on the socket in a directory, even one that is too busy to
// accept a connection.
func listens(dir string) bool {
	err := atSocket(dir, func(path string) error {
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED)
}

// dial connects to the running holder; if there is none, the error is ErrNoHolder.
func (r Root) dial(ctx context.Context, name string) (conn *Conn, err error) {
	dir, err := r.dir(name)
	if err == nil {
		err = atSocket(dir, func(path string) error {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", path)
			if err == nil {
				conn = NewConn(c)
			}
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(ErrNoHolder, err)
	}
	return conn, nil
}

// Launch starts a holder that outlives this process and waits until it listens. If two are started
// at once, one gets the lock and the other ends.
func (r Root) Launch(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	argv := r.Command
	cmd := exec.Command(argv[0], append(argv[1:], name)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	cmd.Env = append(environment(), "WISBOX_CACHE="+r.CacheDir) // ours may be relative
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := relaxed(cmd.Start); err != nil {
		return answer.Errorf(answer.Unavailable, "the process that holds the session can't be started").Because(err)
	}
	defer func() { go func() { _ = cmd.Wait() }() }() // not before its line is read: Wait closes the pipe of an ended process
	stop := context.AfterFunc(ctx, func() { _ = ready.Close() })
	defer stop()
	return ReadReady(ready, name)
}

// passed names the variables that a holder gets from the process that starts it: what Podman and its clients, the
// system's libraries and Go's runtime read. A holder outlives that process, so it gets no key that was meant for it.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
	"DBUS_SESSION_BUS_ADDRESS", "STORAGE_DRIVER", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "CONTAINERS_CONF",
	"PODMAN_BASE_URL", "PODMAN_CONNECTION", "PODMAN_IDENTITY", "CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINER_SSHKEY", "CONTAINER_PROXY", "SSH_AUTH_SOCK",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG", "WISBOX_RUNSC", "WISBOX_ISOLATION", "WISBOX_POD", patience.Variable,
	"WISBOX_WASM_PYTHON", "RLM_WASM_PYTHON_PATH", "WISBOX_WASM_TIMEOUT", "RLM_WASM_FUEL", "RLM_WASM_MEMORY_MB",
}

func environment() (env []string) {
	for _, name := range passed {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// readyLine is the line that a holder prints once it listens; any other line is an error, in the
// form of the command line's errors.
const readyLine = "ready"

// ReadReady waits for the first line of a started holder: that it is ready, or its error.
func ReadReady(r io.Reader, name string) error {
	line, err := bufio.NewReader(io.LimitReader(r, maxReady)).ReadBytes('\n')
	if string(bytes.TrimSpace(line)) == readyLine {
		return nil
	}
	var said struct{ Error *answer.Error }
	if json.Unmarshal(line, &said) == nil && said.Error != nil {
		return said.Error
	}
	cause := fmt.Errorf("it said %q", line)
	if err != nil {
		cause = fmt.Errorf("%w: %w", cause, err)
	}
	return answer.Errorf(answer.Unavailable, "the process that holds session %s did not start; call again, and if the error stays see `wisbox doctor`", name).
		Because(cause)
}

const maxReady = 64 << 10 // bytes of that line

// Ready returns a function that prints the line that Launch expects, to report to this process's
// starter that it listens.
func Ready(stdout *os.File) func() {
	return func() {
		fmt.Fprintln(stdout, readyLine)
		_ = stdout.Close()
	}
}

// stopWait bounds the end of a holder, which first kills its programs and removes the container.
var stopWait = patience.For(30 * time.Second)

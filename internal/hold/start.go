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

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/tool"
)

// startWait bounds the start of a holder.
const startWait = 30 * time.Second

// Root finds and starts the holders of one state root's sessions. Its methods may be called from
// many goroutines at once.
type Root struct {
	ID         string   // of the state root
	CacheDir   string   // its path
	RuntimeDir string   // of the sockets; default [rundir.Default]
	Command    []string // starts a holder; the session's name is appended
}

// SocketPath returns the path of the socket (and with .lock, of the lock) of a session's holder.
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
	path, err := r.SocketPath(name)
	for err == nil && ctx.Err() == nil { // a holder may start after another one has ended
		r.Looker(name).Stop(ctx)
		var lock *flock.Flock
		if lock, err = awaitLock(ctx, path); lock != nil {
			return func() { releaseLock(lock, path) }
		}
	}
	return func() {}
}

// Listen makes this process the session's holder. If another process is, the error is busy. Listen
// waits at most 30 s for a holder that is ending or was killed.
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
	_ = os.Remove(path) // a dead holder's socket: the lock proves that nobody listens
	l, err = net.Listen("unix", path)
	if err != nil {
		releaseLock(lock, path)
		return nil, nil, err
	}
	return func() { _ = l.Close(); releaseLock(lock, path) }, l, os.Chmod(path, 0o600)
}

// listens reports whether a process listens on a socket, even one that is too busy to accept a
// connection.
func listens(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED)
}

// dial connects to the running holder; if there is none, the error is ErrNoHolder.
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
		return tool.Errorf(tool.Unavailable, "the process that holds the session can't be started").Because(err)
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
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG", "WISBOX_RUNSC", "WISBOX_ISOLATION", "WISBOX_POD",
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
	var said struct{ Error *tool.Error }
	if json.Unmarshal(line, &said) == nil && said.Error != nil {
		return said.Error
	}
	cause := fmt.Errorf("it said %q", line)
	if err != nil {
		cause = fmt.Errorf("%w: %w", cause, err)
	}
	return tool.Errorf(tool.Unavailable, "the process that holds session %s did not start; call again, and if the error stays see `wisbox doctor`", name).
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
const stopWait = 30 * time.Second

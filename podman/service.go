package podman

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
)

const (
	lockPoll      = 20 * time.Millisecond
	maxSocketPath = 100 // bytes; the kernel's limit is 108
)

// service is wisbox's private Podman service: one process for all wisbox
// processes of a user, found through a small file in dir. Nobody kills it.
type service struct {
	dir     string   // 0700
	state   string   // of the log, which outlives a login
	podman  string   // the program
	runtime string   // the caller's choice, "" to try them
	runsc   string   // path of gVisor's runtime, "" if there is none
	flags   []string // for podman, before its command
	idle    time.Duration
	ours    bool // it ends with this process
	devices *hostDevices
	log     interface {
		Info(msg string, args ...any)
	}
}

// pointer is the content of the file with the service's address. Each start takes a new socket name: an old service
// that is ending removes only its own.
type pointer struct {
	Socket string `json:"socket"`
	PID    int    `json:"pid"`
	Log    string `json:"log"` // its path
}

// startError reports a private service that did not start.
type startError struct {
	cause error
	tail  string // of its log
}

func (e *startError) Error() string {
	return fmt.Sprintf("start podman's service: %v: %s", e.cause, e.tail)
}
func (e *startError) Unwrap() error { return e.cause }

// hint describes the usual causes in a few words.
func (e *startError) hint() string {
	low := strings.ToLower(e.tail)
	for _, h := range []struct{ says, hint string }{
		{"newuidmap", "rootless podman needs the package uidmap"},
		{"subuid", "the user has no range in /etc/subuid and /etc/subgid: add one with usermod --add-subuids"},
		{"/proc/self/uid_map", "the kernel refused a user namespace"},
		{"oci runtime", "it finds no OCI runtime: install runc or crun"},
		{"no space left", "its storage is full"},
		{"mkdir /run/user/", "the user has no login, whose runtime directory podman's storage needs: log in by ssh or at a console, or run as root: loginctl enable-linger USER"},
		{"permission denied", "permission denied in its storage or runtime directory"},
	} {
		if strings.Contains(low, h.says) {
			return h.hint
		}
	}
	return "it did not start"
}

// startOwn connects to the private service, and starts it if nobody listens.
func (b *Backend) startOwn(ctx context.Context) (*engine, error) {
	s, err := b.newService()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	e, err := s.open(ctx)
	if isTransport(err) || errors.Is(err, errEnded) { // it was just ending
		e, err = s.open(ctx)
	}
	return e, err
}

func (s *service) open(ctx context.Context) (*engine, error) {
	p, err := s.ensure(ctx)
	if err != nil {
		return nil, err
	}
	e, err := dial(ctx, "wisbox's own podman service", bindings.Options{URI: "unix://" + p.Socket})
	if err != nil {
		return nil, err
	}
	e.log.open(p.Log)
	if err := s.describe(ctx, e, p.Socket); err != nil {
		e.close()
		return nil, err
	}
	e.own = true
	return e, nil
}

// describe fills in the service's description of its host. One process asks for all others while the service lives:
// Podman runs a dozen programs for the answer.
func (s *service) describe(ctx context.Context, e *engine, socket string) error {
	if s.described(e, socket) {
		return nil
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if s.described(e, socket) {
		return nil
	}
	if err := e.readInfo(ctx); err != nil {
		return err
	}
	if data, err := json.Marshal(e.info); err == nil {
		_, _ = writeFile(s.dir, infoFile(socket), data, 0o600) // without it the next one asks again
	}
	return nil
}

// infoFile returns the name of the file with the host's description from the service of that socket. It is removed with
// the socket. Increase its number if the fields of hostInfo change: other versions of wisbox keep other fields.
func infoFile(socket string) string { return filepath.Base(socket) + "-4.json" }

func (s *service) described(e *engine, socket string) bool {
	data, err := os.ReadFile(filepath.Join(s.dir, infoFile(socket)))
	return err == nil && json.Unmarshal(data, &e.info) == nil
}

// ensure returns a listening service.
func (s *service) ensure(ctx context.Context) (pointer, error) {
	if p, ok := s.listening(); ok {
		return p, nil
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return pointer{}, err
	}
	defer lock.Close()
	if p, ok := s.listening(); ok {
		return p, nil
	}
	return s.start(ctx)
}

// lock takes the lock for starting the service or asking for the host's description.
func (s *service) lock(ctx context.Context) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(s.dir, "lock"), flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return nil, fmt.Errorf("wait for another start of the service: %w", err)
	}
	return lock, nil
}

// listening reports whether the service of the pointer file accepts connections.
func (s *service) listening() (p pointer, ok bool) {
	data, err := os.ReadFile(filepath.Join(s.dir, "service.json"))
	if err != nil || json.Unmarshal(data, &p) != nil || filepath.Dir(p.Socket) != s.dir {
		return pointer{}, false
	}
	return p, accepts(p.Socket)
}

func accepts(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, patience.For(time.Second))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// start starts the service. The caller holds the lock.
func (s *service) start(ctx context.Context) (pointer, error) {
	s.removeSockets()
	socket := filepath.Join(s.dir, "s"+rand.Text()[:6])
	if len(socket) >= maxSocketPath {
		return pointer{}, fmt.Errorf("the socket's path would have %d bytes; the maximum is %d: choose a shorter runtime directory", len(socket), maxSocketPath-1)
	}
	env, err := s.configure(ctx)
	if err != nil {
		return pointer{}, err
	}
	cmd, exited, err := s.spawn(env, socket)
	if err != nil {
		return pointer{}, err
	}
	if err := s.await(ctx, socket, exited); err != nil {
		return pointer{}, &startError{cause: err, tail: s.logTail()}
	}
	p := pointer{Socket: socket, PID: cmd.Process.Pid, Log: s.logPath()}
	data, err := json.Marshal(p)
	if err != nil {
		return pointer{}, err
	}
	_, err = writeFile(s.dir, "service.json", data, 0o600)
	s.log.Info("podman service started", "pid", p.PID, "log", p.Log)
	return p, err
}

// spawn starts the service detached, and reaps it when it ends.
func (s *service) spawn(env []string, socket string) (*exec.Cmd, <-chan error, error) {
	if err := os.MkdirAll(s.state, 0o700); err != nil {
		return nil, nil, err
	}
	out, err := os.OpenFile(s.logPath(), s.logFlags(), 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	cmd := exec.Command(s.podman, slices.Concat(s.flags, []string{"system", "service", "--time", strconv.Itoa(int(s.idle.Seconds())), "unix://" + socket})...)
	cmd.Env, cmd.Dir = env, s.dir // conmon leaves an empty file "oom" where it was started
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.ours {
		endsWithThread(cmd.SysProcAttr)
	}
	exited, err := startWithOwnKeyring(cmd)
	return cmd, exited, err
}

// startWithOwnKeyring starts the service with an empty keyring. It keeps the keys of the user's login from the service
// and its containers, which get no keyring of their own (see writeConf). If the kernel has no keyrings, or an outer
// container's filter denies them, there are no keys to protect. The thread that starts the service waits for its end,
// since the kernel sends Pdeathsig when that thread ends.
func startWithOwnKeyring(cmd *exec.Cmd) (<-chan error, error) {
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends, and its keyring with it
		err := joinNewKeyring()
		if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			started <- fmt.Errorf("join a new session keyring: %w", err)
			return
		}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		exited <- cmd.Wait()
	}()
	return exited, <-started
}

// errEnded is the cause of a [startError] if Podman ended instead of listening. Podman 4.3 has done so once for a user's
// very first start, in CI, for an unknown reason, before anything was created; a second start shares nothing with the first.
var errEnded = errors.New("podman's service ended at once")

func (s *service) await(ctx context.Context, socket string, exited <-chan error) error {
	for {
		if accepts(socket) {
			return nil
		}
		select {
		case err := <-exited:
			return errors.Join(errEnded, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// removeSockets removes the sockets of earlier services and their infoFiles.
func (s *service) removeSockets() {
	old, _ := filepath.Glob(filepath.Join(s.dir, "s[A-Z0-9]*"))
	for _, path := range old {
		os.Remove(path)
	}
}

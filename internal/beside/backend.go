package beside

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

// Options of a Backend. Socket and StateDir are required.
type Options struct {
	// Socket is the path of the agent's socket, see [Become].
	Socket string
	// StateDir is a private directory for the record. It must not be in the workspace.
	StateDir string
	// Name is the sandbox's display name at its creator. Default "pod".
	Name string
	// Logger logs the causes of errors; nil means no log.
	Logger *slog.Logger
}

// Backend is a [sandbox.Backend] with the one sandbox beside this process.
type Backend struct {
	opts Options
	log  *slog.Logger

	scratch    []string // paths outside the workspace that programs can write
	secrets    string
	home       string // a second path of the workspace, with UserHome
	unfiltered bool   // for tests without a container

	mu sync.Mutex // held to claim or release the record
}

var _ sandbox.Backend = (*Backend)(nil)

// New returns a Backend. It doesn't connect yet.
func New(opts *Options) *Backend {
	b := &Backend{opts: *opts, log: opts.Logger, scratch: []string{"/tmp", "/dev/shm", sandbox.Home}, secrets: sandbox.SecretsDir, home: sandbox.UserHome}
	if b.opts.Name == "" {
		b.opts.Name = "pod"
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	return b
}

// Create claims the sandbox, see [sandbox.Backend]. If another ID has claimed it, the error
// wraps [sandbox.ErrUnsupported].
func (b *Backend) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	spec.Limits = spec.Limits.WithDefaults()
	pin, err := check(spec)
	if err != nil {
		return nil, err
	}
	if err := unable(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: the sandbox wasn't taken", err)
	}
	at, err := b.instance(ctx)
	if err != nil {
		return nil, err
	}
	rec := record{ID: spec.ID, Image: spec.Image, Created: time.Now().UTC().Truncate(time.Second), Agent: at, Token: rand.Text()}
	if err := b.claim(rec); err != nil {
		return nil, err
	}
	s := b.newSandbox(spec, pin, rec)
	if err := s.begin(ctx); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		return nil, errors.Join(err, s.Close(end))
	}
	return s, nil
}

// Open attaches to the sandbox that another process has claimed, see [sandbox.Backend].
func (b *Backend) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	spec.Limits = spec.Limits.WithDefaults()
	pin, err := check(spec)
	if err != nil {
		return nil, err
	}
	rec, err := b.current(ctx)
	if err != nil {
		return nil, err
	}
	if rec == nil || rec.ID != spec.ID {
		return nil, fmt.Errorf("%w: no sandbox %s", sandbox.ErrNotFound, spec.ID)
	}
	s := b.newSandbox(spec, pin, *rec)
	if _, err := s.agent.Conn(ctx); err != nil {
		return nil, errors.Join(err, s.Detach())
	}
	return s, nil
}

// List implements [sandbox.Backend].
func (b *Backend) List(ctx context.Context) ([]sandbox.Info, error) {
	rec, err := b.current(ctx)
	if err != nil || rec == nil {
		return []sandbox.Info{}, err
	}
	return []sandbox.Info{b.describe(*rec)}, nil
}

// Remove implements [sandbox.Backend]. The agent keeps running.
func (b *Backend) Remove(ctx context.Context, id string) error {
	if !validID(id) {
		return fmt.Errorf("%w: a sandbox ID must match %s", sandbox.ErrInvalid, idPattern)
	}
	return b.remove(ctx, func(rec record) bool { return rec.ID == id })
}

// remove ends the programs of the sandbox if meant returns true for its record.
func (b *Backend) remove(ctx context.Context, meant func(record) bool) error {
	rec, err := b.read()
	if err != nil || rec == nil || !meant(*rec) {
		return err
	}
	at, ok := instanceOf(b.opts.Socket)
	if !ok || at != rec.Agent { // its container has ended, with all programs
		return b.forget(*rec)
	}
	if err = b.empty(ctx); err != nil {
		if now, ok := instanceOf(b.opts.Socket); !ok || now != at { // it has ended meanwhile
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return b.forget(*rec)
}

// empty ends all programs of the sandbox and waits until none runs.
func (b *Backend) empty(ctx context.Context) error {
	link := resident.Socket{Path: b.opts.Socket, Now: true}
	a := b.handle(link, nil)
	defer a.Close()
	if err := b.clear(ctx, a); err != nil {
		return err
	}
	return b.quiet(ctx, link)
}

// quiet waits until no program runs: only then the agent greets new hosts.
func (b *Backend) quiet(ctx context.Context, link resident.Link) error {
	a := b.handle(link, nil)
	defer a.Close()
	_, err := a.Conn(ctx)
	return err
}

// link returns a link that waits for a starting container.
func (b *Backend) link() resident.Link { return resident.Socket{Path: b.opts.Socket} }

// handle returns a handle on the agent.
func (b *Backend) handle(link resident.Link, s *Sandbox) *resident.Agent {
	opts := &resident.Options{Link: link, Explain: explain, Logger: b.log}
	if s != nil {
		opts.Check, opts.Revive = s.isOurs, s.revive
	}
	return resident.New(opts)
}

// Leave ends the agent with all programs, which ends their container. It does nothing if no
// agent runs.
func (b *Backend) Leave(ctx context.Context) error {
	if _, ok := instanceOf(b.opts.Socket); !ok {
		return nil
	}
	a := b.handle(resident.Socket{Path: b.opts.Socket, Now: true}, nil)
	defer a.Close()
	return a.With(ctx, func(conn *agent.Conn) error { return conn.Leave(ctx) })
}

// Owner implements [sandbox.Backend]. The containers of a Pod share their user IDs.
func (b *Backend) Owner(context.Context) (sandbox.Owner, error) {
	return sandbox.Owner{UID: sandbox.UserID, GID: sandbox.GroupID}, nil
}

// Close implements [sandbox.Backend].
func (b *Backend) Close() error { return nil }

func (b *Backend) recordPath() string { return filepath.Join(b.opts.StateDir, recordFile) }

func (b *Backend) describe(rec record) sandbox.Info {
	return sandbox.Info{ID: rec.ID, Object: b.opts.Name, State: "running", Image: rec.Image, Created: rec.Created}
}

// explain returns the error for a failed connection.
func explain(ctx context.Context, cause error) error {
	var ours *failure
	switch {
	case errors.As(cause, &ours), errors.Is(cause, sandbox.ErrLost), errors.Is(cause, sandbox.ErrUnsupported):
		return cause
	case ctx.Err() != nil:
		return unavailable(cause, "the container of programs doesn't run, or its agent didn't answer in time; look at the Pod's events")
	}
	return unavailable(cause, "the agent in the container of programs can't be reached")
}

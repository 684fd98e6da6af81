package podman

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/sandbox"
	"go.podman.io/common/pkg/config"
)

const (
	// hungFor is how long nobody asks a service again that did not answer, so that a command of several requests, and what it
	// cleans up, doesn't wait for each.
	hungFor = 5 * time.Second

	howToInstall = "podman was not found: install it (Debian and Ubuntu: `apt-get install podman uidmap runc`, " +
		"Fedora: `dnf install podman`), or set PODMAN_BASE_URL to a running service"
)

var (
	// findTimeout bounds connecting to and pinging services that should be running.
	findTimeout = patience.For(4 * time.Second)
	// startTimeout bounds the start of the private service, including the choice of a runtime.
	startTimeout = patience.For(20 * time.Second)
)

// place is one way to a service. connect may start it.
type place struct {
	name    string // for messages
	connect func(context.Context) (*engine, error)
}

// engine returns the connection in use, or finds one. Many callers share one search.
func (b *Backend) engine(ctx context.Context) (*engine, error) {
	if e := b.eng.Load(); e != nil {
		return e, nil
	}
	if err := b.finding.Lock(ctx); err != nil {
		return nil, fail(err, nil, "could not connect to podman in time")
	}
	defer b.finding.Unlock()
	if e := b.eng.Load(); e != nil {
		return e, nil
	}
	if time.Since(b.hungAt) < hungFor {
		return nil, b.hung
	}
	defer waits(ctx, waitsAfter, "Podman's service, which starts")()
	e, err := b.find(ctx)
	if errors.Is(err, errHung) {
		b.hung, b.hungAt = err, time.Now()
	}
	if err == nil {
		b.eng.Store(e)
		b.log.Info("podman found", "from", e.from, "url", e.conn.URI.Redacted(), "version", e.info.Version.Version,
			"rootless", e.info.Host.Security.Rootless, "runtime", e.info.runtimeName())
	}
	return e, err
}

// forget drops the connection, so that the next call finds the service again.
func (b *Backend) forget(e *engine) {
	if b.eng.CompareAndSwap(e, nil) {
		e.close()
	}
}

func (b *Backend) find(ctx context.Context) (*engine, error) {
	places := b.places()
	if len(places) == 0 {
		return nil, fail(sandbox.ErrUnavailable, nil, howToInstall)
	}
	var tried []string
	var causes []error
	hung := true
	for _, p := range places {
		e, err := p.connect(ctx)
		if err == nil {
			err = b.suits(e)
		}
		if err == nil {
			return e, nil
		}
		if ctx.Err() != nil {
			return nil, fail(ctx.Err(), err, "could not connect to podman in time")
		}
		b.log.Warn("podman place failed", "place", p.name, "error", err)
		hung = hung && isHung(err)
		tried = append(tried, p.name+" ("+reason(err)+")")
		causes = append(causes, fmt.Errorf("%s: %w", p.name, err))
	}
	if b.isGVisor() {
		return nil, fail(sandbox.ErrUnavailable, errors.Join(causes...), howToGVisor, strings.Join(tried, ", "))
	}
	if hung {
		return nil, fail(sandbox.ErrUnavailable, errors.Join(append(causes, errHung)...), "podman's service does not answer; "+howToUnhang)
	}
	return nil, fail(sandbox.ErrUnavailable, errors.Join(causes...),
		"no podman service could be reached; tried %s; start one with `systemctl --user start podman.socket`, "+
			"point PODMAN_BASE_URL at a running one, or see `wisbox doctor`", strings.Join(tried, ", "))
}

func isHung(err error) bool {
	var start *startError
	return !errors.As(err, &start) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errHung))
}

// reason describes the cause without a host path.
func reason(err error) string {
	var start *startError
	switch {
	case errors.Is(err, errNoRunsc):
		return errNoRunsc.Error()
	case errors.Is(err, errOtherRuntime):
		return errOtherRuntime.Error()
	case errors.As(err, &start):
		return start.hint()
	case isHung(err):
		return "does not answer"
	case errors.Is(err, os.ErrNotExist):
		return "not there"
	case isRefused(err):
		return "nobody listens"
	case errors.Is(err, os.ErrPermission):
		return "permission denied"
	}
	return "no podman answers there"
}

// places returns the places to look for a service, in order. An explicit choice is the only one.
func (b *Backend) places() []place {
	o := b.opts
	switch {
	case o.BaseURL != "":
		return []place{b.remote("the service that was configured by URL", o.BaseURL, o.Identity)}
	case o.Connection != "":
		return []place{b.named(o.Connection)}
	}
	var out []place
	if _, err := exec.LookPath(o.Podman); err == nil {
		out = append(out, place{"wisbox's own podman service", b.startOwn})
	}
	if dir := rundir.Login(); dir != "" {
		out = append(out, b.socket("the user's podman socket", filepath.Join(dir, "podman/podman.sock"))...)
	}
	return append(out, b.socket("the system's podman socket", o.systemSocket)...)
}

func (b *Backend) socket(name, path string) []place {
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return []place{b.remote(name, "unix://"+path, "")}
}

func (b *Backend) remote(name, uri, identity string) place {
	return place{name, func(ctx context.Context) (*engine, error) {
		return open(ctx, name, bindings.Options{URI: uri, Identity: identity})
	}}
}

// named returns a connection of `podman system connection`.
func (b *Backend) named(connection string) place {
	name := "the podman connection " + connection
	return place{name, func(ctx context.Context) (*engine, error) {
		conf, err := config.Default()
		if err != nil {
			return nil, err
		}
		c, err := conf.GetConnection(connection, false)
		if err != nil {
			return nil, err
		}
		return open(ctx, name, bindings.Options{
			URI: c.URI, Identity: c.Identity, Machine: c.IsMachine,
			TLSCAFile: c.TLSCA, TLSCertFile: c.TLSCert, TLSKeyFile: c.TLSKey,
		})
	}}
}

// open connects to a service and requests the description of its host, which may take longer on a busy
// machine as long as the service answers pings.
func open(ctx context.Context, name string, o bindings.Options) (*engine, error) {
	e, err := dial(ctx, name, o)
	if err != nil {
		return nil, err
	}
	if err := e.readInfo(ctx); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// dial connects to an unknown service.
func dial(ctx context.Context, name string, o bindings.Options) (*engine, error) {
	if err := checkURI(o.URI); err != nil {
		return nil, err
	}
	defer waits(ctx, silentFor, "Podman, whose service does not answer")() // it pings
	conn, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return newEngine(conn, name), nil
}

// connect creates the bindings' client in a separate goroutine, since ssh dials without a context, and a
// refused connection is tried three times with pauses.
func connect(ctx context.Context, o bindings.Options) (*bindings.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	type answer struct {
		conn *bindings.Connection
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		connCtx, err := bindings.NewConnectionWithOptions(ctx, o)
		if err != nil {
			got <- answer{nil, err}
			return
		}
		conn, err := bindings.GetClient(connCtx)
		got <- answer{conn, err}
	}()
	select {
	case a := <-got:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func checkURI(uri string) error {
	u, err := url.Parse(uri)
	if err != nil {
		return err
	}
	if u.Scheme != "unix" {
		return nil
	}
	return trustedSocket(filepath.Join("/", u.Host, u.Path))
}

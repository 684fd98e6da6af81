package podman

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/internal/lock"
	_ "github.com/wisbox/wisbox/podman/internal/see_readme_for_build_tags" // a build without them ends here
	"github.com/wisbox/wisbox/sandbox"
)

// Backend creates and finds sandboxes in one Podman service. Its methods may be called from many
// goroutines at once.
type Backend struct {
	opts    Options
	log     *slog.Logger
	eng     atomic.Pointer[engine] // the connection in use, nil until needed
	finding *lock.Mutex            // held by the one who looks for it
	hung    error                  // of the last search, if the service did not answer; guarded by finding, as is hungAt
	hungAt  time.Time
	agent   agentFile
	creates chan struct{} // a place in it is a create under way
	devices *hostDevices
	shifted atomic.Pointer[string] // the storage of which a mount with shifted ids was made; nil before

	isolation sandbox.Isolation // of the sandboxes that it makes
	gvisor    func() *Backend   // the one for IsolationGVisor, made once
}

var _ sandbox.Backend = (*Backend)(nil)

var validID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`) })

// New returns a Backend. It uses neither network nor disk: the first call that needs Podman finds or
// starts it, which may take seconds once.
func New(_ context.Context, opts *Options) (*Backend, error) {
	o := opts.withDefaults()
	if !validID().MatchString(o.Root) {
		return nil, fail(sandbox.ErrInvalid, nil, "the state root's ID must match %s", validID())
	}
	b := newBackend(o, sandbox.IsolationDefault)
	b.gvisor = sync.OnceValue(func() *Backend { return newBackend(o, sandbox.IsolationGVisor) })
	return b, nil
}

func newBackend(o Options, isolation sandbox.Isolation) *Backend {
	return &Backend{
		opts: o, log: o.Logger, isolation: isolation,
		finding: lock.New(), devices: newHostDevices(o.Logger),
		creates: make(chan struct{}, o.MaxCreates),
	}
}

// Close closes the connections. Sandboxes and the private services stay.
func (b *Backend) Close() error {
	if e := b.eng.Load(); e != nil {
		b.forget(e)
	}
	if b.gvisor != nil {
		return b.gvisor().Close()
	}
	return nil
}

// do sends a request to the service in use. If that is gone, it finds or starts one again.
func (b *Backend) do(ctx context.Context, r request) error {
	e, err := b.engine(ctx)
	if err != nil {
		return err
	}
	err = e.do(ctx, r)
	if isRefused(err) {
		b.forget(e)
		if e, err = b.engine(ctx); err != nil {
			return err
		}
		err = e.do(ctx, r)
	}
	if err != nil {
		b.log.Debug("podman request failed", "method", r.method, "path", r.path, "error", err)
	}
	return err
}

// Labels on every container; they never change.
const (
	labelRoot    = "wisbox.root"    // Options.Root
	labelSandbox = "wisbox.sandbox" // Spec.ID
	labelBoot    = "wisbox.boot"    // the kernel's boot ID when it was made
	labelOwner   = "wisbox.owner"   // host uid of who made it
	labelAttempt = "wisbox.attempt" // random, of one Create
	labelMaker   = "wisbox.maker"   // process ID and start time of who made it
	labelAgent   = "wisbox.agent"   // agentVersion of who made it
)

// agentVersion is the protocol version of the containers' agents. A container with another version, or
// with none, is created again over the same files.
var agentVersion = strconv.Itoa(wire.Version)

func (b *Backend) name(id string) string { return "wisbox-" + b.opts.Root + "-" + id }

func containerPath(name, rest string) string {
	return "/containers/" + url.PathEscape(name) + rest
}

// List returns the sandboxes of this state root, running or not, without Limits.
func (b *Backend) List(ctx context.Context) ([]sandbox.Info, error) {
	var found []listed
	query := url.Values{"all": {"true"}, "filters": {`{"label":["` + labelRoot + "=" + b.opts.Root + `"]}`}}
	err := b.do(ctx, request{method: http.MethodGet, path: "/containers/json", query: query, out: &found, doing: "list containers"})
	if err != nil {
		return nil, explain(ctx, "list the containers", err)
	}
	out := make([]sandbox.Info, 0, len(found))
	for _, c := range found {
		if c.Labels[labelCompanion] == "" { // those go with their sandbox
			out = append(out, c.info())
		}
	}
	return out, nil
}

// Remove removes a sandbox by ID and returns when nothing of it is left. An unknown ID is not an error.
func (b *Backend) Remove(ctx context.Context, id string) error {
	if !validID().MatchString(id) {
		return fail(sandbox.ErrInvalid, nil, "a sandbox ID must match %s", validID())
	}
	return b.remove(ctx, b.name(id))
}

// owns reports whether a container is ours, and doesn't just have one of our names.
func (b *Backend) owns(labels map[string]string, id string) bool {
	return labels[labelRoot] == b.opts.Root && labels[labelSandbox] == id
}

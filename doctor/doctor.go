// Package doctor checks whether this machine can hold what wisbox promises, by
// trying: it opens sessions with small limits and lets programs go over them,
// looks for a way to the network, for rights they shouldn't have, whether both
// sides can change each other's files, and whether one host can be allowed. It reads what it can't
// try, such as known holes of the runtime's version.
//
// It changes nothing on the machine unless it is asked to repair (Options.Fix):
// each line that isn't well says in a sentence what to do.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// Status is how one thing stands.
type Status string

// The statuses, from well to ill.
const (
	OK          Status = "ok"
	NotEnforced Status = "not enforced" // wisbox works, without this promise
	Broken      Status = "broken"       // programs can't run, or aren't isolated
	Skipped     Status = "skipped"      // it can't be tried before something else works
)

// Line is one thing that was looked at.
type Line struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`        // what was seen
	Fix    string `json:"fix,omitempty"` // what to do, one sentence; "" where it is ok
}

// Report is all lines in their order.
type Report struct {
	Lines []Line        `json:"lines"`
	Took  time.Duration `json:"took_ns"`
}

// Broken reports whether any line is.
func (r *Report) Broken() bool {
	for _, l := range r.Lines {
		if l.Status == Broken {
			return true
		}
	}
	return false
}

// Whole reports whether every promise is held: no line is broken or not enforced.
func (r *Report) Whole() bool {
	return !r.Broken() && !slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Status == NotEnforced })
}

// Service is what is known of the Podman service.
type Service struct {
	From, Version, Runtime, Kernel string
	RuntimePackage                 string // as runc_1.1.5+ds1-1_amd64; "" or Unknown where it isn't known
	Rootless                       bool
	CgroupVersion, CgroupManager   string
	StorageDriver                  string
}

// Host is the product on this machine.
type Host interface {
	// Service finds Podman, or starts it.
	Service(ctx context.Context) (Service, error)
	// Image looks for the image that programs run in and gives its name, also
	// with an error.
	Image(ctx context.Context) (name string, err error)
	// OldImages counts those of other versions, which nothing needs.
	OldImages(ctx context.Context) (int, error)
	// BuildImage makes that image.
	BuildImage(ctx context.Context) error
	// Leftovers counts what processes that were killed have left.
	Leftovers(ctx context.Context) (int, error)
	// Prune removes it.
	Prune(ctx context.Context) error
	// Open opens an ephemeral session, whose programs may connect to what rules allow.
	Open(ctx context.Context, limits sandbox.Limits, allow ...string) (Session, error)
}

// Session is one that things are tried in.
type Session interface {
	Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error)
	// Limits reports which the host says it holds, and by what.
	Limits(ctx context.Context) ([]sandbox.LimitState, error)
	// Write, Read and Remove change files as the tools do.
	Write(ctx context.Context, path, content string) error
	Read(ctx context.Context, path string) (string, error)
	Remove(ctx context.Context, path string) error
	// Pause has its programs stand still until Resume.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Close ends the session; nothing of it is left.
	Close(ctx context.Context) error
}

// Options of an examination; nil works.
type Options struct {
	// Line is called for each line as soon as it is known.
	Line func(Line)
	// Fix repairs what wisbox can: it builds the image, removes what killed
	// processes left, and as root gives the user who called by sudo the ids and
	// switches that rootless Podman needs.
	Fix bool
	// Root is the file system to look at the machine in, for tests; default "/".
	Root string
}

// Examine looks at everything, in a few seconds. What is wrong is in the report;
// it has no error of its own. ctx's end leaves the lines that are known.
func Examine(ctx context.Context, host Host, opts *Options) *Report {
	e := &examination{host: host}
	if opts != nil {
		e.opts = *opts
	}
	if e.opts.Root == "" {
		e.opts.Root = "/"
	}
	began := time.Now()
	e.run(ctx)
	e.report.Took = time.Since(began)
	return &e.report
}

type examination struct {
	host    Host
	opts    Options
	service Service

	mu     sync.Mutex
	report Report
}

func (e *examination) say(lines ...Line) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range lines {
		e.report.Lines = append(e.report.Lines, l)
		if e.opts.Line != nil {
			e.opts.Line(l)
		}
	}
}

func (e *examination) run(ctx context.Context) {
	service, err := e.host.Service(ctx)
	if err != nil {
		e.say(Line{"podman", Broken, text(err), podmanFix})
		e.say(e.rootless(ctx)...)
		e.say(Line{"sessions", Skipped, "nothing can be tried without Podman", ""})
		return
	}
	e.service = service
	e.say(e.podman())
	e.say(e.rootless(ctx)...)
	e.say(e.storage(), e.cgroup(), e.runtime(), e.kernel())
	e.say(e.check(ctx, func() Line { return e.leftovers(ctx) }))
	image := e.check(ctx, func() Line { return e.image(ctx) })
	e.say(image)
	if image.Status == Broken {
		e.say(Line{"sessions", Skipped, "nothing can be tried without the image", ""})
		return
	}
	e.try(ctx)
}

func (e *examination) image(ctx context.Context) Line {
	const fix = "make it, once, with: wisbox image build"
	name, err := e.host.Image(ctx)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return Line{"image", Broken, name + " is not there", fix}
	case err != nil:
		return Line{"image", Broken, name + " can't be looked at: " + text(err), fix}
	}
	if n, err := e.host.OldImages(ctx); err == nil && n > 0 {
		name += fmt.Sprintf("; %d of other versions are there too: wisbox image prune removes what nobody uses", n)
	}
	return Line{"image", OK, name, ""}
}

func (e *examination) leftovers(ctx context.Context) Line {
	const fix = "remove it with: wisbox prune"
	switch n, err := e.host.Leftovers(ctx); {
	case err != nil:
		return Line{"leftovers", NotEnforced, text(err), fix}
	case n > 0:
		return Line{"leftovers", NotEnforced, fmt.Sprintf("killed processes have left %d sessions, containers or mounts", n), fix}
	}
	return Line{"leftovers", OK, "nothing", ""}
}

const podmanFix = "install it, on Debian and Ubuntu with `apt-get install podman uidmap runc`, on Fedora with `dnf install podman`, or set PODMAN_BASE_URL to a service that runs"

// Package doctor checks by experiment whether this machine can enforce wisbox's isolation and
// limits: it opens sessions with small limits and lets programs exceed them, looks for ways to the
// network and for rights that programs shouldn't have, and checks that both sides can change each
// other's files and that a single host can be allowed. It looks up what it can't try, such as known
// holes of the runtime's version.
//
// It changes nothing on the machine unless Options.Fix is set. Each line that isn't ok describes in
// a sentence how to fix it.
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

// Status is the result of a check.
type Status string

// The statuses, from good to bad.
const (
	OK          Status = "ok"
	NotEnforced Status = "not enforced" // wisbox works, without this guarantee
	Broken      Status = "broken"       // programs can't run, or aren't isolated
	Skipped     Status = "skipped"      // can't be checked before something else works
)

// Line is the result of one check.
type Line struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`        // the observation
	Fix    string `json:"fix,omitempty"` // how to fix it, one sentence; "" if it is ok
}

// Report has all lines in order.
type Report struct {
	Lines []Line        `json:"lines"`
	Took  time.Duration `json:"took_ns"`
}

// Broken reports whether any line is broken.
func (r *Report) Broken() bool {
	for _, l := range r.Lines {
		if l.Status == Broken {
			return true
		}
	}
	return false
}

// Whole reports whether everything is enforced: no line is broken or not enforced.
func (r *Report) Whole() bool {
	return !r.Broken() && !slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Status == NotEnforced })
}

// Service describes the Podman service.
type Service struct {
	From, Version, Runtime, Kernel string
	RuntimePackage                 string   // e.g. runc_1.1.5+ds1-1_amd64; "" or Unknown if it isn't known
	RuntimeFeatures                []string // e.g. +SECCOMP, of crun; nil if they aren't known
	Rootless                       bool
	ChangesDevices                 bool // the runtime may change device nodes of the host
	SELinux                        bool // containers have labels
	CgroupVersion, CgroupManager   string
	StorageDriver                  string
}

// Host gives access to wisbox on this machine.
type Host interface {
	// Service finds Podman, or starts it.
	Service(ctx context.Context) (Service, error)
	// Image looks for the image of programs and returns its name, even with an error.
	Image(ctx context.Context) (name string, err error)
	// OldImages returns the number of unused images of other versions.
	OldImages(ctx context.Context) (int, error)
	// BuildImage builds that image.
	BuildImage(ctx context.Context) error
	// Leftovers returns the number of things that killed processes left behind.
	Leftovers(ctx context.Context) (int, error)
	// Prune removes them.
	Prune(ctx context.Context) error
	// Open opens an ephemeral session whose programs may connect to allow.
	Open(ctx context.Context, limits sandbox.Limits, allow ...string) (Session, error)
}

// Session is a session for checks.
type Session interface {
	Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error)
	// Limits returns the limits that the host claims to enforce.
	Limits(ctx context.Context) ([]sandbox.LimitState, error)
	// Write, Read and Remove change files as the tools do.
	Write(ctx context.Context, path, content string) error
	Read(ctx context.Context, path string) (string, error)
	Remove(ctx context.Context, path string) error
	// Pause freezes the session's programs until Resume.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Close removes the session.
	Close(ctx context.Context) error
}

// Options are the options of an examination; nil means the defaults.
type Options struct {
	// Line is called for each line as soon as it is known.
	Line func(Line)
	// Fix repairs problems that wisbox can repair: it builds the image, removes the remains of
	// killed processes, and as root gives the user who called sudo the ids and settings that
	// rootless Podman needs.
	Fix bool
	// Root is the file system to examine, for tests; default "/".
	Root string
}

// Examine makes all checks, in a few seconds. The report has the problems; there is no error. If
// ctx ends, the report has the lines so far, and the others as skipped.
func Examine(ctx context.Context, host Host, opts *Options) *Report {
	e := &examination{host: host}
	if opts != nil {
		e.opts = *opts
	}
	if e.opts.Root == "" {
		e.opts.Root = "/"
	}
	began := time.Now()
	e.ended = func() bool { return ctx.Err() != nil }
	e.run(ctx)
	e.report.Took = time.Since(began)
	return &e.report
}

type examination struct {
	host    Host
	opts    Options
	service Service
	ended   func() bool // somebody cancelled

	mu     sync.Mutex
	report Report
}

func (e *examination) say(lines ...Line) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range lines {
		if e.ended() && l.Status != OK { // what a check saw is its own end
			l = Line{l.Name, Skipped, "doctor was cancelled", ""}
		}
		e.report.Lines = append(e.report.Lines, l)
		if e.opts.Line != nil {
			e.opts.Line(l)
		}
	}
}

func (e *examination) run(ctx context.Context) {
	service, err := e.host.Service(ctx)
	if err != nil {
		fix := podmanFix
		if e.withoutLogin() {
			fix = busFix
		}
		e.say(Line{"podman", Broken, text(err), fix})
		e.say(e.rootless(ctx)...)
		e.say(Line{"sessions", Skipped, "nothing can be tried without Podman", ""})
		return
	}
	e.service = service
	e.say(e.podman())
	e.say(e.rootless(ctx)...)
	e.say(e.storage(), e.cgroup(), e.runtime(), e.devices(), e.kernel())
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
		name += fmt.Sprintf("; %d of other versions exist too: wisbox image prune removes unused ones", n)
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

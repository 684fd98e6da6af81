package wisbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

var companionName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}$`) })

const (
	maxCompanions      = 8
	minCompanionMemory = 16 << 20 // bytes
	maxCompanionDirs   = 16
)

// checkServices returns an error that names the invalid service and its invalid part.
func (o *SessionOptions) checkServices() error {
	bad := func(c sandbox.Companion, format string, args ...any) error {
		return tool.Errorf(tool.Invalid, "service %s: %s", c.Name, fmt.Sprintf(format, args...)).In("services")
	}
	if len(o.Services) > maxCompanions {
		return tool.Errorf(tool.Invalid, "there are %d services; the maximum is %d", len(o.Services), maxCompanions).In("services")
	}
	if len(o.Services) > 0 && o.Isolation == sandbox.IsolationGVisor {
		return tool.Errorf(tool.Invalid, "service and isolation gvisor exclude each other, since no other container can join gVisor's network; leave one out").In("services")
	}
	names, ports := map[string]bool{}, map[uint16]string{}
	for _, c := range o.Services {
		switch {
		case !companionName().MatchString(c.Name):
			return tool.Errorf(tool.Invalid, "service name %q must be 1 to 31 lower-case letters, digits and hyphens, and begin with a letter", c.Name).In("services")
		case names[c.Name]:
			return bad(c, "two services have that name; give each its own")
		case c.Port != 0 && ports[c.Port] != "":
			return bad(c, "it has port %d, as has %s; give each its own", c.Port, ports[c.Port])
		case c.Image == "":
			return bad(c, "the image is missing; write NAME=IMAGE")
		case c.Memory != 0 && c.Memory < minCompanionMemory:
			return bad(c, "memory is %s; it must be at least %s", size(float64(c.Memory)), size(minCompanionMemory))
		case len(c.Dirs) > maxCompanionDirs:
			return bad(c, "it has %d writable directories; the maximum is %d", len(c.Dirs), maxCompanionDirs)
		}
		for _, dir := range c.Dirs {
			if path.Clean(dir) != dir || !path.IsAbs(dir) || dir == "/" || strings.ContainsAny(dir, ",:\x00\n") ||
				slices.Contains([]string{"proc", "sys", "dev"}, strings.Split(dir, "/")[1]) {
				return bad(c, "dir %q must be a plain absolute path without , and :, not / and nothing in /proc, /sys or /dev", dir)
			}
		}
		if err := checkEnv(c.Env); err != nil {
			return bad(c, "%s", tool.AsError(err).Message)
		}
		names[c.Name] = true
		ports[c.Port] = c.Name
	}
	return nil
}

// aboutServices describes the services to a model.
func (o *SessionOptions) aboutServices() string {
	var all []string
	for _, c := range o.Services {
		text := c.Name + " (" + c.Image
		if c.Port != 0 {
			text += fmt.Sprintf(", port %d", c.Port)
		}
		all = append(all, text+")")
	}
	if len(all) == 0 {
		return ""
	}
	return "\nServices run beside the programs, which reach them at 127.0.0.1: " + strings.Join(all, ", ") + "."
}

// accompany starts the session's services.
func (l *local) accompany(ctx context.Context, sb sandbox.Sandbox) error {
	if len(l.opts.Services) == 0 {
		return nil
	}
	a, ok := sandbox.As[sandbox.Accompanied](sb)
	if !ok {
		return fmt.Errorf("%w: this backend has no services beside a sandbox", sandbox.ErrUnsupported)
	}
	return a.Accompany(ctx, slices.Clone(l.opts.Services))
}

// services returns the requested services, before there is a container.
func (o *SessionOptions) services() (all []sandbox.CompanionState) {
	for _, c := range o.Services {
		all = append(all, sandbox.CompanionState{Name: c.Name, Image: c.Image, State: "none yet"})
	}
	return all
}

// servicesIn returns the services of a sandbox, including those that don't exist yet.
func (l *local) servicesIn(ctx context.Context, sb sandbox.Sandbox) ([]sandbox.CompanionState, error) {
	all := l.opts.services()
	a, ok := sandbox.As[sandbox.Accompanied](sb)
	if len(all) == 0 || !ok {
		return all, nil
	}
	found, err := a.Companions(ctx)
	for i, c := range all {
		if at := slices.IndexFunc(found, func(f sandbox.CompanionState) bool { return f.Name == c.Name }); at >= 0 {
			all[i] = found[at]
		}
	}
	return all, toolerr.Of(err)
}

// ServiceOutput writes the output of a service of [SessionOptions.Services], at most the newest
// MiB. If there is no such service, or the session has no container, the error is not_found. Follow
// is unsupported. It leaves no record.
func (s *Session) ServiceOutput(ctx context.Context, name string, opts *OutputOptions) error {
	var o OutputOptions
	if opts != nil {
		o = *opts
	}
	if o.Follow {
		return tool.Errorf(tool.Unsupported, "the output of a service can't be followed; leave follow out").In("follow")
	}
	_, err := perform[*struct{}](ctx, s, serviceOutputOp{name, o.Tail}, hold.Streams{Stdout: o.Stdout, Stderr: o.Stderr})
	return err
}

// serviceOutputOp writes a service's output to its output streams, and leaves no record.
type serviceOutputOp struct {
	Name string `json:"name"`
	Tail int    `json:"tail,omitempty"`
}

func (o serviceOutputOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	if !slices.ContainsFunc(l.opts.Services, func(c sandbox.Companion) bool { return c.Name == o.Name }) {
		return nil, journal.Outcome{}, tool.Errorf(tool.NotFound, "process or service %q not found in this session; `wisbox ps SESSION` lists its processes and `wisbox inspect SESSION` its services", o.Name).In("name")
	}
	sb, done, err := l.running(ctx)
	if err != nil {
		return nil, journal.Outcome{}, err
	}
	if sb == nil {
		return nil, journal.Outcome{}, errNoService
	}
	defer done()
	a, ok := sandbox.As[sandbox.Accompanied](sb)
	if !ok {
		return nil, journal.Outcome{}, errNoService
	}
	stdout, endOut := l.covered(io.Stdout)
	stderr, endErr := l.covered(io.Stderr)
	err = a.CompanionOutput(ctx, o.Name, o.Tail, stdout, stderr)
	if errors.Is(err, sandbox.ErrNotFound) {
		err = errNoService
	}
	return &struct{}{}, journal.Outcome{}, errors.Join(toolerr.Of(err), endOut(), endErr())
}

// covered returns a writer that redacts the session's secrets, and a function to call at the end.
func (l *local) covered(to io.Writer) (w io.Writer, end func() error) {
	r := l.secrets.Redactor()
	if r == nil || to == nil {
		return to, func() error { return nil }
	}
	covering := r.NewWriter(to)
	return covering, func() error { return covering.Close(0) }
}

// errNoService is the error if there is no container: services start and end with it.
var errNoService = tool.Errorf(tool.NotFound, "the service doesn't run: it starts with the session's first program, and ends with its container").In("name")

// accompanied reports whether services are running, whose data would be lost with the container.
func (l *local) accompanied() bool {
	if len(l.opts.Services) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), peekTime)
	defer cancel()
	sb, err := l.box.Peek(ctx)
	return err != nil || sb != nil
}

// peekTime is how long a look waits for a sandbox that is being created.
var peekTime = patience.For(100 * time.Millisecond)

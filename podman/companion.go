package podman

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containers/podman/v5/libpod/define"
	units "github.com/docker/go-units"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.Accompanied = (*Sandbox)(nil)

// Labels of companions, in addition to those of their sandbox.
const (
	labelCompanion = "wisbox.companion" // its name
	labelBeside    = "wisbox.beside"    // the start of the sandbox whose network it is in
)

func (s *Sandbox) companionName(name string) string { return s.name + "." + name }

// Accompany implements [sandbox.Accompanied].
func (s *Sandbox) Accompany(ctx context.Context, all []sandbox.Companion) error {
	if err := s.hasCompany(ctx); err != nil {
		return err
	}
	main, err := s.b.inspect(ctx, s.name)
	if err != nil {
		return explain(ctx, "look at the container", err)
	}
	var cleanup undo.Steps
	defer cleanup.Run()
	for i := range all {
		if all[i], err = s.withPort(ctx, all[i]); err != nil {
			return err
		}
	}
	s.makeRoom(ctx, main, int64(len(all)))
	for _, c := range all {
		err := s.ensure(ctx, c, main, &cleanup)
		for try := 1; errors.Is(err, sandbox.ErrExists) && try < maxTries; try++ { // another process is making it
			err = s.ensure(ctx, c, main, &cleanup)
		}
		if err != nil {
			return ofService(c, err)
		}
	}
	for _, c := range all {
		if err := s.ready(ctx, c); err != nil {
			return ofService(c, err)
		}
	}
	cleanup.Keep()
	return nil
}

// hasCompany refuses companions that can't have the limits of their sandbox.
func (s *Sandbox) hasCompany(ctx context.Context) error {
	if s.b.isGVisor() {
		return fail(sandbox.ErrUnsupported, nil, "no other container can join gVisor's network; use the default isolation")
	}
	_, err := s.agent.Sockets(ctx)
	if errors.Is(err, sandbox.ErrUnsupported) {
		return fail(sandbox.ErrUnsupported, err, "a service can't be bounded beside a container on another machine, or where this user may not "+
			"trace its processes; use a Podman on this machine, by its socket")
	}
	return err
}

// makeRoom raises the limit on namespaces in the sandbox's user namespace, where otherwise none is
// needed. Programs still can't create any, since that takes a capability.
func (s *Sandbox) makeRoom(ctx context.Context, main *define.InspectContainerData, containers int64) {
	if err := boundUser(ctx, main.State.Pid, containers); err != nil { // then nothing bounds them
		s.b.log.Info("the namespaces of services", "sandbox", s.spec.ID, "error", err)
	}
}

// ofService adds the service's name to an error.
func ofService(c sandbox.Companion, err error) error {
	if ours, ok := errors.AsType[*Error](err); ok {
		return fail(ours.Kind, ours.Cause, "service %s: %s", c.Name, ours.Msg)
	}
	return err
}

// withPort sets the port from the image if none was given.
func (s *Sandbox) withPort(ctx context.Context, c sandbox.Companion) (sandbox.Companion, error) {
	image, err := s.b.inspectImage(ctx, c.Image)
	switch {
	case isNotFound(err):
		return c, fail(sandbox.ErrUnavailable, err, "service %s: image %s not found; %s", c.Name, c.Image, howToGet(c.Image))
	case err != nil:
		return c, explain(ctx, "look at the image", err)
	}
	if err := image.fits(c.Image); err != nil {
		return c, err
	}
	c.Dirs = slices.Concat(c.Dirs, image.volumes())
	for i := range c.Dirs {
		c.Dirs[i] = path.Clean(c.Dirs[i])
	}
	if c.Port == 0 {
		c.Port = image.port()
	}
	if c.Port == 0 {
		return c, fail(sandbox.ErrInvalid, nil, "service %s: the image %s exposes no TCP port; give the port on which it listens with port=", c.Name, c.Image)
	}
	return c, nil
}

// port returns the lowest TCP port that an image exposes, 0 for none.
func (i *image) port() (lowest uint16) {
	for text := range i.Config.ExposedPorts {
		number, protocol, _ := strings.Cut(text, "/")
		n, err := strconv.ParseUint(number, 10, 16)
		if err == nil && (protocol == "tcp" || protocol == "") && (lowest == 0 || uint16(n) < lowest) {
			lowest = uint16(n)
		}
	}
	return lowest
}

func (i *image) volumes() (dirs []string) {
	for dir := range i.Config.Volumes {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

// ensure creates a companion that doesn't exist, or isn't in this network.
func (s *Sandbox) ensure(ctx context.Context, c sandbox.Companion, main *define.InspectContainerData, cleanup *undo.Steps) error {
	name, beside := s.companionName(c.Name), besideOf(main)
	data, err := s.b.inspectMade(ctx, name)
	switch {
	case err == nil && !s.b.owns(data.Config.Labels, s.spec.ID):
		return fail(sandbox.ErrUnavailable, nil, "a container that isn't wisbox's has its name; remove or rename it")
	case err == nil && data.State.Running && data.Config.Labels[labelBeside] == beside:
		s.keepLogOf(ctx, c.Name)
		return nil
	case err != nil && !isNotFound(err):
		return explain(ctx, "look at the service", err)
	case err == nil:
		if err := s.b.remove(ctx, name); err != nil {
			return err
		}
	}
	if conn, err := s.DialPort(ctx, c.Port); err == nil {
		conn.Close()
		return fail(sandbox.ErrInvalid, nil, "another service or program already listens on its port %d; give it another one", c.Port)
	}
	return s.makeCompanion(ctx, c, main, cleanup)
}

// besideOf distinguishes one start of a sandbox from the next.
func besideOf(main *define.InspectContainerData) string {
	return main.ID + " " + strconv.FormatInt(main.State.StartedAt.UnixNano(), 10)
}

func (s *Sandbox) makeCompanion(ctx context.Context, c sandbox.Companion, main *define.InspectContainerData, cleanup *undo.Steps) error {
	e, err := s.b.engine(ctx)
	if err != nil {
		return err
	}
	files, err := s.b.writeHostFiles(s.spec)
	if err != nil {
		return err
	}
	if files.hosts, err = keepFile(cmp.Or(s.spec.Own, s.b.opts.RuntimeDir), "hosts-"+c.Name, hosts(c.Name)); err != nil {
		return fail(sandbox.ErrUnavailable, err, "the service's host file can't be written")
	}
	spec := companion{
		container: container{
			name: s.companionName(c.Name), hostname: c.Name, image: c.Image, files: files, limits: companionLimits(c), parent: e.info.groupParent(),
			stacked: e.info.stacksProfiles(), ipcBounds: e.info.boundsIPC(), fileTable: fileTable(), labels: s.b.labels(s.spec),
		},
		env: c.Env, dirs: c.Dirs, main: main.ID,
	}
	if e.own && e.info.Host.Security.Rootless {
		if spec.log, err = s.b.newServiceLog(spec.name); err != nil {
			return fail(sandbox.ErrUnavailable, err, "the directory of its output can't be made")
		}
	}
	spec.labels[labelCompanion], spec.labels[labelBeside], spec.labels[labelAttempt] = c.Name, besideOf(main), rand.Text()
	if spec.owner, err = s.dirOwner(ctx, spec); err != nil {
		return err
	}
	if err := s.postCompanion(ctx, spec, cleanup); err != nil {
		return err
	}
	s.keepLogOf(ctx, c.Name) // before it can print
	if err := s.b.start(ctx, spec.name); err != nil {
		return notStarted(c.Image, err)
	}
	return s.verifyCompanion(ctx, spec)
}

// missing matches what the image of a companion lacks, in the texts of Podman and the container runtimes: a user, a
// group, or its program.
var missing = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("unable to find (user|group) ([^:]+):|unknown (user|group) error looking up (?:user|group) \"([^\"]+)\"|exec: \"([^\"]+)\": |executable file `([^`]+)` not found")
})

// notStarted names what the image of a companion lacks.
func notStarted(image string, err error) error {
	if err == nil {
		return nil
	}
	text := apiText(err)
	m := missing().FindStringSubmatch(text)
	switch {
	case strings.HasPrefix(text, "no command or entrypoint"):
		return fail(sandbox.ErrUnavailable, err, "the image %s starts nothing; give it an ENTRYPOINT or a CMD", image)
	case m == nil:
		return err
	case m[1]+m[3] != "":
		return noUser(image, m[1]+m[3], m[2]+m[4], err)
	}
	program := m[5] + m[6]
	if strings.Contains(text, "permission denied") {
		return fail(sandbox.ErrUnavailable, err, "the image %s starts %s, which can't be executed; make it executable, or change its ENTRYPOINT", image, program)
	}
	return fail(sandbox.ErrUnavailable, err, "the image %s starts %s, which it doesn't have; add that program, or change its ENTRYPOINT", image, program)
}

func noUser(image, kind, name string, cause error) error {
	return fail(sandbox.ErrUnavailable, cause, "the image %s has no %s %s, as which it is to run; create it in the image, or change its USER", image, kind, name)
}

// postCompanion creates a companion. As for a sandbox, the request outlives ctx.
func (s *Sandbox) postCompanion(ctx context.Context, spec companion, cleanup *undo.Steps) error {
	err := s.b.post(ctx, spec.container, spec.generate())
	if isTaken(err) {
		return fail(sandbox.ErrExists, err, "another process is starting it; try again")
	}
	if err == nil || !isAnswer(err) {
		cleanup.Add(func() { s.b.undoCreate(ctx, spec.container) })
	}
	if err == nil && ctx.Err() != nil {
		return fail(ctx.Err(), nil, "could not create it in time")
	}
	return notStarted(spec.image, explain(ctx, "create it", err))
}

func companionLimits(c sandbox.Companion) sandbox.Limits {
	l := sandbox.Limits{CPUs: sandbox.CompanionCPUs, Memory: c.Memory, PIDs: sandbox.CompanionPIDs}
	if l.Memory == 0 {
		l.Memory = sandbox.CompanionMemory
	}
	l.FileSize = l.Memory
	return l.WithDefaults()
}

// verifyCompanion checks that a companion is as isolated as its sandbox.
func (s *Sandbox) verifyCompanion(ctx context.Context, spec companion) error {
	data, err := s.b.inspect(ctx, spec.name)
	if err != nil {
		return explain(ctx, "look at the service", err)
	}
	if wrong := spec.differences(data); len(wrong) > 0 {
		s.b.log.Error("service is not what was asked", "sandbox", s.spec.ID, "differences", wrong)
		return fail(sandbox.ErrUnavailable, nil, "podman made a container that is not isolated as requested (%s)", strings.Join(wrong, ", "))
	}
	if data.State.Pid == 0 { // it has ended; ready says how
		return nil
	}
	if err := boundTCP("/", data, tcpBytes(spec.limits)); err != nil {
		s.b.log.Warn("a service's connections are not bounded", "sandbox", s.spec.ID, "error", err)
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(data.State.Pid) + "/status")
	if err == nil && !s.b.opts.unfiltered && !strings.Contains(string(status), "Seccomp:\t2") && !strings.Contains(string(status), "State:\tZ") {
		return fail(sandbox.ErrUnavailable, nil, "podman made a container without a seccomp filter")
	}
	return nil
}

const readyEvery = 50 * time.Millisecond // a look at a service's port

// ready waits until a companion listens.
func (s *Sandbox) ready(ctx context.Context, c sandbox.Companion) error {
	limited, cancel := context.WithTimeout(ctx, patience.For(sandbox.CompanionReady))
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for look := 0; ; look++ {
		conn, err := s.DialPort(limited, c.Port)
		if err == nil {
			conn.Close()
			return nil
		}
		if errors.Is(err, sandbox.ErrLost) {
			return err
		}
		if look%10 == 0 || limited.Err() != nil {
			if err := s.stillStarts(ctx, c); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-limited.Done():
			return s.notReady(ctx, c)
		}
	}
}

// stillStarts returns an error for a companion that has ended.
func (s *Sandbox) stillStarts(ctx context.Context, c sandbox.Companion) error {
	data, err := s.b.inspect(ctx, s.companionName(c.Name))
	switch {
	case err != nil:
		return explain(ctx, "look at the service", err)
	case data.State.Running:
		return nil
	case data.State.OOMKilled:
		return fail(sandbox.ErrUnavailable, nil, "it ran out of memory before it listened on port %d; give it more with memory=SIZE%s", c.Port, s.lastWords(ctx, c))
	case int(data.State.ExitCode) == sandbox.ExitSignalBase+int(syscall.SIGKILL):
		// Podman 4.3 doesn't see all such ends, and nobody else kills a service that starts.
		return fail(sandbox.ErrUnavailable, nil, "it was killed before it listened on port %d, most likely because it ran out of its %s of memory; give it more with memory=SIZE%s",
			c.Port, units.BytesSize(float64(companionLimits(c).Memory)), s.lastWords(ctx, c))
	}
	return fail(sandbox.ErrUnavailable, nil, "it ended with exit code %d before it listened on port %d%s", data.State.ExitCode, c.Port, s.lastWords(ctx, c))
}

func (s *Sandbox) notReady(ctx context.Context, c sandbox.Companion) error {
	if ctx.Err() != nil {
		return fail(ctx.Err(), nil, "timed out before it listened on port %d%s", c.Port, s.lastWords(ctx, c))
	}
	return fail(sandbox.ErrUnavailable, nil, "nothing listens on its port %d after %s; give the right port with port=%s", c.Port, sandbox.CompanionReady, s.lastWords(ctx, c))
}

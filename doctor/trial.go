package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// small are the limits in experiments: small, so that exceeding them is quick and, if one isn't
// enforced, harmless.
var small = sandbox.Limits{
	CPUs: 0.5, Memory: 128 << 20, PIDs: 64, Tmp: 8 << 20, Disk: 32 << 20, Inodes: 1000, NoFile: 256,
}

// programTime bounds one program of an experiment.
var programTime = patience.For(30 * time.Second)

// trial is a session and the limits that the machine claims to enforce.
type trial struct {
	e      *examination
	s      Session
	limits map[string]sandbox.LimitState
}

// look is one check in a session.
type look struct {
	name string
	at   func(*trial, context.Context) Line
}

// looks are the checks by session: one session suffices for most, but two limits need one each,
// which is full afterwards.
var looks = [][]look{
	{
		{"speed", (*trial).speed},
		{"memory", (*trial).memory},
		{"cpus", (*trial).cpus},
		{"pids", (*trial).processes},
		{"tmp", (*trial).tmp},
		{"nofile", (*trial).descriptors},
		{"counters", (*trial).counters},
		{"sockets", (*trial).sockets},
		{"network", (*trial).network},
		{"rights", (*trial).rights},
		{"signals", (*trial).signals},
		{"seccomp", (*trial).filter},
		{"root", (*trial).readOnly},
		{"ownership", (*trial).ownership},
		{"pause", (*trial).pause},
	},
	{{"disk", (*trial).disk}},
	{{"inodes", (*trial).files}},
}

// try runs the checks in sessions, and then one in a session with network access. The lines have a
// fixed order.
func (e *examination) try(ctx context.Context) {
	lines := make([][]Line, len(looks)+1)
	var wg sync.WaitGroup
	for i, these := range looks {
		wg.Go(func() { lines[i] = e.inSession(ctx, these) })
	}
	wg.Wait()
	if slices.ContainsFunc(lines[0], func(l Line) bool { return l.Status == Broken && (l.Name == "session" || l.Name == "first program") }) {
		lines[len(looks)] = []Line{{"egress", Skipped, "it can't be tried before a program runs", ""}}
	} else { // after the others have shown that a session works
		lines[len(looks)] = []Line{e.egress(ctx)}
	}
	e.say(unique(slices.Concat(lines...))...)
}

// unique removes lines that several sessions have in common: of lines with the same name it keeps
// the first that isn't ok, or else the first.
func unique(lines []Line) (out []Line) {
	for _, l := range lines {
		i := slices.IndexFunc(out, func(o Line) bool { return o.Name == l.Name })
		switch {
		case i < 0:
			out = append(out, l)
		case out[i].Status == OK && l.Status != OK:
			out[i] = l
		}
	}
	return out
}

// inSession returns a line for each check, even if the session can't be created.
func (e *examination) inSession(ctx context.Context, these []look) (lines []Line) {
	began := time.Now()
	s, err := e.host.Open(ctx, small)
	if err != nil {
		return append([]Line{{"session", Broken, text(err), "free some disk space, or set WISBOX_CACHE to a directory of yours"}},
			skipped(these, "its session could not be made")...)
	}
	t := &trial{e: e, s: s}
	first := t.first(ctx, began)
	lines = append(lines, first)
	if first.Status == OK {
		for _, l := range these {
			lines = append(lines, l.at(t, ctx))
		}
	} else {
		lines = append(lines, skipped(these, "the first program of its session did not run")...)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), programTime)
	defer cancel()
	if err := s.Close(end); err != nil {
		lines = append(lines, Line{"clean-up", Broken, text(err), "remove the leftovers with: wisbox prune"})
	}
	return lines
}

func skipped(these []look, why string) (lines []Line) {
	for _, l := range these {
		lines = append(lines, Line{l.name, Skipped, why, ""})
	}
	return lines
}

// first runs the first program, which creates the container.
func (t *trial) first(ctx context.Context, began time.Time) Line {
	res, _, err := t.run(ctx, "true")
	if err != nil {
		fix := "run `wisbox --debug run -- true`: it shows Podman's answer"
		if t.e.service.SELinux {
			fix = "ask SELinux, which may have denied it: ausearch -m avc -ts recent; else " + fix
		}
		return Line{"first program", Broken, text(err), fix}
	}
	if res.Status != sandbox.StatusExited || res.ExitCode != 0 {
		return Line{"first program", Broken, fmt.Sprintf("`true` ended as %s, exit code %d", res.Status, res.ExitCode), "make the image again with: wisbox image build"}
	}
	t.limits = map[string]sandbox.LimitState{}
	if limits, err := t.s.Limits(ctx); err == nil {
		for _, l := range limits {
			t.limits[l.Name] = l
		}
	}
	return Line{"first program", OK, "a container and `true` in it in " + round(time.Since(began)), ""}
}

// pause pauses and resumes the session.
func (t *trial) pause(ctx context.Context) Line {
	err := t.s.Pause(ctx)
	switch {
	case tool.KindOf(err) == tool.Unsupported && t.e.service.Rootless && t.e.service.CgroupVersion == "v1":
		return Line{"pause", NotEnforced, text(err), cgroupV1Fix}
	case err != nil:
		return Line{"pause", NotEnforced, text(err), "see: wisbox --debug doctor"}
	}
	if err := t.s.Resume(ctx); err != nil {
		return Line{"pause", Broken, text(err), "see: wisbox --debug doctor"}
	}
	return Line{"pause", OK, "programs can be paused, and go on", ""}
}

// run runs a program and returns its output, including errors.
func (t *trial) run(ctx context.Context, argv ...string) (sandbox.Result, string, error) {
	var out bytes.Buffer
	w := &bounded{to: &out}
	res, err := t.s.Run(ctx, sandbox.Cmd{Argv: argv, Stdout: w, Stderr: w, Timeout: programTime})
	return res, strings.TrimSpace(out.String()), err
}

// python runs source; if it can't be run, the line is broken.
func (t *trial) python(ctx context.Context, name, source string) (sandbox.Result, string, *Line) {
	res, out, err := t.run(ctx, "python3", "-I", "-S", "-c", source)
	if err != nil {
		return res, out, &Line{name, Broken, text(err), "see: wisbox --debug doctor"}
	}
	return res, out, nil
}

// bounded keeps the first 4 KiB; both streams may write at once.
type bounded struct {
	mu sync.Mutex
	to *bytes.Buffer
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to.Write(p[:min(len(p), max(0, 4096-b.to.Len()))])
	return len(p), nil
}

// text returns an error's text for people.
func text(err error) string {
	if te, ok := errors.AsType[*tool.Error](err); ok {
		return te.Message
	}
	return err.Error()
}

func round(d time.Duration) string {
	if d < 20*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

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

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// small are the limits that are tried: small, so that going over them is quick
// and, where one doesn't hold, harmless.
var small = sandbox.Limits{
	CPUs: 0.5, Memory: 128 << 20, PIDs: 64, Tmp: 8 << 20, Disk: 32 << 20, Inodes: 1000, NoFile: 256,
}

// patience bounds one program of a trial.
const patience = 30 * time.Second

// trial is a session and what the machine says of its limits.
type trial struct {
	e      *examination
	s      Session
	limits map[string]sandbox.LimitState
}

// try opens a session for what can be tried in one, and one each for the two
// limits whose session is full afterwards. The lines come in a fixed order.
func (e *examination) try(ctx context.Context) {
	tests := []func(*trial, context.Context) []Line{
		func(t *trial, ctx context.Context) []Line { return t.general(ctx) },
		func(t *trial, ctx context.Context) []Line { return []Line{t.disk(ctx)} },
		func(t *trial, ctx context.Context) []Line { return []Line{t.files(ctx)} },
	}
	lines := make([][]Line, len(tests))
	var wg sync.WaitGroup
	for i, test := range tests {
		wg.Go(func() { lines[i] = e.inSession(ctx, test) })
	}
	wg.Wait()
	e.say(unique(slices.Concat(lines...))...)
}

// unique leaves out what a session said that another has said.
func unique(lines []Line) (out []Line) {
	for _, l := range lines {
		if !slices.ContainsFunc(out, func(o Line) bool { return o.Name == l.Name }) {
			out = append(out, l)
		}
	}
	return out
}

func (e *examination) inSession(ctx context.Context, test func(*trial, context.Context) []Line) []Line {
	began := time.Now()
	s, err := e.host.Open(ctx, small)
	if err != nil {
		return []Line{{"session", Broken, text(err), "free some disk space, or set WISBOX_CACHE to a directory of yours"}}
	}
	t := &trial{e: e, s: s}
	first := t.first(ctx, began)
	lines := []Line{first}
	if first.Status == OK {
		lines = append(lines, test(t, ctx)...)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.Close(end); err != nil {
		lines = append(lines, Line{"clean-up", Broken, text(err), "remove what is left with: wisbox prune"})
	}
	return lines
}

// first runs the first program: the container comes with it.
func (t *trial) first(ctx context.Context, began time.Time) Line {
	res, _, err := t.run(ctx, "true")
	if err != nil {
		return Line{"first program", Broken, text(err), "run `wisbox --debug run -- true`: it says what Podman answered"}
	}
	if res.Status != sandbox.StatusExited || res.ExitCode != 0 {
		return Line{"first program", Broken, fmt.Sprintf("`true` ended as %s, exit code %d", res.Status, res.ExitCode), "make the image anew with: wisbox image build"}
	}
	t.limits = map[string]sandbox.LimitState{}
	if limits, err := t.s.Limits(ctx); err == nil {
		for _, l := range limits {
			t.limits[l.Name] = l
		}
	}
	return Line{"first program", OK, "a container and `true` in it in " + round(time.Since(began)), ""}
}

func (t *trial) general(ctx context.Context) []Line {
	return []Line{
		t.speed(ctx), t.memory(ctx), t.cpus(ctx), t.processes(ctx), t.tmp(ctx), t.descriptors(ctx),
		t.network(ctx), t.rights(ctx), t.filter(ctx), t.readOnly(ctx), t.ownership(ctx),
	}
}

// run runs a program and gives what it printed, errors too.
func (t *trial) run(ctx context.Context, argv ...string) (sandbox.Result, string, error) {
	var out bytes.Buffer
	w := &bounded{to: &out}
	res, err := t.s.Run(ctx, sandbox.Cmd{Argv: argv, Stdout: w, Stderr: w, Timeout: patience})
	return res, strings.TrimSpace(out.String()), err
}

// python runs source; a program that can't be run is a broken line.
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

// text is an error as a person should read it.
func text(err error) string {
	var te *tool.Error
	if errors.As(err, &te) {
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

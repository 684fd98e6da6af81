package shelltool

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// Origin is the call that began a process.
type Origin struct {
	Call   string `json:"call,omitempty"`
	Caller string `json:"caller,omitempty"`
}

// label identifies a program that outlives its Shell. It is JSON in [sandbox.Cmd.Label].
type label struct {
	ID      string           `json:"id"`
	Command []string         `json:"command"`
	Cwd     string           `json:"cwd"`
	TTY     *sandbox.WinSize `json:"tty,omitempty"`
	Tag     string           `json:"tag,omitempty"`
	Started time.Time        `json:"started"`
	Timeout time.Duration    `json:"timeout_ns,omitempty"`
	Origin  Origin           `json:"origin"`
}

// maxLabelText bounds one text of a label, in bytes.
const maxLabelText = 300

// encode returns the label as JSON, with texts cut if it would be too long.
func (l label) encode() string {
	raw, err := json.Marshal(l)
	if err == nil && len(raw) > sandbox.MaxLabel {
		l.Command, l.Cwd = brief(l.Command[:1]), cut(l.Cwd)
		raw, err = json.Marshal(l)
	}
	if err != nil || len(raw) > sandbox.MaxLabel {
		return ""
	}
	return string(raw)
}

func cut(text string) string {
	if len(text) > maxLabelText {
		return strings.ToValidUTF8(text[:maxLabelText], "") + "…"
	}
	return text
}

// labelOf returns the label of a program that was found. A program without a valid label gets a new
// name: it runs, and a client must be able to end it.
func labelOf(found sandbox.DetachedProcess) label {
	var l label
	badID := json.Unmarshal([]byte(found.Label), &l)
	if badID == nil {
		_, badID = ulid.ParseStrict(strings.ToUpper(l.ID))
	}
	now := time.Now()
	if badID != nil || len(l.Command) == 0 {
		l = label{ID: newID(), Command: brief(found.Argv), Cwd: workspacePath("")}
	}
	if l.Started.IsZero() || l.Started.After(now) {
		l.Started = now.Add(-found.Age)
	}
	l.ID, l.Command = strings.ToLower(l.ID), brief(l.Command)
	return l
}

// heldWait is how long Reclaim waits for programs that another handle has: the kernel closes the
// connections of a killed process one by one.
const (
	heldLook = 20 * time.Millisecond
)

var heldWait = patience.For(5 * time.Second)

// Reclaim takes over the processes that another Shell started and left in the sandbox, under their
// ids, and returns their number. Their output continues where the last reader stopped. Reclaim
// reports the end of processes that have ended meanwhile, and leaves processes of another active
// handle alone. begun makes the context for Options.Ended.
func (s *Shell) Reclaim(ctx context.Context, from sandbox.Detacher, begun func(Origin) context.Context) (n int, err error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	tick := time.NewTicker(heldLook)
	defer tick.Stop()
	for patience := time.Now().Add(heldWait); ; {
		list, err := from.Detached(ctx)
		if err != nil {
			return n, err
		}
		held := false
		for _, found := range list {
			took, err := s.takeOver(ctx, from, found, begun)
			if err != nil {
				return n, err
			}
			if took {
				n++
			}
			held = held || found.Held && !took && !s.has(found)
		}
		if !held || time.Now().After(patience) {
			return n, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
}

// has reports whether a found program is one of the processes.
func (s *Shell) has(found sandbox.DetachedProcess) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.processes, func(p *process) bool {
		known, ok := sandbox.As[sandbox.Identified](p.proc)
		return ok && known.ID() == found.ID
	})
}

// takeOver makes a process of a found program, unless another handle has it.
func (s *Shell) takeOver(ctx context.Context, from sandbox.Detacher, found sandbox.DetachedProcess, begun func(Origin) context.Context) (bool, error) {
	if found.Held {
		return false, nil
	}
	l := labelOf(found)
	p := &process{id: l.ID, command: l.Command, cwd: l.Cwd, tty: l.TTY != nil, tag: l.Tag, started: l.Started, stdin: newInput("", l.TTY != nil), ended: make(chan struct{})}
	if !found.Input {
		p.stdin.add("", true)
	}
	if s.opts.Ended != nil {
		p.onEnd = func(info ProcessInfo, res sandbox.Result) { s.opts.Ended(begun(l.Origin), info, res) }
	}
	read := found.Read[0] + found.Read[1]
	p.openLog(s.opts.Output, max(0, read))
	cmd := sandbox.Cmd{Stdin: p.stdin, Stdout: p.writer(stdoutStream, nil), Stderr: p.writer(stderrStream, nil), TTY: l.TTY, Timeout: left(l.Timeout, found.Age)}
	var err error
	if p.proc, err = from.Attach(ctx, found.ID, cmd); err != nil {
		p.discard()
		if errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrExists) {
			return false, nil // another handle was faster
		}
		return false, err
	}
	go p.watch()
	s.mu.Lock()
	s.processes = append(s.processes, p)
	slices.SortStableFunc(s.processes, func(a, b *process) int { return a.started.Compare(b.started) })
	s.forgetOld()
	s.mu.Unlock()
	p.list()
	return true, nil
}

// left returns the rest of a time limit, which the sandbox enforces; 0 means no limit.
func left(limit, age time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return max(limit-age, time.Nanosecond)
}

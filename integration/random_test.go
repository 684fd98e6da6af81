package integration

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

// agentAtWork makes random calls in a session, one after the other, as an agent might. It reports each successful
// action as a promise, which must hold whatever happens afterwards.
type agentAtWork struct {
	s       *wisbox.Session
	name    string        // prefix of its files, which no other agent uses
	promise func(promise) // may be nil
	sleep   string        // seconds that its processes sleep

	written int
	turns   int
	last    string // the file written last
}

// promise is a file whose content is its name, or with a snapshot one that holds
// that file.
type promise struct{ File, Snapshot string }

// randomCalls are weighted like an agent's work: mostly files.
var randomCalls = []struct {
	weight int
	call   func(*agentAtWork, context.Context) error
}{
	{30, (*agentAtWork).write},
	{15, (*agentAtWork).read},
	{10, (*agentAtWork).edit},
	{10, func(a *agentAtWork, ctx context.Context) error { return a.do(ctx, "ls", args{}) }},
	{5, func(a *agentAtWork, ctx context.Context) error { return a.do(ctx, "grep", args{"pattern": a.name}) }},
	{5, func(a *agentAtWork, ctx context.Context) error {
		return a.do(ctx, "glob", args{"pattern": a.name + "*"})
	}},
	{12, (*agentAtWork).shell},
	{5, func(a *agentAtWork, ctx context.Context) error {
		return a.do(ctx, "evaluate_python", args{"code": "sum(range(100))"})
	}},
	{3, (*agentAtWork).leave},
	{5, (*agentAtWork).snapshot},
}

// step makes one call. It returns only errors that no call may return.
func (a *agentAtWork) step(ctx context.Context) error {
	sum := 0
	for _, c := range randomCalls {
		sum += c.weight
	}
	pick := rand.N(sum)
	for _, c := range randomCalls {
		if pick -= c.weight; pick < 0 {
			return c.call(a, ctx)
		}
	}
	return nil
}

func (a *agentAtWork) do(ctx context.Context, name string, arguments args) error {
	_, err := helpCall(ctx, a.s, name, arguments)
	if tool.KindOf(err) == tool.Busy { // another client is at work, which is a valid answer
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (a *agentAtWork) keep(p promise) {
	if a.promise != nil {
		a.promise(p)
	}
}

func (a *agentAtWork) write(ctx context.Context) error {
	a.written++
	name := fmt.Sprintf("%s-%d", a.name, a.written)
	if _, err := helpCall(ctx, a.s, "write_file", args{"file_path": name, "content": name}); err != nil {
		return fmt.Errorf("write_file: %w", err)
	}
	a.last = name
	a.keep(promise{File: name})
	return nil
}

func (a *agentAtWork) read(ctx context.Context) error {
	if a.last == "" {
		return a.write(ctx)
	}
	return a.do(ctx, "read_file", args{"file_path": a.last})
}

// edit changes a word of a file back and forth, which isn't a promise.
func (a *agentAtWork) edit(ctx context.Context) error {
	file, from, to := a.name+".turns", "on", "off"
	if a.turns++; a.turns == 1 {
		return a.do(ctx, "write_file", args{"file_path": file, "content": "on"})
	}
	if a.turns%2 == 1 {
		from, to = to, from
	}
	return a.do(ctx, "edit_file", args{"file_path": file, "old_string": from, "new_string": to})
}

func (a *agentAtWork) shell(ctx context.Context) error {
	return a.do(ctx, "shell_execute", args{"script": "setsid sleep " + a.sleep + " & echo x > " + a.name + ".x; seq 2000"})
}

// leave starts a process, and ends it in half of the cases. Otherwise the session's end does.
func (a *agentAtWork) leave(ctx context.Context) error {
	res, err := helpCall(ctx, a.s, "process_start", args{"script": "exec sleep " + a.sleep})
	if k := tool.KindOf(err); k == tool.Limit || k == tool.Busy {
		return nil // the session's maximum
	}
	if err != nil || rand.N(2) == 0 {
		return err
	}
	started, err := answerOf(res)
	if err != nil {
		return err
	}
	return a.do(ctx, "process_signal", args{"process_id": started.str("process_id"), "signal": "KILL"})
}

func (a *agentAtWork) snapshot(ctx context.Context) error {
	res, err := helpCall(ctx, a.s, "snapshot_create", args{})
	if err != nil {
		return fmt.Errorf("snapshot_create: %w", err)
	}
	made, err := answerOf(res)
	if err != nil {
		return err
	}
	a.keep(promise{File: a.last, Snapshot: made.str("snapshot_id")})
	return nil
}

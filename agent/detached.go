package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

var (
	_ sandbox.Detacher   = (*Conn)(nil)
	_ sandbox.SoleOwner  = (*Conn)(nil)
	_ sandbox.Identified = (*call)(nil)
	_ sandbox.Numbered   = (*call)(nil)
)

// ID implements [sandbox.Identified].
func (c *call) ID() uint64 { return c.id }

// PID implements [sandbox.Numbered].
func (c *call) PID() int { return c.pid }

// Detached implements [sandbox.Detacher].
func (c *Conn) Detached(ctx context.Context) ([]sandbox.DetachedProcess, error) {
	answer, err := c.ask(ctx, wire.List, nil)
	if err != nil {
		return nil, err
	}
	var list []wire.Detached
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("%w: list the programs: %w", sandbox.ErrLost, wire.ErrProtocol)
	}
	found := make([]sandbox.DetachedProcess, len(list))
	for i, one := range list {
		found[i] = sandbox.DetachedProcess{
			ID: one.ID, PID: one.PID, Label: one.Label, Argv: one.Argv, Age: time.Duration(one.Seconds * float64(time.Second)),
			Held: one.Held, Ended: one.Ended, Input: one.Input, Read: one.Read, Dropped: one.Dropped,
		}
	}
	return found, nil
}

// EndOthers implements [sandbox.SoleOwner].
func (c *Conn) EndOthers(ctx context.Context) error {
	_, err := c.ask(ctx, wire.List, []byte(wire.Alone))
	return err
}

// drainBoth reads both streams of a detached program, since the agent always sends both.
func drainBoth(cmd *sandbox.Cmd) {
	for _, w := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		if *w == nil {
			*w = io.Discard
		}
	}
}

// Attach implements [sandbox.Detacher].
func (c *Conn) Attach(ctx context.Context, id uint64, cmd sandbox.Cmd) (sandbox.Process, error) {
	cmd.Lifetime, cmd.Control, cmd.Capture = sandbox.LifetimeDetached, nil, nil
	drainBoth(&cmd)
	call := newCall(c, &cmd, make(chan struct{}))
	if err := c.give(call); err != nil {
		return nil, err
	}
	if err := c.send(wire.Attach, call.number, binary.BigEndian.AppendUint64(nil, id)); err != nil {
		return nil, err
	}
	select {
	case <-call.started:
	case <-call.exited:
		if call.exit.Error != nil {
			return nil, wrap(call.exit.Error)
		}
	case <-ctx.Done(): // the agent hasn't answered yet; this handle may get the program then
		return nil, fmt.Errorf("attach to the program: %w", ctx.Err())
	}
	call.copyIns()
	return call, nil
}

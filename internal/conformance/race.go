package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"
)

// race is the script of a case that runs while its calls are made. A nil one is
// a case without.
type race struct {
	rounds  atomic.Int64 // calls that ended while the script ran
	running atomic.Bool
	ended   chan error
}

const (
	gate        = "race-gate" // a file that the script waits behind
	leastRounds = 10
)

// startRace starts the script and returns when it is about to run: it makes the
// gate and waits, until the runner sees the gate and removes it.
func (a *attempt) startRace(ctx context.Context) *race {
	if a.c.Race == "" {
		return nil
	}
	script, err := a.vars.fill(a.c.Race)
	if err != nil {
		a.problem("race: %v", err)
		return nil
	}
	r := &race{ended: make(chan error, 1)}
	r.running.Store(true)
	go func() {
		err := a.o.script(ctx, ": > "+gate+"; while test -e "+gate+"; do sleep 0.01; done\n"+script)
		r.running.Store(false)
		r.ended <- err
	}()
	if err := a.openGate(ctx, r); err != nil {
		a.problem("race: %v", err)
	}
	return r
}

func (a *attempt) openGate(ctx context.Context, r *race) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && r.running.Load(); {
		reply, err := a.o.call(ctx, "rm", json.RawMessage(`{"path":"`+gate+`"}`))
		if err != nil {
			return err
		}
		if reply.Answer.Error == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the script did not begin")
}

func (r *race) round() {
	if r != nil && r.running.Load() {
		r.rounds.Add(1)
	}
}

func (r *race) finish(a *attempt) {
	if r == nil {
		return
	}
	if err := <-r.ended; err != nil {
		a.problem("race: %v", err)
	}
	if n, least := r.rounds.Load(), int64(min(max(a.c.Repeat, 1), leastRounds)); n < least {
		a.slowness("only %d calls fell into the run of the race script; at least %d must", n, least)
	}
}

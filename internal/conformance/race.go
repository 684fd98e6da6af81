package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// race is a script that runs during the calls of a case; nil for a case without one.
type race struct {
	rounds  atomic.Int64 // calls that ended while the script was running
	running atomic.Bool
	ended   chan error
}

const (
	gate        = "race-gate" // the script waits until this file is removed
	over        = "race-over" // this file ends the script after the calls
	leastRounds = 10
)

// raced is the part of the script between gate and end. The rest ends with its call.
const raced = `: > ` + gate + `
while test -e ` + gate + `; do sleep 0.01; done
(
%s
) &
while kill -0 $! 2>/dev/null; do
  if test -e ` + over + `; then rm ` + over + `; kill $!; wait $!; case $? in 0 | 143) exit 0 ;; *) exit 1 ;; esac; fi
  sleep 0.05
done
wait $!`

// startRace starts the script and returns just before its main part: the script creates the gate
// and waits until the runner sees and removes it.
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
		err := a.o.script(ctx, fmt.Sprintf(raced, script))
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

func (r *race) finish(ctx context.Context, a *attempt) {
	if r == nil {
		return
	}
	if r.running.Load() && len(a.c.Steps) == 0 { // otherwise the steps wait for it
		_, _ = a.o.call(ctx, "write_file", json.RawMessage(`{"file_path":"`+over+`","content":""}`))
	}
	if err := <-r.ended; err != nil {
		a.problem("race: %v", err)
	}
	if n, least := r.rounds.Load(), int64(min(max(a.c.Repeat, 1), leastRounds)); n < least {
		a.slowness("only %d calls fell into the run of the race script; at least %d must", n, least)
	}
}

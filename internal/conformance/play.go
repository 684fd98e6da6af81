package conformance

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// play makes all that the case makes with its session up.
func (a *attempt) play(ctx context.Context) {
	if a.c.needsPrograms() || a.c.MaxMS > 0 {
		a.warmUp(ctx, a.o)
	}
	if err := a.inSandbox(ctx, a.c.Setup); err != nil {
		a.problem("setup: %v", err)
		return
	}
	a.notePeak()
	race := a.startRace(ctx)
	if a.c.Tool != "" {
		a.repeat(ctx, race)
	}
	for i, s := range a.c.Steps {
		if err := a.step(ctx, s); err != nil {
			a.problem("step %d: %v", i+1, err)
			break
		}
	}
	race.finish(a)
	a.checkPeak()
	for _, script := range alsoOf(a.c, "sh:") {
		if err := a.inSandbox(ctx, script); err != nil {
			a.problem("afterwards: %v", err)
		}
	}
}

func (a *attempt) repeat(ctx context.Context, race *race) {
	n, before := max(a.c.Repeat, 1), a.vars
	var all sync.WaitGroup
	for i := range n {
		one := func() {
			a.try(ctx, a.c.Step, before.with("N", strconv.Itoa(i+1)))
			race.round()
		}
		if a.c.has("parallel") {
			all.Go(one)
		} else {
			one()
		}
	}
	all.Wait()
	if a.c.has("exactly_one_ok") && a.passed != 1 {
		a.problem("%d of %d calls succeeded; exactly one must", a.passed, n)
	}
}

func (a *attempt) step(ctx context.Context, s Step) error {
	switch {
	case s.Tool != "":
		a.try(ctx, s, a.vars)
		return nil
	case s.Sh != "":
		return a.inSandbox(ctx, s.Sh)
	case s.Host != "":
		return a.onHost(ctx, s.Host)
	}
	select {
	case <-time.After(s.pause()):
	case <-ctx.Done():
	}
	return ctx.Err()
}

package conformance

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// play runs all steps of the case in its session.
func (a *attempt) play(ctx context.Context) {
	if !a.c.keepsWorkspace() || a.c.MaxMS > 0 {
		a.o.warmUp(ctx)
	}
	if err := a.inSandbox(ctx, a.c.Setup); err != nil {
		a.problem("setup: %v", err)
		return
	}
	limits := a.c.also("rss_mib=")
	var peak int64
	if len(limits) > 0 {
		peak = a.o.Peak(true)
	}
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
	race.finish(ctx, a)
	for _, limit := range limits {
		most, err := strconv.ParseInt(limit, 10, 64)
		now := a.o.Peak(false)
		if grew := now - peak; err != nil || grew > most<<20 || (now < 0) != (peak < 0) {
			a.problem("the server's memory grew by %d MiB; at most %s are allowed", grew>>20, limit)
		}
	}
	for _, script := range a.c.also("sh:") {
		a.check("afterwards", a.inSandbox(ctx, script))
	}
}

func (a *attempt) repeat(ctx context.Context, race *race) {
	n := max(a.c.Repeat, 1)
	var all sync.WaitGroup
	for i := range n {
		v := a.with("N", quote(strconv.Itoa(i+1)))
		one := func() {
			a.try(ctx, a.c.Step, v)
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
	case <-time.After(time.Duration(s.Sleep * float64(time.Second))):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// try makes one call and checks its answer.
func (a *attempt) try(ctx context.Context, s Step, v vars) {
	expect, err := v.fill(s.Expect)
	args, argsErr := v.arguments(s.Args)
	if err != nil || argsErr != nil {
		a.check(s.Tool, err)
		a.check(s.Tool, argsErr)
		return
	}
	seen := progressOf(s)
	start := time.Now()
	reply, err := a.o.follow(ctx, s.Tool, args, seen.hear())
	took := time.Since(start)
	if err != nil {
		a.problem("%s: %v", s.Tool, err)
		return
	}
	a.check(s.Tool, seen.judge())
	why, err := Match(expect, reply.Answer)
	a.check(s.Tool, err)
	if why != "" {
		a.problem("%s: %s", s.Tool, why)
	}
	limit := time.Duration(float64(s.MaxMS)*a.slack) * time.Millisecond
	if s.MaxMS > 0 && took > limit {
		a.slowness("%s took %v; at most %v are allowed", s.Tool, took.Round(time.Millisecond), limit)
	}
	if a.canary.seen(reply.Raw) {
		a.problem("%s showed the canary", s.Tool)
	}
	a.alsoReply(s.Tool, v, reply)
	a.keep(s, reply)
}

// keep counts successes, and saves the fields that later steps use.
func (a *attempt) keep(s Step, reply Reply) {
	if reply.Answer.Error == nil && !reply.Answer.Failed {
		a.mu.Lock()
		a.passed++
		a.mu.Unlock()
	}
	for name, field := range s.Save {
		v := lookUp(reply.Answer.Result, reply.Answer.Text, field)
		if v == nil {
			a.problem("%s: the answer has no %s to keep", s.Tool, field)
			continue
		}
		more := a.with(name, v)
		a.mu.Lock()
		a.vars = more
		a.mu.Unlock()
	}
}

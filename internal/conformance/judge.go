package conformance

import (
	"context"
	"strconv"
	"time"
)

// try makes one call and judges it.
func (a *attempt) try(ctx context.Context, s Step, v vars) {
	args, err := v.arguments(s.Args)
	if err != nil {
		a.problem("%s: %v", s.Tool, err)
		return
	}
	expect, err := v.fill(s.Expect)
	if err != nil {
		a.problem("%s: %v", s.Tool, err)
		return
	}
	start := time.Now()
	reply, err := a.call(ctx, a.o, s.Tool, args)
	took := time.Since(start)
	if err != nil {
		a.problem("%s: %v", s.Tool, err)
		return
	}
	a.judge(s, v, expect, reply, took)
	a.save(s, reply)
}

func (a *attempt) judge(s Step, v vars, expect string, reply Reply, took time.Duration) {
	why, err := Match(expect, reply.Answer)
	if err != nil {
		why = err.Error()
	}
	if why != "" {
		a.problem("%s: %s", s.Tool, why)
	}
	limit := time.Duration(float64(s.MaxMS)*a.opts.Slack) * time.Millisecond
	if s.MaxMS > 0 && took > limit {
		a.problem("%s took %v; at most %v are allowed", s.Tool, took.Round(time.Millisecond), limit)
	}
	if a.canary.seen(reply.Raw) {
		a.problem("%s showed the canary", s.Tool)
	}
	for _, p := range alsoReply(a.c, v, reply) {
		a.problem("%s: %s", s.Tool, p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if reply.Answer.Error == nil && !reply.Answer.Failed {
		a.passed++
	}
}

func (a *attempt) save(s Step, reply Reply) {
	for name, field := range s.Save {
		value := lookUp(reply.Answer.Result, reply.Answer.Text, field)
		if value == (any)(missing{}) {
			a.problem("%s: the answer has no %s to keep", s.Tool, field)
			continue
		}
		a.mu.Lock()
		a.vars = a.vars.with(name, value)
		a.mu.Unlock()
	}
}

func (a *attempt) notePeak() {
	m, ok := a.o.Session.(Memory)
	if !ok || len(alsoOf(a.c, "rss_mib=")) == 0 {
		return
	}
	_ = m.ResetPeak() // without it the growth is measured from an older peak
	if peak, err := m.PeakBytes(); err == nil {
		a.peak = peak
	}
}

func (a *attempt) checkPeak() {
	if a.peak < 0 {
		return
	}
	now, err := a.o.Session.(Memory).PeakBytes()
	if err != nil {
		a.problem("the server's memory can't be read: %v", err)
		return
	}
	for _, text := range alsoOf(a.c, "rss_mib=") {
		if most, err := strconv.ParseInt(text, 10, 64); err != nil || now-a.peak > most<<20 {
			a.problem("the server's memory grew by %d MiB; at most %s are allowed", (now-a.peak)>>20, text)
		}
	}
}

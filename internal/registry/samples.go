package registry

import (
	"context"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wisbox/wisbox/internal/patience"
)

// Gauge is the resource usage of a sandbox at one moment.
type Gauge struct {
	Running      bool          // whether it has a container; otherwise CPU and Memory are 0
	CPU          time.Duration // processor time so far
	Memory, Disk int64         // bytes
}

// Sample is the resource usage of a sandbox at a given time.
type Sample struct {
	Time         time.Time
	CPUPct       float64 // of its processors since the previous sample, 0 to 100
	Memory, Disk int64   // bytes
}

const (
	sampleEvery = 5 * time.Second
	samplers    = 8   // concurrent gauges
	maxSamples  = 720 // per sandbox: the last hour
)

var sampleTime = patience.For(4 * time.Second) // timeout per sandbox

// keepSampling samples the running sandboxes periodically.
func (r *Registry) keepSampling() {
	tick := time.NewTicker(r.opts.SampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.sample()
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *Registry) sample() {
	var round errgroup.Group
	round.SetLimit(samplers)
	for _, s := range r.list() {
		if s.IsRunning() && !s.isNamed() {
			round.Go(func() error {
				s.sample(r.ctx)
				return nil
			})
		}
	}
	_ = round.Wait() // always nil
}

// Look samples the sandbox now if it isn't sampled periodically. With a [Book] there is no
// periodic sampling, because each server would need a connection to each sandbox.
func (s *Sandbox) Look(ctx context.Context) {
	last, ok := s.Now()
	if s.r.shared() && s.IsRunning() && (!ok || time.Since(last.Time) >= sampleEvery) {
		s.sample(ctx)
	}
}

// sample adds a sample, unless the sandbox can't be asked now.
func (s *Sandbox) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	box, err := s.Box(ctx)
	if err != nil {
		return
	}
	g, ok := box.(Gauger)
	if !ok {
		return
	}
	at := time.Now()
	now, err := g.Gauge(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := Sample{Time: at.UTC(), Memory: now.Memory, Disk: now.Disk}
	if now.Running && s.gauged.Running && now.CPU >= s.gauged.CPU {
		next.CPUPct = share(now.CPU-s.gauged.CPU, at.Sub(s.gaugedAt), s.rec.CPUs)
	}
	s.gauged, s.gaugedAt = now, at
	if len(s.samples) >= maxSamples {
		s.samples = append(s.samples[:0], s.samples[len(s.samples)-maxSamples+1:]...)
	}
	s.samples = append(s.samples, next)
}

// share returns the usage of some processors over a period, in percent.
func share(used, in time.Duration, cpus float64) float64 {
	if in <= 0 {
		return 0
	}
	if cpus <= 0 {
		cpus = 1
	}
	pct := 100 * float64(used) / (float64(in) * cpus)
	return math.Round(min(pct, 100)*100) / 100
}

// Samples returns the samples of the last hour between two times, inclusive, oldest first.
func (s *Sandbox) Samples(from, to time.Time) []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.samples), func(one Sample) bool { return one.Time.Before(from) || one.Time.After(to) })
}

// Now returns the latest sample, if any.
func (s *Sandbox) Now() (Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samples) == 0 {
		return Sample{}, false
	}
	return s.samples[len(s.samples)-1], true
}

// Package metrics counts a wisbox.Manager's work for Prometheus: its sessions and pool, its calls
// by tool and outcome, their durations, the ends of programs, and the bytes that went in and out.
// Labels are names of tools, outcomes and verdicts: never a session, a path or a caller's text.
//
//	m := metrics.New()
//	manager, err := wisbox.NewManager(ctx, &wisbox.Options{Meter: m})
//	m.Watch(manager.Stats)
//	go metrics.Serve(ctx, listener, m)
//
// Package [github.com/wisbox/wisbox/metrics/collector] makes them a prometheus.Collector.
//
// Programs of a kept session run in its holder, which has its own counters: [Holders] gathers those
// of all holders of a state root.
package metrics

import (
	"encoding/json"
	"io"
	"sync/atomic"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/exposition"
	"github.com/wisbox/wisbox/profile"
)

// Family is one metric with all its samples.
type Family = exposition.Family

// Gatherer returns the present values of metrics. Each name occurs once.
type Gatherer interface{ Gather() ([]Family, error) }

// Metrics is a wisbox.Meter and a Gatherer. Its methods may be called from many goroutines at once.
type Metrics struct {
	calls, programs, bytes *exposition.Vector
	seconds                *exposition.Vector
	tools                  map[string]bool
	stats                  atomic.Pointer[func() wisbox.Stats]
}

var (
	_ wisbox.Reporter = (*Metrics)(nil)
	_ Gatherer        = (*Metrics)(nil)
)

// buckets range from tenths of a millisecond for a file tool to minutes for a program, in seconds.
var buckets = []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120}

// New returns Metrics that count from zero.
func New() *Metrics {
	return &Metrics{
		calls:    exposition.NewCounter("wisbox_calls_total", "Calls by tool and outcome: ok, failed, or the kind of the error.", "outcome", "tool"),
		programs: exposition.NewCounter("wisbox_programs_total", "Programs that ended, with their call or after it, by verdict.", "verdict"),
		bytes:    exposition.NewCounter("wisbox_bytes_total", "Bytes of arguments (in) and results (out) by tool.", "direction", "tool"),
		seconds:  exposition.NewHistogram("wisbox_call_duration_seconds", "Duration of calls by tool.", buckets, "tool"),
		tools:    toolNames(),
	}
}

// toolNames returns all valid labels of a call, so that a caller's invented names don't create
// series.
func toolNames() map[string]bool {
	known := map[string]bool{}
	for _, name := range wisbox.EventTools() {
		known[name] = true
	}
	for _, name := range profile.Names() {
		set, err := wisbox.ToolProfile(name)
		if err != nil {
			continue // impossible while Names is correct
		}
		for _, t := range set.Tools() {
			known[t.Name] = true
		}
	}
	return known
}

// Call implements wisbox.Meter.
func (m *Metrics) Call(e wisbox.Event) {
	tool := e.Tool
	if !m.tools[tool] {
		tool = "unknown"
	}
	m.calls.Add(1, e.Outcome, tool)
	m.seconds.Add(e.Duration.Seconds(), tool)
	m.bytes.Add(float64(e.ArgsSize), "in", tool)
	m.bytes.Add(float64(e.ResultSize), "out", tool)
	if e.Verdict != "" {
		m.programs.Add(1, e.Verdict)
	}
}

// Ended implements wisbox.Meter.
func (m *Metrics) Ended(verdict string) { m.programs.Add(1, verdict) }

// Watch adds the manager's sessions and pool.
func (m *Metrics) Watch(stats func() wisbox.Stats) { m.stats.Store(&stats) }

// Gather implements Gatherer.
func (m *Metrics) Gather() ([]Family, error) {
	all := []Family{m.calls.Family(), m.programs.Family(), m.bytes.Family(), m.seconds.Family()}
	if stats := m.stats.Load(); stats != nil {
		s := (*stats)()
		all = append(all,
			exposition.Single("wisbox_sessions", "Sessions that are open.", exposition.Gauge, float64(s.Sessions)),
			exposition.Single("wisbox_sessions_opened_total", "Sessions that were opened or attached.", exposition.Counter, float64(s.Opened)),
			exposition.Single("wisbox_pool_ready", "Containers of the pool that are ready.", exposition.Gauge, float64(s.Pool.Ready)),
			exposition.Single("wisbox_pool_making", "Containers of the pool that are being made.", exposition.Gauge, float64(s.Pool.Making)),
			exposition.Single("wisbox_pool_taken_total", "Sessions that found a ready container.", exposition.Counter, float64(s.Pool.Taken)),
			exposition.Single("wisbox_pool_missed_total", "Sessions that found the pool empty.", exposition.Counter, float64(s.Pool.Missed)))
	}
	return exposition.Merge(all), nil
}

// Report implements wisbox.Reporter. [Holders] reads it.
func (m *Metrics) Report(w io.Writer) error {
	all, err := m.Gather()
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(all)
}

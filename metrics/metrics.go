// Package metrics counts a wisbox.Manager's work for Prometheus: its sessions and pool, its calls
// by tool and outcome, their durations, the ends of programs, and the bytes that went in and out.
// Labels are names of tools, outcomes and verdicts: never a session, a path or a caller's text.
//
//	m := metrics.New()
//	manager, err := wisbox.NewManager(ctx, &wisbox.Options{Meter: m})
//	m.Watch(manager.Stats)
//	prometheus.MustRegister(m) // or Serve(ctx, listener, m)
//
// Programs of a kept session run in its holder, which has its own counters: [Holders] gathers those
// of all holders of a state root.
package metrics

import (
	"io"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/profile"
)

// Metrics is a wisbox.Meter, a prometheus.Collector and, on its own, a prometheus.Gatherer. Its
// methods may be called from many goroutines at once.
type Metrics struct {
	calls, programs, bytes *prometheus.CounterVec
	seconds                *prometheus.HistogramVec
	tools                  map[string]bool
	stats                  atomic.Pointer[func() wisbox.Stats]
	alone                  *prometheus.Registry
}

var (
	_ wisbox.Reporter      = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
	_ prometheus.Gatherer  = (*Metrics)(nil)
)

// buckets range from tenths of a millisecond for a file tool to minutes for a program, in seconds.
var buckets = []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120}

// New returns Metrics that count from zero.
func New() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wisbox", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		calls:    counter("calls_total", "Calls by tool and outcome: ok, failed, or the kind of the error.", "tool", "outcome"),
		programs: counter("programs_total", "Programs that ended, with their call or after it, by verdict.", "verdict"),
		bytes:    counter("bytes_total", "Bytes of arguments (in) and results (out) by tool.", "tool", "direction"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "wisbox", Name: "call_duration_seconds", Help: "Duration of calls by tool.", Buckets: buckets,
		}, []string{"tool"}),
		tools: toolNames(),
		alone: prometheus.NewPedanticRegistry(),
	}
	m.alone.MustRegister(m)
	return m
}

// sessionCalls are the events of a session's own methods, which aren't tools.
var sessionCalls = []string{"run", "start", "import", "export", "clone", "diff", "apply", "undo", "snapshot_remove", "template", "save", "reset", "secret"}

// toolNames returns all valid labels of a call, so that a caller's invented names don't create
// series.
func toolNames() map[string]bool {
	known := map[string]bool{}
	for _, name := range sessionCalls {
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
	m.calls.WithLabelValues(tool, e.Outcome).Inc()
	m.seconds.WithLabelValues(tool).Observe(e.Duration.Seconds())
	m.bytes.WithLabelValues(tool, "in").Add(float64(e.ArgsSize))
	m.bytes.WithLabelValues(tool, "out").Add(float64(e.ResultSize))
	if e.Verdict != "" {
		m.programs.WithLabelValues(e.Verdict).Inc()
	}
}

// Ended implements wisbox.Meter.
func (m *Metrics) Ended(verdict string) { m.programs.WithLabelValues(verdict).Inc() }

// Gather implements prometheus.Gatherer.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) { return m.alone.Gather() }

// Report implements wisbox.Reporter: the text that Prometheus reads.
func (m *Metrics) Report(w io.Writer) error { return Write(w, m) }

// Watch adds the manager's sessions and pool.
func (m *Metrics) Watch(stats func() wisbox.Stats) { m.stats.Store(&stats) }

// now is one present value of a Manager.
type now struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(wisbox.Stats) float64
}

func newNow(name, help string, kind prometheus.ValueType, read func(wisbox.Stats) float64) now {
	return now{prometheus.NewDesc("wisbox_"+name, help, nil, nil), kind, read}
}

var told = []now{
	newNow("sessions", "Sessions that are open.", prometheus.GaugeValue, func(s wisbox.Stats) float64 { return float64(s.Sessions) }),
	newNow("sessions_opened_total", "Sessions that were opened or attached.", prometheus.CounterValue, func(s wisbox.Stats) float64 { return float64(s.Opened) }),
	newNow("pool_ready", "Containers of the pool that are ready.", prometheus.GaugeValue, func(s wisbox.Stats) float64 { return float64(s.Pool.Ready) }),
	newNow("pool_making", "Containers of the pool that are being made.", prometheus.GaugeValue, func(s wisbox.Stats) float64 { return float64(s.Pool.Making) }),
	newNow("pool_taken_total", "Sessions that found a ready container.", prometheus.CounterValue, func(s wisbox.Stats) float64 { return float64(s.Pool.Taken) }),
	newNow("pool_missed_total", "Sessions that found the pool empty.", prometheus.CounterValue, func(s wisbox.Stats) float64 { return float64(s.Pool.Missed) }),
}

func (m *Metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.programs, m.bytes, m.seconds}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, v := range m.vectors() {
		v.Describe(to)
	}
	for _, n := range told {
		to <- n.desc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(to)
	}
	stats := m.stats.Load()
	if stats == nil {
		return
	}
	s := (*stats)()
	for _, n := range told {
		to <- prometheus.MustNewConstMetric(n.desc, n.kind, n.read(s))
	}
}

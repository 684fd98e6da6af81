package serve

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wisbox/wisbox/internal/audit"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/serve/e2b"
)

// auditFile is the log of uses of keys, in the server's directory: JSON lines, each with the hash
// of the previous line, in at most four files of 8 MiB.
const auditFile = "audit.jsonl"

// use is a line of that log.
type use struct {
	Time    time.Time `json:"time"`
	Request string    `json:"request"`
	Key     string    `json:"key"`
	Route   string    `json:"route"`
	Sandbox string    `json:"sandbox,omitempty"` // its alias in the server's log
	Status  int       `json:"status"`
}

// observer counts requests, and logs those with a key.
type observer struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	boxes    *prometheus.Desc
	memory   *prometheus.Desc
	registry *registry.Registry
	log      *slog.Logger
	root     *os.Root

	mu    sync.Mutex
	audit *audit.Log
}

func newObserver(dir string, log *slog.Logger) (*observer, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	uses, err := audit.Open(root, auditFile, nil)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &observer{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "wisbox", Subsystem: "serve", Name: "requests_total", Help: "Requests by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "wisbox", Subsystem: "serve", Name: "request_duration_seconds", Help: "Duration of requests by route; streams last as long as their programs.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120},
		}, []string{"route"}),
		boxes:  prometheus.NewDesc("wisbox_serve_sandboxes", "Sandboxes by state; ready are those that nobody has taken yet.", []string{"state"}, nil),
		memory: prometheus.NewDesc("wisbox_serve_memory_bytes", "Memory of all sandboxes when they were last looked at.", nil, nil),
		log:    log, root: root, audit: uses,
	}, nil
}

// observe is [e2b.Options.Observe].
func (o *observer) observe(r e2b.Request) {
	o.requests.WithLabelValues(r.Route, strconv.Itoa(r.Status)).Inc()
	o.seconds.WithLabelValues(r.Route).Observe(r.Took.Seconds())
	if r.Key == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.audit.Append(use{r.Time, r.ID, r.Key, r.Route, r.Sandbox, r.Status}); err != nil {
		o.log.Error("note the use of a key", "error", err)
	}
}

// Describe implements [prometheus.Collector].
func (o *observer) Describe(to chan<- *prometheus.Desc) {
	o.requests.Describe(to)
	o.seconds.Describe(to)
	to <- o.boxes
	to <- o.memory
}

// Collect implements [prometheus.Collector].
func (o *observer) Collect(to chan<- prometheus.Metric) {
	o.requests.Collect(to)
	o.seconds.Collect(to)
	states, memory := map[registry.State]int{registry.Running: 0, registry.Paused: 0}, int64(0)
	for _, s := range o.registry.All() {
		states[s.Record().State]++
		if now, ok := s.Now(); ok && s.IsRunning() {
			memory += now.Memory
		}
	}
	for _, state := range []registry.State{registry.Running, registry.Paused} {
		to <- prometheus.MustNewConstMetric(o.boxes, prometheus.GaugeValue, float64(states[state]), string(state))
	}
	to <- prometheus.MustNewConstMetric(o.boxes, prometheus.GaugeValue, float64(o.registry.ReadyNow()), "ready")
	to <- prometheus.MustNewConstMetric(o.memory, prometheus.GaugeValue, float64(memory))
}

// writer writes the server's numbers, and those of others, for Prometheus.
func (o *observer) writer(others prometheus.Gatherer) (func(io.Writer) error, error) {
	own := prometheus.NewPedanticRegistry()
	if err := own.Register(o); err != nil {
		return nil, err
	}
	all := prometheus.Gatherers{own}
	if others != nil {
		all = append(all, others)
	}
	return func(w io.Writer) error { return metrics.Write(w, all) }, nil
}

func (o *observer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Join(o.audit.Close(), o.root.Close())
}

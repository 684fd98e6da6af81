package serve

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/audit"
	"github.com/wisbox/wisbox/internal/exposition"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/serve/e2b"
)

// auditFile is the log of changes that keys made, and readsFile that of other uses: requests that only read, and those that
// were refused. So a key can't push its changes out by reading, nor, as equal uses are folded, by changing nothing again and again. Both are in the server's directory: JSON lines, each with the hash of the
// previous line, in at most four files of 8 MiB.
const (
	auditFile = "audit.jsonl"
	readsFile = "audit-reads.jsonl"
)

// use is a line of that log.
type use struct {
	Time    time.Time `json:"time"`
	Request string    `json:"request"`
	Key     string    `json:"key"`
	Route   string    `json:"route"`
	Sandbox string    `json:"sandbox,omitempty"` // its alias in the server's log
	Status  int       `json:"status"`
	Times   int       `json:"times,omitempty"` // the last of so many equal ones, see folded
}

// observer counts requests, and logs those with a key.
type observer struct {
	requests *exposition.Vector
	seconds  *exposition.Vector
	registry *registry.Registry
	log      *slog.Logger
	root     *os.Root
	now      func() time.Time

	mu      sync.Mutex
	changes folded
	reads   folded
}

func newObserver(dir string, log *slog.Logger) (*observer, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	changes, err := audit.Open(root, auditFile, nil)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	reads, err := audit.Open(root, readsFile, nil)
	if err != nil {
		return nil, errors.Join(err, changes.Close(), root.Close())
	}
	return &observer{
		requests: exposition.NewCounter("wisbox_serve_requests_total", "Requests by route and status.", "route", "status"),
		seconds: exposition.NewHistogram("wisbox_serve_request_duration_seconds", "Duration of requests by route; streams last as long as their programs.",
			[]float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 120}, "route"),
		log: log, root: root, now: time.Now, changes: folded{log: changes}, reads: folded{log: reads},
	}, nil
}

// observe is [e2b.Options.Observe].
func (o *observer) observe(r e2b.Request) {
	o.requests.Add(1, r.Route, strconv.Itoa(r.Status))
	o.seconds.Add(r.Took.Seconds(), r.Route)
	if r.Key == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	u := use{Time: r.Time, Request: r.ID, Key: r.Key, Route: r.Route, Sandbox: r.Sandbox, Status: r.Status}
	reads, refused := r.Method == http.MethodGet || r.Method == http.MethodHead, r.Status >= http.StatusBadRequest
	log := &o.changes
	if reads || refused {
		log = &o.reads
	}
	if err := log.note(u, o.now()); err != nil {
		o.log.Error("note the use of a key", "error", err)
	}
}

const (
	foldTime = time.Minute
	maxFolds = 10_000
)

// folded is a log in which equal uses are one line: the first of a minute is written at once, and those that follow as
// one when the minute is over and the next use comes, or the log is closed.
type folded struct {
	log   *audit.Log
	since time.Time // begin of the minute
	more  map[use]use
}

// note notes a use that has just ended: it may have begun long ago.
func (f *folded) note(u use, now time.Time) error {
	if f.more == nil || len(f.more) >= maxFolds || now.Sub(f.since) >= foldTime {
		if err := f.flush(); err != nil {
			return err
		}
		f.since, f.more = now, map[use]use{}
	}
	same := u
	same.Time, same.Request = time.Time{}, ""
	last, known := f.more[same]
	u.Times = last.Times
	if known {
		u.Times++
	}
	f.more[same] = u
	if known {
		return nil
	}
	return f.log.Append(u)
}

// flush writes what is not yet written.
func (f *folded) flush() error {
	var errs []error
	for _, u := range slices.SortedFunc(maps.Values(f.more), func(a, b use) int { return a.Time.Compare(b.Time) }) {
		if u.Times > 0 {
			errs = append(errs, f.log.Append(u))
		}
	}
	f.more = nil
	return errors.Join(errs...)
}

// Gather implements [metrics.Gatherer].
func (o *observer) Gather() ([]metrics.Family, error) {
	states, memory := map[string]int{string(registry.Running): 0, string(registry.Paused): 0, "ready": o.registry.ReadyNow()}, int64(0)
	for _, s := range o.registry.All() {
		states[string(s.Record().State)]++
		if now, ok := s.Now(); ok && s.IsRunning() {
			memory += now.Memory
		}
	}
	boxes := metrics.Family{Name: "wisbox_serve_sandboxes", Help: "Sandboxes by state; ready are those that nobody has taken yet.", Type: exposition.Gauge}
	for _, state := range []string{string(registry.Paused), "ready", string(registry.Running)} {
		boxes.Samples = append(boxes.Samples, exposition.Sample{Labels: []exposition.Label{{Name: "state", Value: state}}, Value: float64(states[state])})
	}
	return []metrics.Family{
		o.requests.Family(), o.seconds.Family(), boxes,
		exposition.Single("wisbox_serve_memory_bytes", "Memory of all sandboxes when they were last looked at.", exposition.Gauge, float64(memory)),
	}, nil
}

// writer writes the server's numbers, and those of others, for Prometheus.
func (o *observer) writer(others metrics.Gatherer) func(io.Writer) error {
	return func(w io.Writer) error {
		all, err := o.Gather()
		if err != nil {
			return err
		}
		if others != nil {
			more, err := others.Gather()
			if err != nil {
				return err
			}
			all = append(all, more...)
		}
		return exposition.Write(w, exposition.Merge(all))
	}
}

func (o *observer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Join(o.reads.flush(), o.reads.log.Close(), o.changes.flush(), o.changes.log.Close(), o.root.Close())
}

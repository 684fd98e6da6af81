package e2b

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/registry"
)

// sampleAnswer is the usage of a sandbox at a moment, in bytes. The memory that the kernel could
// reclaim isn't known separately.
type sampleAnswer struct {
	Timestamp     string  `json:"timestamp"`
	TimestampUnix int64   `json:"timestampUnix"`
	CPUCount      int     `json:"cpuCount"`
	CPUUsedPct    float64 `json:"cpuUsedPct"`
	MemUsed       int64   `json:"memUsed"`
	MemTotal      int64   `json:"memTotal"`
	MemCache      int64   `json:"memCache"`
	DiskUsed      int64   `json:"diskUsed"`
	DiskTotal     int64   `json:"diskTotal"`
}

func (s *Server) sampled(one registry.Sample) sampleAnswer {
	return sampleAnswer{
		Timestamp: one.Time.Format(milliseconds), TimestampUnix: one.Time.Unix(), CPUCount: s.opts.Size.cpuCount(), CPUUsedPct: one.CPUPct,
		MemUsed: one.Memory, MemTotal: s.opts.Size.MemoryMB << 20, DiskUsed: one.Disk, DiskTotal: s.opts.Size.DiskMB << 20,
	}
}

// metrics returns the samples of a sandbox, of the last hour at most.
func (s *Server) metrics(c call, sandbox *registry.Sandbox) (int, any, error) {
	from, err := moment(c, "start", 0)
	if err != nil {
		return 0, nil, err
	}
	to, err := moment(c, "end", maxMoment)
	if err != nil {
		return 0, nil, err
	}
	if to < from {
		return 0, nil, fail(http.StatusBadRequest, "start must not be after end")
	}
	sandbox.Look(c.r.Context())
	all := []sampleAnswer{}
	for _, one := range sandbox.Samples(time.Unix(from, 0), time.Unix(to+1, -1)) { // of the whole last second
		all = append(all, s.sampled(one))
	}
	return http.StatusOK, all, nil
}

const maxMoment = 1 << 40 // seconds since 1970

func moment(c call, name string, def int64) (int64, error) {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxMoment {
		return 0, fail(http.StatusBadRequest, name+" must be a time in whole seconds since 1970")
	}
	return n, nil
}

// latestMetrics returns the latest samples of the sandboxes in the query, without those of other
// owners.
func (s *Server) latestMetrics(c call) (int, any, error) {
	ids := strings.Split(strings.Join(c.r.URL.Query()["sandbox_ids"], ","), ",")
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if len(ids) == 0 || len(ids) > maxPage {
		return 0, nil, fail(http.StatusBadRequest, fmt.Sprintf("sandbox_ids must be 1 to %d IDs with commas between them", maxPage))
	}
	all := map[string]sampleAnswer{}
	for _, id := range ids {
		sandbox, ok := s.opts.Registry.Find(id)
		if !ok || sandbox.Record().Owner != c.key.Owner {
			continue
		}
		sandbox.Look(c.r.Context())
		if one, ok := sandbox.Now(); ok {
			all[id] = s.sampled(one)
		}
	}
	return http.StatusOK, map[string]any{"sandboxes": all}, nil
}

// ownMetrics returns the server's metrics, for Prometheus.
func (s *Server) ownMetrics(c call) (int, any, error) {
	switch {
	case s.opts.Metrics == nil:
		return s.unknownPath(c)
	case s.opts.Keys != nil && !c.key.Metrics:
		return 0, nil, fail(http.StatusForbidden, "this key may not read the server's metrics; use one from `wisbox serve key create --metrics`")
	}
	var text strings.Builder
	if err := s.opts.Metrics(&text); err != nil {
		return 0, nil, err
	}
	c.w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = c.w.Write([]byte(text.String()))
	return 0, nil, nil
}

package podman

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.Gauger = (*Sandbox)(nil)

// Gauge asks Podman, which reads the container's group. A rootless service on cgroup v1 has
// none to read.
func (s *Sandbox) Gauge(ctx context.Context) (sandbox.Gauge, error) {
	var report struct {
		Stats []define.ContainerStats
	}
	err := s.b.do(ctx, request{
		method: http.MethodGet, path: "/containers/stats", out: &report,
		query: url.Values{"containers": {s.name}, "stream": {"false"}},
	})
	if err != nil || len(report.Stats) != 1 {
		return sandbox.Gauge{}, fail(sandbox.ErrUnsupported, err, "what the container takes isn't counted here")
	}
	now := report.Stats[0]
	return sandbox.Gauge{CPU: time.Duration(now.CPUNano), Memory: int64(now.MemUsage), Processes: int64(now.PIDs)}, nil
}

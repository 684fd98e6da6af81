package collector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/metrics/collector"
)

// What Prometheus's own library writes is what we write, so both are valid for it.
func TestACollectorHasWhatWriteWrites(t *testing.T) {
	m := metrics.New()
	m.Call(wisbox.Event{Tool: "read_file", Outcome: "ok", ArgsSize: 12, ResultSize: 3_000_000, Duration: 20 * time.Millisecond})
	m.Call(wisbox.Event{Tool: "shell_execute", Outcome: "failed", Verdict: "timed_out", Duration: 3 * time.Minute})
	m.Watch(func() wisbox.Stats { return wisbox.Stats{Sessions: 2} })
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector.New(m)))
	families, err := registry.Gather()
	require.NoError(t, err)
	var theirs, ours strings.Builder
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&theirs, f)
		require.NoError(t, err)
	}
	require.NoError(t, metrics.Write(&ours, m))
	require.Equal(t, theirs.String(), ours.String())
	require.Contains(t, ours.String(), `wisbox_call_duration_seconds_bucket{tool="shell_execute",le="120"} 0`)
}

func ExampleNew() {
	m := metrics.New()
	m.Call(wisbox.Event{Tool: "ls", Outcome: "ok"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector.New(m))
	families, err := registry.Gather()
	fmt.Println(families[2].GetName(), err)
	// Output: wisbox_calls_total <nil>
}

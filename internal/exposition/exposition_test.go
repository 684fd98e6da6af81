package exposition_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/exposition"
)

func TestTheTextIsPrometheuss(t *testing.T) {
	calls := exposition.NewCounter("calls_total", "Calls\nby tool.", "outcome", "tool")
	calls.Add(1, "ok", `a"b\`)
	calls.Add(2, "ok", `a"b\`)
	took := exposition.NewHistogram("took_seconds", "Time.", []float64{.1, 1})
	for _, x := range []float64{.1, .5, 7} { // a bound belongs to its bucket
		took.Add(x)
	}
	session := exposition.Label{Name: "session", Value: "s"}
	var b strings.Builder
	require.NoError(t, exposition.Write(&b, exposition.Merge([]exposition.Family{
		took.Family(), calls.Family().With(session), calls.Family().With(exposition.Label{Name: "session", Value: "z"}),
		{Name: "empty", Type: exposition.Gauge},
	})))
	require.Equal(t, `# HELP calls_total Calls\nby tool.
# TYPE calls_total counter
calls_total{outcome="ok",session="s",tool="a\"b\\"} 3
calls_total{outcome="ok",session="z",tool="a\"b\\"} 3
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{le="0.1"} 1
took_seconds_bucket{le="1"} 2
took_seconds_bucket{le="+Inf"} 3
took_seconds_sum 7.6
took_seconds_count 3
`, b.String())
}

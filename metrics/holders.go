package metrics

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/wisbox/wisbox"
)

// Holders are the metrics of the holders of a state root's kept sessions, each with the label
// session, so that the end of a holder removes only its own counts; sum over the label for totals.
// wisbox_holder_up is 1 for each holder, and 0 for one that doesn't answer within 2 s.
type Holders struct{ of *wisbox.Manager }

var _ prometheus.Gatherer = Holders{}

// NewHolders returns the metrics of the holders of m's state root. Each Gather asks the holders
// again.
func NewHolders(m *wisbox.Manager) Holders { return Holders{m} }

// Gather implements prometheus.Gatherer.
func (h Holders) Gather() ([]*dto.MetricFamily, error) {
	reports, err := h.of.HolderReports(context.Background())
	if err != nil {
		return nil, err
	}
	all := map[string]*dto.MetricFamily{}
	for _, r := range reports {
		families, up := read(r)
		for _, f := range append(families, up) {
			add(all, f, r.Session)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) }), nil
}

// read parses a holder's report, and reports whether there was one.
func read(r wisbox.HolderReport) (families []*dto.MetricFamily, up *dto.MetricFamily) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(bytes.NewReader(r.Report))
	answered := 1.0
	if err != nil || r.Err != nil {
		found, answered = nil, 0
	}
	name, help, kind := "wisbox_holder_up", "Whether the process that holds the session answers.", dto.MetricType_GAUGE
	up = &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &answered}}}}
	return slices.Collect(maps.Values(found)), up
}

// add adds a session's family to those of the others.
func add(all map[string]*dto.MetricFamily, f *dto.MetricFamily, session string) {
	name := "session"
	for _, m := range f.Metric {
		m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &session})
		slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	}
	if known := all[f.GetName()]; known != nil {
		known.Metric = append(known.Metric, f.Metric...)
		return
	}
	all[f.GetName()] = f
}

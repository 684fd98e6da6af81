// Package collector registers wisbox's metrics with Prometheus's client library:
//
//	prometheus.MustRegister(collector.New(m))
package collector

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wisbox/wisbox/internal/exposition"
	"github.com/wisbox/wisbox/metrics"
)

// New returns a collector of the values that from gathers at each scrape. It describes nothing in
// advance, so a registry takes it as unchecked.
func New(from metrics.Gatherer) prometheus.Collector { return collector{from} }

type collector struct{ from metrics.Gatherer }

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) {
	families, err := c.from.Gather()
	if err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	for _, f := range families {
		for _, s := range f.Samples {
			labels := prometheus.Labels{}
			for _, l := range s.Labels {
				labels[l.Name] = l.Value
			}
			to <- metric(prometheus.NewDesc(f.Name, f.Help, nil, labels), f.Type, s)
		}
	}
}

func metric(desc *prometheus.Desc, kind string, s exposition.Sample) prometheus.Metric {
	switch kind {
	case exposition.Histogram:
		total, buckets := uint64(0), map[float64]uint64{}
		for _, b := range s.Buckets {
			bound, err := strconv.ParseFloat(b.Bound, 64)
			if err != nil {
				return prometheus.NewInvalidMetric(desc, err)
			}
			if total = b.Count; !math.IsInf(bound, 1) {
				buckets[bound] = b.Count
			}
		}
		return prometheus.MustNewConstHistogram(desc, total, s.Value, buckets)
	case exposition.Gauge:
		return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Value)
	}
	return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, s.Value)
}

// Package exposition counts, and writes the counts in the text format that Prometheus reads
// (https://prometheus.io/docs/instrumenting/exposition_formats/). Prometheus's own client would cost every
// build of the command 11 s of processor time and 3 MB (ADR 0053).
package exposition

import (
	"bufio"
	"cmp"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The types of families.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// Family is one metric with all its samples. Its JSON is what a session's holder reports.
type Family struct {
	Name    string   `json:"name"`
	Help    string   `json:"help"`
	Type    string   `json:"type"`
	Samples []Sample `json:"samples"`
}

// Sample is the value of a family for some labels.
type Sample struct {
	Labels []Label `json:"labels,omitempty"` // sorted by name
	Value  float64 `json:"value"`            // of a histogram, the sum
	// Buckets are those of a histogram, by rising bound; the last one has all observations.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// Label is one dimension of a sample.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Bucket counts the observations up to a bound.
type Bucket struct {
	Bound string `json:"bound"` // "+Inf" for all
	Count uint64 `json:"count"`
}

// Single returns a family of one sample without labels.
func Single(name, help, kind string, value float64) Family {
	return Family{Name: name, Help: help, Type: kind, Samples: []Sample{{Value: value}}}
}

// Vector is a counter or a histogram with labels. Its methods may be called from many goroutines at once.
type Vector struct {
	name, help string
	labels     []string // sorted
	bounds     []float64

	mu     sync.Mutex
	series map[string]*series
}

type series struct {
	values []string
	sum    float64
	counts []uint64 // by bound, not cumulative; the last one is of what is over all bounds
}

// NewCounter returns a counter. Its labels must be sorted.
func NewCounter(name, help string, labels ...string) *Vector {
	return &Vector{name: name, help: help, labels: labels, series: map[string]*series{}}
}

// NewHistogram returns a histogram with buckets up to those rising bounds. Its labels must be sorted.
func NewHistogram(name, help string, bounds []float64, labels ...string) *Vector {
	v := NewCounter(name, help, labels...)
	v.bounds = bounds
	return v
}

// Add adds to a counter, or observes a value of a histogram. values are those of the labels.
func (v *Vector) Add(value float64, values ...string) {
	key := strings.Join(values, "\x00")
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.series[key]
	if s == nil {
		s = &series{values: slices.Clone(values), counts: make([]uint64, len(v.bounds)+1)}
		v.series[key] = s
	}
	s.sum += value
	at, _ := slices.BinarySearch(v.bounds, value)
	s.counts[at]++
}

// Family returns the present values.
func (v *Vector) Family() Family {
	f := Family{Name: v.name, Help: v.help, Type: Counter}
	if v.bounds != nil {
		f.Type = Histogram
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.series {
		sample := Sample{Value: s.sum}
		for i, value := range s.values {
			sample.Labels = append(sample.Labels, Label{v.labels[i], value})
		}
		total := uint64(0)
		for i, bound := range v.bounds {
			total += s.counts[i]
			sample.Buckets = append(sample.Buckets, Bucket{number(bound), total})
		}
		if v.bounds != nil {
			sample.Buckets = append(sample.Buckets, Bucket{"+Inf", total + s.counts[len(v.bounds)]})
		}
		f.Samples = append(f.Samples, sample)
	}
	slices.SortFunc(f.Samples, func(a, b Sample) int { return slices.CompareFunc(a.Labels, b.Labels, compare) })
	return f
}

func compare(a, b Label) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
}

// With returns the family with one more label in all samples.
func (f Family) With(label Label) Family {
	f.Samples = slices.Clone(f.Samples)
	for i, s := range f.Samples {
		labels := append(slices.Clone(s.Labels), label)
		slices.SortFunc(labels, compare)
		f.Samples[i].Labels = labels
	}
	return f
}

// Merge returns the families by name, those of one name as one.
func Merge(all []Family) []Family {
	var out []Family
	slices.SortStableFunc(all, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range all {
		if last := len(out) - 1; last >= 0 && out[last].Name == f.Name {
			out[last].Samples = slices.Concat(out[last].Samples, f.Samples)
			continue
		}
		out = append(out, f)
	}
	return out
}

var (
	inHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	inLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// Write writes the families that have samples. Each name must occur once.
func Write(w io.Writer, families []Family) error {
	out := bufio.NewWriter(w)
	for _, f := range families {
		if len(f.Samples) == 0 {
			continue
		}
		_, _ = out.WriteString("# HELP " + f.Name + " " + inHelp.Replace(f.Help) + "\n# TYPE " + f.Name + " " + f.Type + "\n")
		for _, s := range f.Samples {
			if f.Type != Histogram {
				line(out, f.Name, s.Labels, "", number(s.Value))
				continue
			}
			for _, b := range s.Buckets {
				line(out, f.Name+"_bucket", s.Labels, b.Bound, strconv.FormatUint(b.Count, 10))
			}
			line(out, f.Name+"_sum", s.Labels, "", number(s.Value))
			line(out, f.Name+"_count", s.Labels, "", strconv.FormatUint(s.Buckets[len(s.Buckets)-1].Count, 10))
		}
	}
	return out.Flush()
}

func line(out *bufio.Writer, name string, labels []Label, bound, value string) {
	if bound != "" {
		labels = append(slices.Clip(labels), Label{"le", bound})
	}
	_, _ = out.WriteString(name)
	for i, l := range labels {
		_ = out.WriteByte("{,"[min(i, 1)])
		_, _ = out.WriteString(l.Name + `="` + inLabel.Replace(l.Value) + `"`)
	}
	if len(labels) > 0 {
		_ = out.WriteByte('}')
	}
	_, _ = out.WriteString(" " + value + "\n")
}

func number(x float64) string {
	if math.IsInf(x, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

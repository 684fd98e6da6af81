// Package timing measures calls made in turn and returns the median.
package timing

import (
	"slices"
	"time"
)

// Samples are measured durations, in any order.
type Samples []time.Duration

// At returns the q-quantile, with q from 0 to 1; 0 if there are no samples.
func (s Samples) At(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Median returns the median.
func (s Samples) Median() time.Duration { return s.At(0.5) }

// Alternate measures several functions n times each, in turn, so that a noisy moment affects all,
// after warm rounds that don't count. It stops at the first error.
func Alternate(warm, n int, do ...func() error) ([]Samples, error) {
	out := make([]Samples, len(do))
	for round := range warm + n {
		for i, one := range do {
			began := time.Now()
			if err := one(); err != nil {
				return nil, err
			}
			if round >= warm {
				out[i] = append(out[i], time.Since(began))
			}
		}
	}
	return out, nil
}

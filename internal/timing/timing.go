// Package timing times calls in turn and says what is in the middle of the times.
package timing

import (
	"slices"
	"time"
)

// Samples are times of one thing, in any order.
type Samples []time.Duration

// At is the time that the part q of all, from 0 to 1, doesn't exceed; 0 without any.
func (s Samples) At(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Median is the time in the middle.
func (s Samples) Median() time.Duration { return s.At(0.5) }

// Alternate times several things n times each, in turn, so that a noisy moment hits all,
// after warm rounds that don't count. The first error ends it.
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

package main

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// timeFlag is a flag whose value is a time: a number is seconds, and else it has its unit.
type timeFlag struct{ of *time.Duration }

// String implements pflag.Value. Zero is "", which help doesn't show as a default.
func (f timeFlag) String() string {
	if f.of == nil || *f.of == 0 {
		return ""
	}
	return f.of.String()
}

// Set implements pflag.Value.
func (f timeFlag) Set(text string) (err error) {
	*f.of, err = parseTime(text)
	return err
}

// Type implements pflag.Value.
func (timeFlag) Type() string { return "time" }

func parseTime(text string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.ParseDuration(text)
	}
	if math.IsNaN(seconds) || math.Abs(seconds) >= math.MaxInt64/float64(time.Second) {
		return 0, fmt.Errorf("%q is no time", text)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

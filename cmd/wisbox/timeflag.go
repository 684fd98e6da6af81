package main

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// timeFlag is a flag for a duration: a number of seconds, or a number with a unit.
type timeFlag struct{ of *time.Duration }

// String implements pflag.Value. Zero is "", so that help shows no default.
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
		return 0, fmt.Errorf("%q is not a time", text)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

package main

import (
	"fmt"
	"math"
	"strconv"

	units "github.com/docker/go-units"
)

// sizeFlag is a flag whose value is a number of bytes, such as 512m; 0 if it isn't given.
type sizeFlag struct{ of *int64 }

// String implements pflag.Value: the size as people write it. Zero is "", so that help shows no default.
func (f sizeFlag) String() string {
	if f.of == nil || *f.of == 0 {
		return ""
	}
	n, unit := *f.of, ""
	for _, next := range []string{"k", "m", "g"} {
		if n%1024 != 0 {
			break
		}
		n, unit = n/1024, next
	}
	return strconv.FormatInt(n, 10) + unit
}

// Set implements pflag.Value.
func (f sizeFlag) Set(text string) (err error) {
	*f.of, err = parseSize(text)
	return err
}

// Type implements pflag.Value.
func (sizeFlag) Type() string { return "size" }

func parseSize(text string) (int64, error) {
	n, err := units.RAMInBytes(text)
	if err != nil || n <= 0 || n == math.MaxInt64 { // larger values become MaxInt64
		return 0, fmt.Errorf("%q is not a size", text)
	}
	return n, nil
}

package far

import "io"

const MaxPings = maxPings

// Frames reads the frames of a client.
func Frames(in io.Reader) io.Reader { return &frames{in: in} }

// Package capture keeps the useful part of a program's output, in memory that
// doesn't grow with it: a [Stream] keeps the head and tail of one stream and spills
// the rest to a file; a [Ring] keeps the newest bytes of a long-running program.
//
// It is the host's side of the bound. The sandbox already discards output beyond the
// spill limit, as [Options.Source] asks for.
package capture

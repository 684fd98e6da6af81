// Package capture keeps what is worth keeping of a program's output, in memory
// that doesn't grow with it: a [Stream] keeps head and tail of one stream and
// spills the rest to a file, a [Ring] keeps the newest bytes of a program that
// goes on.
//
// It is the host's side of the bound. What a program writes beyond the spill
// limit is thrown away in the sandbox already, as [Options.Source] asks for.
package capture

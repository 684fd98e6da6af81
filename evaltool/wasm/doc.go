// Package wasm evaluates Python without a container: CPython 3.12, compiled to
// WebAssembly, runs in this process, in pure Go. It is the engine of evaluate_python's sandbox wasm ([Engine.Evaluate])
// and of the operation eval over large texts ([Engine.Eval]).
//
// The code sees a private file system in memory, no environment, no network, no
// programs, and by default a clock and random numbers that are the same on every run. The host bounds time, fuel,
// memory and output.
//
// A unit of fuel is one function entry or one iteration of a loop in the interpreter's own machine code. The count is
// exact and the same for the same code and inputs; a simple bytecode instruction takes a few units, and about 80
// million units take a second on the machine of the calibration. The start isn't counted. A call of a host function
// costs a hundred units, more if it opens a file, and one unit for each 16 bytes that it moves. The price is charged
// before the work.
//
// A module is compiled once and kept in a cache directory, as is the memory of an
// interpreter that has started and imported the common modules: every evaluation
// starts from that memory, mapped copy-on-write, and ends with its instance.
package wasm

// Package wasm evaluates Python where no container is: CPython 3.12, compiled to
// WebAssembly, in this process and in pure Go. It is the engine of the sandbox
// wasm of evaluate_python ([Engine.Evaluate]) and of the operation eval over
// large texts ([Engine.Eval]).
//
// The code sees a private file system in memory, no environment, no network, no
// programs, and by default a clock and random numbers that are the same on every
// run. Time, fuel, memory and output are bounded from outside.
//
// A unit of fuel is one function entry or one turn of a loop in the interpreter's
// own machine code. The count is exact and the same for the same code and inputs;
// a simple bytecode instruction takes a few units, and some 80 million units pass
// in a second on the machine it was calibrated on. Starting up is not counted.
// A call of a host function costs a hundred units, an open file more, and what it moves
// one unit for each 16 bytes, before the work is done.
//
// A module is compiled once and kept in a cache directory, as is the memory of an
// interpreter that has started and imported the common modules: every evaluation
// begins from that memory, mapped copy-on-write, and ends with its instance.
package wasm

package sandbox

// Numbered is a [Process] that knows its program's process number.
type Numbered interface {
	// PID is the number under which programs of the sandbox see the program; 0 where
	// it isn't known. It may be reused after the program's end.
	PID() int
}

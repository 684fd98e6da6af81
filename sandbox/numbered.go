package sandbox

// Numbered is a [Process] that knows its program's process ID.
type Numbered interface {
	// PID returns the program's process ID inside the sandbox, or 0 if it isn't known. The
	// number may be reused after the program's end.
	PID() int
}

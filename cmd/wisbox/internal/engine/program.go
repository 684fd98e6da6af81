package engine

import "os"

// variable has the path of the front, for the engine that it continues as.
const variable = "WISBOX_PROGRAM"

var front string

// Arrive takes over from a front, if there was one. The engine calls it first: no program that it starts may find the
// variable.
func Arrive() {
	front = os.Getenv(variable)
	_ = os.Unsetenv(variable)
	if front != "" {
		setName("wisbox")
	}
}

// Program returns the path by which other processes start wisbox: the front's, or this program's if it has none.
func Program() (string, error) {
	if front != "" {
		return front, nil
	}
	return os.Executable()
}

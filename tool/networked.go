package tool

// Networked is the value of a [Result] of a tool that runs programs: it can say which
// of their connections were refused meanwhile.
type Networked interface {
	// WithDenied gives a copy that says so, and its text.
	WithDenied(denied []string) (value any, text string)
}

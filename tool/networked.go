package tool

// Networked is the value of a [Result] of a tool that runs programs. It can include the
// connections of theirs that were refused.
type Networked interface {
	// WithDenied returns a copy with the refused connections, and its text.
	WithDenied(denied []string) (value any, text string)
}

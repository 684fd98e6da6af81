package beside

import (
	"fmt"

	"github.com/wisbox/wisbox/sandbox"
)

// failure is an error with a text for agents and a cause for logs.
type failure struct {
	kind, cause error
	text        string
}

func (f *failure) Error() string { return f.kind.Error() + ": " + f.text }

// Unwrap returns both errors for errors.Is.
func (f *failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

// unavailable returns [sandbox.ErrUnavailable] with a message.
func unavailable(cause error, format string, args ...any) error {
	return &failure{sandbox.ErrUnavailable, cause, fmt.Sprintf(format, args...)}
}

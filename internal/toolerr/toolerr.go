// Package toolerr gives the errors of package sandbox their kinds among the tools'.
package toolerr

import (
	"errors"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// kinds says for each error of package sandbox what it is to a tool's caller, and
// what that caller can do where the text is for those who hold the sandbox.
var kinds = []struct {
	is   error
	kind tool.Kind
	then string
}{
	{sandbox.ErrInvalid, tool.Invalid, ""},
	{sandbox.ErrUnsupported, tool.Unsupported, ""},
	{sandbox.ErrExists, tool.Busy, ""},
	{sandbox.ErrUnavailable, tool.Unavailable, ""},
	{sandbox.ErrNotFound, tool.Unavailable, ""}, // the container: not_found is for what a caller names
	{sandbox.ErrLost, tool.Unavailable, "; the files are there: call again, and the session makes the sandbox anew"},
}

// Of turns an error that has to do with a sandbox into a [*tool.Error]: one in its
// chain, one of the sentinel's kind whose text is kept, or what [tool.AsError] makes
// of it. It is nil for nil.
func Of(err error) error {
	if err == nil {
		return nil
	}
	if known := (*tool.Error)(nil); errors.As(err, &known) {
		return known
	}
	for _, k := range kinds {
		if errors.Is(err, k.is) { // the kind says already what the sentinel does
			return tool.Errorf(k.kind, "%s%s", strings.TrimPrefix(err.Error(), k.is.Error()+": "), k.then).Because(err)
		}
	}
	return tool.AsError(err)
}

// Package toolerr converts errors of package sandbox to errors of tools.
package toolerr

import (
	"errors"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// kinds has, for each error of package sandbox, the kind of the tool's error, and a text for the
// tool's caller if the original is meant for the sandbox's owner.
var kinds = []struct {
	is   error
	kind tool.Kind
	then string
}{
	{sandbox.ErrInvalid, tool.Invalid, ""},
	{sandbox.ErrUnsupported, tool.Unsupported, ""},
	{sandbox.ErrExists, tool.Busy, ""},
	{sandbox.ErrUnavailable, tool.Unavailable, ""},
	{sandbox.ErrNotFound, tool.Unavailable, ""}, // the container, since not_found is for names that a caller gives
	{sandbox.ErrLost, tool.Unavailable, "; the files are there: call again, and the session makes the sandbox again"},
}

// Of converts an error about a sandbox to a [*tool.Error]: one in its chain, one of the sentinel's
// kind with the same text, or the result of [tool.AsError]. It returns nil for nil.
func Of(err error) error {
	if err == nil {
		return nil
	}
	if known := (*tool.Error)(nil); errors.As(err, &known) {
		return known
	}
	for _, k := range kinds {
		if errors.Is(err, k.is) { // the kind already says the same as the sentinel
			return tool.Errorf(k.kind, "%s%s", strings.TrimPrefix(err.Error(), k.is.Error()+": "), k.then).Because(err)
		}
	}
	return tool.AsError(err)
}

package interp

import (
	"errors"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// ToolError says in the tools' words why the sandbox did not run the code.
func ToolError(err error) error {
	if known := (*tool.Error)(nil); errors.As(err, &known) {
		return err
	}
	for _, m := range []struct {
		err  error
		kind tool.Kind
	}{
		{sandbox.ErrUnavailable, tool.Unavailable},
		{sandbox.ErrLost, tool.Unavailable},
		{sandbox.ErrNotFound, tool.Unavailable},
		{sandbox.ErrUnsupported, tool.Unsupported},
	} {
		if errors.Is(err, m.err) {
			return tool.Errorf(m.kind, "%w", err)
		}
	}
	return tool.AsError(err)
}

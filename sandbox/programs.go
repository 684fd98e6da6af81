package sandbox

import "context"

// ProgramFinder is a [Sandbox] that knows the programs of its image.
type ProgramFinder interface {
	// HasProgram reports whether bash, sh, python3 or sbcl is on the PATH. For other names
	// the error may wrap [ErrUnsupported].
	HasProgram(ctx context.Context, name string) (bool, error)
}

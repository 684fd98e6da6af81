package sandbox

import "context"

// ProgramFinder is a [Sandbox] that knows which programs its image has.
type ProgramFinder interface {
	// HasProgram reports whether programs find bash, sh, python3 or sbcl by that name.
	// For others it may wrap [ErrUnsupported].
	HasProgram(ctx context.Context, name string) (bool, error)
}

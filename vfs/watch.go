package vfs

// Op is the kind of a change to a path.
type Op string

// Kinds of changes.
const (
	Created  Op = "created"
	Changed  Op = "changed" // content, mode, or replaced
	Removed  Op = "removed" // or moved away
	Overflow Op = "overflow"
)

// Change is a change below a watched path. Overflow means that some changes were lost, or that some
// directories are not watched: look at everything again.
type Change struct {
	Path string // "" with Overflow
	Op   Op
}

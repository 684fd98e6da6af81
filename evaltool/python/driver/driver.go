// Package driver is the source of wisbox's Python driver, for the engines that
// run it: what evaluated code sees, how values leave, what a traceback shows; and
// the message that it answers with.
package driver

import (
	"embed"
	"sync"

	"github.com/wisbox/wisbox/internal/interp"
)

//go:embed *.py
var files embed.FS

// Source is the whole driver, its parts joined in the order of their names. It
// defines functions and does nothing until its main is called.
var Source = sync.OnceValue(func() string { return interp.Source(files, "*.py", "\n\n") })

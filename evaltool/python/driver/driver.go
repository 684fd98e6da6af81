// Package driver has the source of wisbox's Python driver, for the engines that run it, and the
// message of its answers. The driver defines the names that evaluated code sees, the form of
// values, and the content of tracebacks.
package driver

import (
	"embed"
	"sync"

	"github.com/wisbox/wisbox/internal/interp"
)

//go:embed *.py
var files embed.FS

// Source returns the whole driver, with its parts joined in the order of their names. It defines functions and does
// nothing until its main is called.
var Source = sync.OnceValue(func() string { return interp.Source(files, "*.py", "\n\n") })

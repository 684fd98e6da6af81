// Package driver is the source of wisbox's Python driver, for the engines that
// run it: what evaluated code sees, how values leave, what a traceback shows. It
// holds no Go of its own.
package driver

import (
	"embed"
	"io/fs"
	"strings"
	"sync"
)

//go:embed *.py
var files embed.FS

// Source is the whole driver, its parts joined in the order of their names. It
// defines functions and does nothing until its main is called.
var Source = sync.OnceValue(func() string {
	names, err := fs.Glob(files, "*.py")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var source strings.Builder
	for _, name := range names {
		part, err := files.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded
		}
		source.Write(part)
		source.WriteString("\n\n")
	}
	return source.String()
})

package interp

import (
	"io/fs"
	"strings"
)

// Source returns a driver's program, which is embedded in parts: the files that match the pattern,
// sorted by name, with end after each. It panics if they can't be read, since they are in this
// binary.
func Source(parts fs.FS, pattern, end string) string {
	names, err := fs.Glob(parts, pattern)
	if err != nil {
		panic(err)
	}
	var source strings.Builder
	for _, name := range names {
		part, err := fs.ReadFile(parts, name)
		if err != nil {
			panic(err)
		}
		source.Write(part)
		source.WriteString(end)
	}
	return source.String()
}

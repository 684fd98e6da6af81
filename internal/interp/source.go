package interp

import (
	"io/fs"
	"strings"
)

// Source is the program of a driver that is embedded in parts: those that match
// the pattern, in the order of their names, with end behind each. It panics where
// it can't read them: they are in this binary.
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

package vfs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkSearch is for profiles; docs/benchmarks/files.md compares with the native tools, on a
// tree ten times as large.
func BenchmarkSearch(b *testing.B) {
	w := newLargeWorld(b)
	const files = 5_000
	text := strings.Repeat("func (r *reader) next(ctx context.Context) (value, error) {\n\treturn r.buffer[index], nil\n}\n", 100)
	for i := range files {
		w.file(fmt.Sprintf("d%02d/e%02d/f%05d.py", i%50, i/50%40, i), text)
	}
	for _, c := range []struct{ name, tool, args string }{
		{"literal", "grep", `{"pattern":"xylophone_needle"}`},
		{"regexp with literal", "grep", `{"pattern":"xylo\\w+_needle\\s=\\s[0-9]+"}`},
		{"literal without case", "grep", `{"pattern":"XYLOPHONE_needle","ignore_case":true}`},
		{"regexp without literal", "grep", `{"pattern":"[a-z]{9}_[a-z]{6}\\s=\\s[0-9]{4}"}`},
		{"glob", "glob", `{"pattern":"**/*.py"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(files * int64(len(text)))
			for b.Loop() {
				_, err := w.tools[c.tool].Call(b.Context(), []byte(c.args))
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkListOf100000(b *testing.B) {
	w := newLargeWorld(b)
	w.many("many", 100_000)
	for b.Loop() {
		w.ok("ls", `{"path":"many"}`)
	}
}

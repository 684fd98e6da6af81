package vfs_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/vfs"
)

const benchFiles = 50_000

// benchTree is 50,000 files of 500 MB in all, made once a run. WISBOX_BENCH_TREE
// names a directory that keeps it for the next.
var benchTree = sync.OnceValues(func() (string, error) {
	dir := os.Getenv("WISBOX_BENCH_TREE")
	if dir == "" {
		made, err := os.MkdirTemp("", "wisbox-bench")
		if err != nil {
			return "", err
		}
		dir = made
	} else if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
		return dir, nil
	}
	return dir, makeBenchTree(dir)
})

func makeBenchTree(dir string) error {
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("func return if err nil the value context string int for range package import type struct map " +
		"error server client request handler config option buffer reader writer index length offset result default while class def self")
	for i := range benchFiles {
		sub := filepath.Join(dir, "tree", fmt.Sprintf("d%02d", i%50), fmt.Sprintf("e%02d", i/50%40))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		var b strings.Builder
		for b.Len() < 10_000 {
			for range 3 + r.IntN(9) {
				b.WriteString(words[r.IntN(len(words))])
				b.WriteByte(" .(,="[r.IntN(5)])
			}
			fmt.Fprintf(&b, "%d\n", r.IntN(1000))
		}
		if i%1000 == 7 {
			b.WriteString("xylophone_needle = 1234\n")
		}
		ext := []string{"py", "go", "md", "txt", "c"}[i%5]
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%05d.%s", i, ext)), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "done"), nil, 0o644)
}

func BenchmarkAgainstNativeTools(b *testing.B) {
	dir, err := benchTree()
	require.NoError(b, err)
	if os.Getenv("WISBOX_BENCH_TREE") == "" {
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	tree := filepath.Join(dir, "tree")
	root, err := os.OpenRoot(tree)
	require.NoError(b, err)
	files, err := vfs.New(&vfs.Options{Root: root})
	require.NoError(b, err)
	b.Cleanup(func() { _, _ = files.Close(), root.Close() })
	tools := byName(files)
	rg := []string{"-uuu", "--no-messages", "-j2", "-n", "--column", "-e"}
	for _, c := range []struct {
		name, tool, args string
		native           []string
	}{
		{"literal", "grep", `{"pattern":"xylophone_needle"}`, append([]string{"rg"}, append(rg, "xylophone_needle", tree)...)},
		{"regexp with literal", "grep", `{"pattern":"xylo\\w+_needle\\s=\\s[0-9]+"}`, append([]string{"rg"}, append(rg, `xylo\w+_needle\s=\s[0-9]+`, tree)...)},
		{"literal without case", "grep", `{"pattern":"XYLOPHONE_needle","ignore_case":true}`, append([]string{"rg", "-i"}, append(rg, "XYLOPHONE_needle", tree)...)},
		{"regexp without literal", "grep", `{"pattern":"[a-z]{9}_[a-z]{6}\\s=\\s[0-9]{4}"}`, append([]string{"rg"}, append(rg, `[a-z]{9}_[a-z]{6}\s=\s[0-9]{4}`, tree)...)},
		{"glob", "glob", `{"pattern":"**/*.py"}`, []string{"find", tree, "-name", "*.py"}},
	} {
		b.Run(c.name+"/wisbox", func(b *testing.B) {
			for b.Loop() {
				res, err := tools[c.tool].Call(b.Context(), []byte(c.args))
				require.NoError(b, err)
				require.NotEmpty(b, res.Text)
			}
		})
		b.Run(c.name+"/"+c.native[0], func(b *testing.B) {
			for b.Loop() {
				out, err := exec.Command(c.native[0], c.native[1:]...).Output()
				require.NoError(b, err)
				require.NotEmpty(b, out)
			}
		})
	}
}

func BenchmarkListOf100000(b *testing.B) {
	w := newWorld(b)
	w.many("many", 100_000)
	for b.Loop() {
		w.ok("ls", `{"path":"many"}`)
	}
}

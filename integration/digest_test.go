package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/digest/digesttest"
	"github.com/wisbox/wisbox/hostmount"
)

// TestWhatADigestNamesRuns: in small projects and in this repository, every command of the digest succeeds if the image
// has its tools.
func TestWhatADigestNamesRuns(t *testing.T) {
	host, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	top := map[string]string{}
	for name, files := range digesttest.Projects {
		top[name] = strings.ReplaceAll(name, " ", "-")
		for path, text := range files {
			file := filepath.Join(host, top[name], path)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
	}
	opts := &wisbox.SessionOptions{AllowedRoots: []string{host}, Mounts: []hostmount.Mount{{HostPath: host}}}
	here, err := filepath.Abs("..")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(here, "go.mod")); err == nil { // the rootless run has no repository
		top["this repository"] = "here"
		opts.AllowedRoots = append(opts.AllowedRoots, here)
		opts.Mounts = append(opts.Mounts, hostmount.Mount{HostPath: here, MountPath: "here", Exclude: []string{".git", "bin"}})
	}
	s := open(t, opts)
	ran := 0
	for name, dir := range top {
		files, err := fs.Sub(s.Files(), dir)
		require.NoError(t, err)
		report, err := digest.Build(t.Context(), files)
		require.NoError(t, err, name)
		require.NotEmpty(t, report.Commands, name)
		for _, c := range report.Commands {
			if !inImage(t, s, c.Needs) {
				continue
			}
			ran++
			res := call(t, s, "shell_execute", args{"script": c.Line, "cwd": dir, "timeout": 120})
			assert.Equal(t, 0, res.num("exit_code"), "%s: %s\n%s%s", name, c.Line, res["stdout"], res["stderr"])
		}
	}
	assert.GreaterOrEqual(t, ran, 5, "the image has Python and make at least")
}

func inImage(t *testing.T, s *wisbox.Session, needs []string) bool {
	t.Helper()
	for _, need := range needs {
		probe := []string{"sh", "-c", `command -v "$0"`, need}
		if module, ok := strings.CutPrefix(need, "python3:"); ok {
			probe = []string{"python3", "-c", "import " + module}
		}
		if call(t, s, "shell_execute", args{"commands": probe}).num("exit_code") != 0 {
			return false
		}
	}
	return true
}

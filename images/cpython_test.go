package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// pythonTree creates a module's directory.
func pythonTree(t *testing.T, list string, content map[string]string) pythonFiles {
	dir := t.TempDir()
	content["files.json"] = list
	for name, text := range content {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return pythonFiles{dir}
}

func gzipped(t *testing.T, text string) string {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write([]byte(text))
	require.NoError(t, errors.Join(err, w.Close()))
	return buf.String()
}

func TestPythonsTreeGoesUnderUsrLocal(t *testing.T) {
	files := pythonTree(t, `{"files":[
		{"name":"bin","perm":2147484141},
		{"name":"bin/python3","perm":134217728,"symlink":"python3.12"},
		{"name":"bin/python3.12","perm":509,"compressed":true},
		{"name":"lib/python3.12","perm":2147484141},
		{"name":"lib/python3.12/os.py","perm":436}]}`,
		map[string]string{"bin/python3.12.gz": gzipped(t, "program"), "lib/python3.12/os.py": "text"})
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	require.NoError(t, files.writeTo(tw))
	require.NoError(t, tw.Close())
	type entry struct {
		mode int64
		link string
		kind byte
	}
	got := map[string]entry{}
	for tr := tar.NewReader(bytes.NewReader(buf.Bytes())); ; {
		hdr, err := tr.Next()
		if err != nil {
			break
		}
		require.Zero(t, hdr.Uid+hdr.Gid)
		got[hdr.Name] = entry{hdr.Mode, hdr.Linkname, hdr.Typeflag}
	}
	require.Equal(t, map[string]entry{
		"usr/local/bin/python3":          {0o755, "python3.12", tar.TypeSymlink},
		"usr/local/bin/python3.12":       {0o755, "", tar.TypeReg},
		"usr/local/lib/python3.12":       {0o755, "", tar.TypeDir},
		"usr/local/lib/python3.12/os.py": {0o644, "", tar.TypeReg},
	}, got)
	require.Equal(t, "program", readTar(bytes.NewReader(buf.Bytes()))["usr/local/bin/python3.12"])
}

func TestANameThatLeavesPythonsTreeIsRefused(t *testing.T) {
	files := pythonTree(t, `{"files":[{"name":"../../etc/passwd","perm":436}]}`, map[string]string{})
	require.ErrorContains(t, files.writeTo(tar.NewWriter(&bytes.Buffer{})), "leaves the tree")
}

func TestAFileThatPythonsListNamesMustBeThere(t *testing.T) {
	for _, list := range []string{
		`{"files":[{"name":"lib/os.py","perm":436}]}`,
		`{"files":[{"name":"lib/os.py","perm":436,"compressed":true}]}`,
	} {
		err := pythonTree(t, list, map[string]string{}).writeTo(tar.NewWriter(&bytes.Buffer{}))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

func TestGoModDownloadsAnswerIsRead(t *testing.T) {
	mod, err := parseModule([]byte(`{"Dir":"/d","Sum":"h1:x"}`), nil, "")
	require.NoError(t, err)
	require.Equal(t, module{Dir: "/d", Sum: "h1:x"}, mod)
	_, err = parseModule([]byte(`{"Error":"no such host"}`), errors.New("exit status 1"), "")
	require.EqualError(t, err, "no such host")
	_, err = parseModule(nil, errors.New("exit status 2"), "go: cannot\n")
	require.EqualError(t, err, "go mod download: exit status 2: go: cannot")
}

func TestMissingToolsAreNamedWithTheirPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := fetchPython(t.Context())
	require.ErrorContains(t, err, "apt-get install golang-go")
	err = newBuild(nil, nil).copyDebian(t.Context(), tar.NewWriter(&bytes.Buffer{}))
	require.ErrorContains(t, err, "apt-get install mmdebstrap")
}

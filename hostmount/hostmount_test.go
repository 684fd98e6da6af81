package hostmount_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/tool"
)

const secret = "OUTSIDE-SECRET\n"

// host is a directory with allowed/repo, and secret/id_rsa beside allowed.
type host struct {
	t    *testing.T
	dir  string
	opts *hostmount.Options
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir()}
	h.write("secret/id_rsa", secret)
	h.write("allowed/repo/README.md", "ok\n")
	h.write("allowed/repo/src/a.py", "print(1)\n")
	h.write("allowed/repo/.git/HEAD", "ref: refs/heads/main\n")
	h.mkdir("workspace")
	h.mkdir("tmp")
	h.opts = &hostmount.Options{AllowedRoots: []string{h.path("allowed")}, Dest: h.root("workspace"), Staging: h.root("tmp")}
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }
func (h *host) mkdir(name string)       { require.NoError(h.t, os.MkdirAll(h.path(name), 0o755)) }

func (h *host) root(name string) *os.Root {
	root, err := os.OpenRoot(h.path(name))
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = root.Close() })
	return root
}

func (h *host) write(name, text string) {
	h.mkdir(filepath.Dir(name))
	require.NoError(h.t, os.WriteFile(h.path(name), []byte(text), 0o644))
}

func (h *host) read(name string) string {
	raw, err := os.ReadFile(h.path(name))
	require.NoError(h.t, err)
	return string(raw)
}

func (h *host) link(target, name string) { require.NoError(h.t, os.Symlink(target, h.path(name))) }

// parse parses a mount of the command line, whose paths are below the host's directory.
func (h *host) parse(spec string) hostmount.Mount {
	m, err := hostmount.Parse(h.dir + "/" + spec)
	require.NoError(h.t, err)
	return m
}

func (h *host) copy(specs ...string) (*hostmount.Report, error) {
	var mounts []hostmount.Mount
	for _, spec := range specs {
		mounts = append(mounts, h.parse(spec))
	}
	return hostmount.Copy(h.t.Context(), mounts, h.opts)
}

func (h *host) mustCopy(specs ...string) *hostmount.Report {
	h.t.Helper()
	r, err := h.copy(specs...)
	require.NoError(h.t, err)
	h.clean()
	return r
}

// clean asserts that the staging directory is empty and no secret was copied.
func (h *host) clean() {
	h.t.Helper()
	entries, err := os.ReadDir(h.path("tmp"))
	require.NoError(h.t, err)
	assert.Empty(h.t, entries)
	for _, name := range h.tree() {
		info, err := os.Lstat(h.path("workspace/" + name))
		require.NoError(h.t, err)
		if info.Mode().IsRegular() {
			assert.NotContains(h.t, h.read("workspace/"+name), "OUTSIDE")
		}
	}
}

// tree lists the workspace, directories with a slash at the end.
func (h *host) tree() []string {
	names := []string{}
	top := h.path("workspace")
	require.NoError(h.t, filepath.WalkDir(top, func(p string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(top, p)
		if e.IsDir() {
			rel += "/"
		}
		if rel != "./" {
			names = append(names, rel)
		}
		return err
	}))
	return names
}

// refused asserts that a copy fails with the kind, leaves nothing behind and names no host path.
func (h *host) refused(kind tool.Kind, specs ...string) *tool.Error {
	h.t.Helper()
	before := h.tree()
	_, err := h.copy(specs...)
	require.Error(h.t, err, specs)
	e := tool.AsError(err)
	assert.Equal(h.t, kind, e.Kind, "%v: %v", specs, err)
	assert.NotContains(h.t, e.Message, h.dir)
	assert.Equal(h.t, before, h.tree())
	h.clean()
	return e
}

func TestWhereThingsLand(t *testing.T) {
	for spec, want := range map[string]string{
		"allowed/repo":                                    ".git/ .git/HEAD README.md src/ src/a.py",
		"allowed/repo:.":                                  ".git/ .git/HEAD README.md src/ src/a.py",
		"allowed/repo:/workspace":                         ".git/ .git/HEAD README.md src/ src/a.py",
		"allowed/repo:":                                   ".git/ .git/HEAD README.md src/ src/a.py",
		"allowed/repo:proj":                               "proj/ proj/.git/ proj/.git/HEAD proj/README.md proj/src/ proj/src/a.py",
		"allowed/repo/src:/workspace/a/b/":                "a/ a/b/ a/b/a.py",
		"allowed/repo/src:workspace/a":                    "a/ a/a.py",
		"allowed/repo/README.md":                          "README.md",
		"allowed/repo/README.md:x/y.md":                   "x/ x/y.md",
		"allowed/repo/README.md:x/":                       "x/ x/README.md",
		"allowed/repo,include=*.py":                       "src/ src/a.py",
		"allowed/repo,include=src/*":                      "src/ src/a.py",
		"allowed/repo,exclude=.git":                       "README.md src/ src/a.py",
		"allowed/repo,exclude=**":                         "",
		"allowed/repo/README.md,exclude=*.md":             "",
		"allowed/repo,include=*.{py,md},exclude=README.*": "src/ src/a.py",
	} {
		h := newHost(t)
		h.mustCopy(spec)
		assert.Equal(t, want, strings.Join(h.tree(), " "), spec)
	}
}

func TestAPatternNeverReachesOutside(t *testing.T) {
	h := newHost(t)
	m, err := hostmount.Parse(h.path("allowed/repo") + ":w,include=../../secret/*")
	if err == nil {
		_, err = hostmount.Copy(t.Context(), []hostmount.Mount{m}, h.opts)
	}
	if err != nil {
		assert.Equal(t, tool.Invalid, tool.KindOf(err))
	}
	assert.Empty(t, h.tree())
}

func TestAnEmptyMountPathIsThePathBelowTheAllowedRoot(t *testing.T) {
	h := newHost(t)
	for _, m := range []hostmount.Mount{
		{HostPath: h.path("allowed/repo/src")},
		{HostPath: "repo/src"},
		{HostPath: h.path("allowed/repo/README.md")},
	} {
		_, err := hostmount.Copy(t.Context(), []hostmount.Mount{m}, h.opts)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"repo/", "repo/README.md", "repo/src/", "repo/src/a.py"}, h.tree())
}

func TestWideRootsNeedAnOverride(t *testing.T) {
	h := newHost(t)
	t.Setenv("HOME", h.path("allowed/repo"))
	h.refused(tool.Permission, "allowed/repo/src")
	h.opts.AllowedRoots = []string{"/"}
	h.refused(tool.Permission, "allowed/repo/src")
	h.opts.AllowWideRoots = true
	h.mustCopy("allowed/repo/src")
	assert.Equal(t, []string{"a.py"}, h.tree())
}

func TestARootCanBeAFileOrALink(t *testing.T) {
	h := newHost(t)
	h.link(h.path("allowed/repo"), "short")
	h.opts.AllowedRoots = []string{h.path("short/src"), h.path("allowed/repo/README.md")}
	h.mustCopy("short/src:a", "allowed/repo/src:b", "allowed/repo/README.md:c/", "short/README.md:d")
	assert.Equal(t, "a/ a/a.py b/ b/a.py c/ c/README.md d", strings.Join(h.tree(), " "))
	_, err := hostmount.Copy(t.Context(), []hostmount.Mount{{HostPath: h.path("allowed/repo/README.md")}}, h.opts)
	require.NoError(t, err)
	assert.FileExists(t, h.path("workspace/README.md"))
	h.refused(tool.Permission, "allowed/repo")
	h.refused(tool.Permission, "allowed/repo/.git/HEAD")
	h.opts.AllowedRoots = []string{"relative"}
	assert.Equal(t, "allowed_roots[0]", h.refused(tool.Invalid, "allowed/repo").Field)
	h.opts.AllowedRoots = []string{h.path("none")}
	h.refused(tool.NotFound, "allowed/repo")
}

func TestMountsMergeInOrder(t *testing.T) {
	h := newHost(t)
	h.write("allowed/more/README.md", "later\n")
	h.write("allowed/more/src/b.py", "print(2)\n")
	h.mustCopy("allowed/repo:p", "allowed/more:p")
	assert.Equal(t, "later\n", h.read("workspace/p/README.md"))
	assert.FileExists(t, h.path("workspace/p/src/a.py"))
	assert.FileExists(t, h.path("workspace/p/src/b.py"))

	h.mustCopy("allowed/repo:p", "allowed/repo/README.md:p/src/c.py")
	assert.Equal(t, "ok\n", h.read("workspace/p/README.md"), "a file of the workspace is replaced")
	assert.FileExists(t, h.path("workspace/p/src/b.py"), "what else is there stays")
}

func TestFilesAndDirectoriesDontReplaceEachOther(t *testing.T) {
	h := newHost(t)
	assert.Equal(t, "mounts[1].mount_path", h.refused(tool.Exists, "allowed/repo:p", "allowed/repo/README.md:p/src").Field)
	h.refused(tool.Exists, "allowed/repo/README.md:p", "allowed/repo:p/src")
	h.refused(tool.Exists, "allowed/repo/README.md:p", "allowed/repo:p/deeper/still")
	h.write("workspace/z/src", "a file of the workspace")
	h.write("workspace/z/README.md", "old")
	h.refused(tool.Exists, "allowed/repo:z")
	assert.Equal(t, "old", h.read("workspace/z/README.md"), "what was replaced already is put back")
	h.mkdir("workspace/y/README.md")
	h.refused(tool.Exists, "allowed/repo:y")
}

func TestACancelledCopyLeavesNothing(t *testing.T) {
	h := newHost(t)
	for i := range 500 {
		h.write(fmt.Sprintf("allowed/many/%d", i), "x")
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.opts.Progress = func(hostmount.Progress) { cancel() }
	_, err := hostmount.Copy(ctx, []hostmount.Mount{h.parse("allowed/many:p")}, h.opts)
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, h.tree())
	h.clean()
}

func TestProgressEndsAtTheTotal(t *testing.T) {
	h := newHost(t)
	var last hostmount.Progress
	h.opts.Progress = func(p hostmount.Progress) { last = p }
	h.mustCopy("allowed/repo")
	assert.Equal(t, hostmount.Progress{Files: 3, TotalFiles: 3, Bytes: 33, TotalBytes: 33}, last)
}

func TestPreviewListsWhatAndWhyNotAndWritesNothing(t *testing.T) {
	h := newHost(t)
	h.link("/etc/passwd", "allowed/repo/link")
	mounts := []hostmount.Mount{h.parse("allowed/repo:p,exclude=*.py")}
	preview, err := hostmount.Preview(t.Context(), mounts, &hostmount.Options{AllowedRoots: h.opts.AllowedRoots})
	require.NoError(t, err)
	var lines []string
	for _, e := range preview.Mounts[0].Entries {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", e, e.Kind, e.Size, e.Skipped)))
	}
	assert.Equal(t, []string{
		"p/.git directory 0", "p/.git/HEAD file 21", "p/README.md file 3", "p/link other 0 link", "p/src directory 0", "p/src/a.py other 0 excluded",
	}, lines)
	assert.Empty(t, h.tree())
	r, err := hostmount.Copy(t.Context(), mounts, h.opts)
	require.NoError(t, err)
	assert.Equal(t, preview.Mounts[0].Fingerprint, r.Mounts[0].Fingerprint)
	require.NoError(t, os.Chmod(h.path("allowed/repo/README.md"), 0o600))
	changed, err := hostmount.Preview(t.Context(), mounts, h.opts)
	require.NoError(t, err)
	assert.NotEqual(t, preview.Mounts[0].Fingerprint, changed.Mounts[0].Fingerprint)
}

func TestNoMountsNeedNothing(t *testing.T) {
	r, err := hostmount.Copy(t.Context(), nil, nil)
	require.NoError(t, err)
	assert.Empty(t, r.Mounts)
}

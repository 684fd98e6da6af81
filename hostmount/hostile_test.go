package hostmount_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func TestSourcesOutsideTheRootsAreRefused(t *testing.T) {
	h := newHost(t)
	h.link(h.path("secret/id_rsa"), "allowed/repo/key")
	h.link(h.path("secret"), "allowed/repo/keys")
	h.write("allowed-evil/leak", secret)
	require.NoError(t, syscall.Mkfifo(h.path("allowed/pipe"), 0o600))
	assert.Equal(t, "mounts[0].host_path", h.refused(tool.Permission, "secret").Field)
	h.refused(tool.Permission, "allowed-evil")
	h.refused(tool.Permission, "allowed/repo/../../secret")
	h.refused(tool.Permission, "../../../../../../../../..")
	h.refused(tool.Escape, "allowed/repo/key")
	h.refused(tool.Escape, "allowed/repo/keys")
	h.refused(tool.Escape, "allowed/repo/keys/id_rsa,follow-symlinks")
	h.refused(tool.NotRegular, "allowed/pipe")
	assert.Equal(t, "mounts[1].host_path", h.refused(tool.NotFound, "allowed/repo", "allowed/none").Field)
	h.refused(tool.NotDir, "allowed/repo/README.md/x")

	_, err := hostmount.Copy(t.Context(), []hostmount.Mount{{HostPath: "../secret"}}, h.opts)
	assert.Equal(t, tool.Escape, tool.KindOf(err))
	h.opts.AllowedRoots = nil
	h.refused(tool.Permission, "allowed/repo")
}

func TestContentModesAndTimesAreCopied(t *testing.T) {
	h := newHost(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	when := time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)
	h.write("allowed/x/bin", "a\xff\x00")
	h.write("allowed/x/big", string(big))
	h.write("allowed/x/.hidden/v", "")
	for name, mode := range map[string]os.FileMode{"bin": 0o755 | os.ModeSetuid, "big": 0o640, ".hidden": 0o550} {
		require.NoError(t, os.Chmod(h.path("allowed/x/"+name), mode))
	}
	t.Cleanup(func() { _ = os.Chmod(h.path("allowed/x/.hidden"), 0o755) })
	require.NoError(t, os.Chtimes(h.path("allowed/x/bin"), when, when))
	r := h.mustCopy("allowed/x:p")
	assert.EqualValues(t, 3, r.Files)
	assert.EqualValues(t, len(big)+3, r.Bytes)
	for name, mode := range map[string]os.FileMode{"bin": 0o755, "big": 0o640, ".hidden": os.ModeDir | 0o750} {
		info, err := os.Stat(h.path("workspace/p/" + name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), name)
	}
	info, err := os.Stat(h.path("workspace/p/bin"))
	require.NoError(t, err)
	assert.True(t, when.Equal(info.ModTime()))
	assert.Equal(t, string(big), h.read("workspace/p/big"))
}

func TestCopiesBelongToTheOwner(t *testing.T) {
	h := newHost(t)
	h.opts.Owner = &sandbox.Owner{UID: os.Getuid(), GID: os.Getgid()}
	if os.Getuid() == 0 {
		h.opts.Owner = &sandbox.Owner{UID: 54321, GID: 54322}
	}
	h.mustCopy("allowed/repo:p/q")
	for _, name := range []string{"p", "p/q", "p/q/src", "p/q/README.md"} {
		info, err := os.Lstat(h.path("workspace/" + name))
		require.NoError(t, err)
		st := info.Sys().(*syscall.Stat_t)
		assert.Equal(t, sandbox.Owner{UID: int(st.Uid), GID: int(st.Gid)}, *h.opts.Owner, name)
	}
}

func TestLinksBringNothingFromOutside(t *testing.T) {
	for _, option := range []string{"", ",follow-symlinks"} {
		h := newHost(t)
		for name, target := range map[string]string{
			"key": h.path("secret/id_rsa"), "keys": "../../secret", "abs": h.path("secret"), "loop": "loop", "self": ".",
			"env": "/proc/self/environ", "dangling": "nowhere", "zero": "/dev/zero", "src/up": "../..", "src/round": "../src/../../repo/src",
		} {
			h.link(target, "allowed/repo/"+name)
		}
		r := h.mustCopy("allowed/repo" + option)
		have := []string{".git/", ".git/HEAD", "README.md", "dangling", "loop", "self", "src/", "src/a.py"}
		want := map[hostmount.Reason]int64{hostmount.Link: 4, hostmount.LinkOutside: 3}
		if option != "" {
			have = []string{".git/", ".git/HEAD", "README.md", "src/", "src/a.py"}
			want = map[hostmount.Reason]int64{hostmount.LinkOutside: 7, hostmount.LinkBroken: 3}
		}
		assert.Equal(t, have, h.tree())
		assert.Equal(t, want, r.Mounts[0].Skipped)
	}
}

// TestLinksThatStayInTheSourceAreKept, with their text, owner and time, even if they dangle: git and npm's
// node_modules/.bin need them unchanged.
func TestLinksThatStayInTheSourceAreKept(t *testing.T) {
	h := newHost(t)
	h.mkdir("allowed/repo/node_modules/.bin")
	links := map[string]string{"node_modules/.bin/tool": "../tool/cli.js", "src/readme": "./../README.md", "top": "src", "src/secret": "../.env"}
	for name, target := range links {
		h.link(target, "allowed/repo/"+name)
	}
	h.write("allowed/repo/.env", "x")
	r := h.mustCopy("allowed/repo:p,exclude=.env,exclude=top")
	delete(links, "top")
	for name, target := range links {
		text, err := os.Readlink(h.path("workspace/p/" + name))
		require.NoError(t, err)
		assert.Equal(t, target, text)
	}
	assert.Equal(t, map[hostmount.Reason]int64{hostmount.Excluded: 2}, r.Mounts[0].Skipped)
	assert.EqualValues(t, 6, r.Files)
	before := r.Mounts[0].Fingerprint
	require.NoError(t, os.Remove(h.path("allowed/repo/src/readme")))
	h.link("a.py", "allowed/repo/src/readme")
	require.NoError(t, os.RemoveAll(h.path("workspace/p")))
	assert.NotEqual(t, before, h.mustCopy("allowed/repo:p,exclude=.env,exclude=top").Mounts[0].Fingerprint)
}

func TestFollowedLinksAreCopiedAsWhatTheyPointTo(t *testing.T) {
	h := newHost(t)
	h.link("README.md", "allowed/repo/file")
	h.link("src", "allowed/repo/dir")
	h.link(h.path("allowed/repo/src/a.py"), "allowed/repo/.git/absolute")
	h.link("../src", "allowed/repo/src/round")
	h.mustCopy("allowed/repo,follow-symlinks")
	assert.Equal(t, []string{
		".git/", ".git/HEAD", ".git/absolute", "README.md", "dir/", "dir/a.py", "file", "src/", "src/a.py",
	}, h.tree())
	for name, text := range map[string]string{"file": "ok\n", "dir/a.py": "print(1)\n", ".git/absolute": "print(1)\n"} {
		assert.Equal(t, text, h.read("workspace/"+name))
		info, err := os.Lstat(h.path("workspace/" + name))
		require.NoError(t, err)
		assert.True(t, info.Mode().IsRegular())
	}
}

func TestLinksThatMultiplyEndAtTheBudget(t *testing.T) {
	h := newHost(t)
	h.opts.MaxFiles = 1_000
	h.mkdir("allowed/m/30")
	for i := range 30 {
		h.mkdir(fmt.Sprintf("allowed/m/%d", i))
		for _, name := range []string{"a", "b"} {
			h.link(fmt.Sprintf("../%d", i+1), fmt.Sprintf("allowed/m/%d/%s", i, name))
		}
	}
	h.refused(tool.Limit, "allowed/m,follow-symlinks")
}

func TestSpecialFilesAreSkippedAndCounted(t *testing.T) {
	h := newHost(t)
	require.NoError(t, syscall.Mkfifo(h.path("allowed/repo/pipe"), 0o666))
	require.NoError(t, syscall.Mknod(h.path("allowed/repo/sock"), syscall.S_IFSOCK|0o666, 0))
	r := h.mustCopy("allowed/repo:p")
	assert.Equal(t, map[hostmount.Reason]int64{hostmount.Special: 2}, r.Mounts[0].Skipped)
	assert.FileExists(t, h.path("workspace/p/README.md"))
}

func TestHardLinksOfOthersAreSkipped(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make files of two owners")
	}
	h := newHost(t)
	require.NoError(t, os.Link(h.path("secret/id_rsa"), h.path("allowed/repo/hard")))
	require.NoError(t, os.Link(h.path("allowed/repo/README.md"), h.path("allowed/repo/mine")))
	require.NoError(t, os.Chown(h.path("allowed/repo"), 54321, 54321))
	require.NoError(t, os.Chown(h.path("allowed/repo/README.md"), 54321, 54321))
	r := h.mustCopy("allowed/repo")
	assert.Equal(t, map[hostmount.Reason]int64{hostmount.HardLink: 1}, r.Mounts[0].Skipped)
	assert.FileExists(t, h.path("workspace/mine"))
}

func TestUnreadableFilesAreSkipped(t *testing.T) {
	if hosttest.AsNobody(t) {
		return
	}
	h := newHost(t)
	require.NoError(t, os.Chmod(h.path("allowed/repo/README.md"), 0))
	r := h.mustCopy("allowed/repo")
	assert.Equal(t, map[hostmount.Reason]int64{hostmount.Unreadable: 1}, r.Mounts[0].Skipped)
}

func TestOddNamesAreCopiedAndShownEscaped(t *testing.T) {
	h := newHost(t)
	names := []string{"nl\nname", "\x1b]0;x\a", " lead", "-rf", "$(touch pwned)", "...", "\xff\xfe", "plain name"}
	for _, name := range names {
		require.NoError(t, os.WriteFile(h.path("allowed/repo/src")+"/"+name, nil, 0o644))
	}
	preview, err := hostmount.Preview(t.Context(), []hostmount.Mount{h.parse("allowed/repo/src:p")}, h.opts)
	require.NoError(t, err)
	for _, e := range preview.Mounts[0].Entries {
		assert.NotRegexp(t, `[[:cntrl:]]|\x{fffd}`, e.String())
	}
	assert.Equal(t, "p/plain name", hostmount.Entry{Path: "p/plain name"}.String())
	h.mustCopy("allowed/repo/src:p")
	entries, err := os.ReadDir(h.path("workspace/p"))
	require.NoError(t, err)
	assert.Len(t, entries, len(names)+1)
}

func TestDeepTreesAreCopiedAsFarAsTheyGo(t *testing.T) {
	h := newHost(t)
	deep := "deep/" + strings.Repeat("x/", 300)
	h.mkdir("allowed/repo/" + deep)
	h.mustCopy("allowed/repo:p")
	assert.DirExists(t, h.path("workspace/p/"+deep))
	h.mkdir("allowed/other/" + strings.Repeat("y/", 600))
	r := h.mustCopy("allowed/other:q")
	assert.Equal(t, map[hostmount.Reason]int64{hostmount.TooDeep: 1}, r.Mounts[0].Skipped)
}

func TestBudgetsEndACopyWithNothingLeft(t *testing.T) {
	h := newHost(t)
	require.NoError(t, os.Truncate(h.path("allowed/repo/README.md"), 100<<30))
	begin := time.Now()
	h.refused(tool.TooLarge, "allowed/repo:p")
	assert.Less(t, time.Since(begin), 30*time.Second)
	require.NoError(t, os.Truncate(h.path("allowed/repo/README.md"), 3))

	assert.Equal(t, "mounts[0].max_bytes", h.refused(tool.TooLarge, "allowed/repo:w,max-bytes=1").Field)
	h.refused(tool.TooLarge, "allowed/repo:w,max-bytes=32")
	h.mustCopy("allowed/repo:w,max-bytes=33")
	h.opts.MaxBytes = 50
	h.refused(tool.TooLarge, "allowed/repo:a", "allowed/repo:b")
	h.opts.MaxFiles = 4
	h.refused(tool.Limit, "allowed/repo:c")
	h.mustCopy("allowed/repo:c,exclude=.git")
}

// The source's author swaps files and directories for links that lead out, while
// they are copied.
func TestASwapperLeaksNothing(t *testing.T) {
	h := newHost(t)
	h.write("secret/f", secret)
	h.link(h.path("secret"), "outdir")
	h.link(h.path("secret/id_rsa"), "outfile")
	for i := range 20 {
		h.write(fmt.Sprintf("allowed/race/d%d/f", i), "fine")
		h.write(fmt.Sprintf("allowed/race/f%d", i), "fine")
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); swap(h, stop) }()
	for _, option := range []string{"", ",follow-symlinks"} {
		for i := range 30 {
			_, err := h.copy(fmt.Sprintf("allowed/race:%d%s", i, option))
			require.NoError(t, err)
		}
		h.clean()
		require.NoError(t, os.RemoveAll(h.path("workspace")))
		h.mkdir("workspace")
		h.opts.Dest = h.root("workspace")
	}
	close(stop)
	<-done
}

func swap(h *host, stop chan struct{}) {
	for i := 0; ; i = (i + 1) % 20 {
		select {
		case <-stop:
			return
		default:
		}
		for link, pattern := range map[string]string{"outdir": "allowed/race/d%d", "outfile": "allowed/race/f%d"} {
			name := h.path(fmt.Sprintf(pattern, i))
			_ = os.Rename(name, h.path("away"))
			_ = os.Rename(h.path(link), name)
			_ = os.Rename(name, h.path(link))
			_ = os.Rename(h.path("away"), name)
		}
	}
}

// On case-insensitive file systems each spelling of an excluded name is excluded, in both directions.
func TestAnExcludedNameIsExcludedInEverySpelling(t *testing.T) {
	hostmount.FoldNames(t)
	h := newHost(t)
	for _, name := range []string{".env", "sub/.ENV", "caf\u00e9", "d/cafe\u0301", "Build/x", "kept", "README"} {
		h.write("allowed/repo/"+name, "x")
	}
	text := "allowed/repo:p,exclude=.Env,exclude=Caf\u00e9,exclude=build/**,include=*ep*,include=READ*"
	r := h.mustCopy(text)
	assert.EqualValues(t, 5, r.Mounts[0].Skipped[hostmount.Excluded])
	assert.FileExists(t, h.path("workspace/p/kept"))
	assert.FileExists(t, h.path("workspace/p/README"))

	homes, err := hostmount.OpenHomes([]hostmount.Mount{h.parse(text)}, &hostmount.Options{AllowedRoots: []string{h.path("allowed")}})
	require.NoError(t, err)
	defer hostmount.CloseHomes(homes)
	for _, name := range []string{".eNv", "a/.ENV", "CAFE\u0301", "bUILD/y"} {
		assert.Equal(t, hostmount.Excluded, homes[0].LeavesOut(name), name)
	}
}

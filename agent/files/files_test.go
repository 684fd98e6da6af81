package files_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/agenttest"
	"github.com/wisbox/wisbox/agent/files"
	"github.com/wisbox/wisbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is the files of an agent on this machine.
type fixture struct {
	*files.FS
	conn *agent.Conn
	dir  string // uid 1000's own
}

// start starts an agent by something else, where that is given.
func start(t testing.TB, by ...string) *fixture {
	t.Helper()
	dir := directory(t, "/tmp")
	wrap := by
	if os.Geteuid() == 0 {
		wrap = append(wrap, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", `"$@"; exit $?`, "sh")
	}
	a := agenttest.Start(t, dir, wrap...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := agent.Dial(ctx, a.Connect(t))
	require.NoError(t, err)
	f := &fixture{files.New(conn), conn, dir}
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		require.NoError(t, conn.Close())
	})
	return f
}

// directory makes one that uid 1000 owns and can reach.
func directory(t testing.TB, in string) string {
	dir, err := os.MkdirTemp(in, "wisbox-files-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	own(t, dir)
	return dir
}

func own(t testing.TB, paths ...string) {
	for _, path := range paths {
		if os.Geteuid() == 0 {
			require.NoError(t, os.Lchown(path, sandbox.UserID, sandbox.GroupID))
		}
	}
}

func (f *fixture) write(t testing.TB, path, text string, opts sandbox.WriteOptions) {
	t.Helper()
	require.NoError(t, f.Write(t.Context(), path, strings.NewReader(text), opts))
}

func (f *fixture) read(t testing.TB, path string, opts sandbox.OpenOptions) string {
	t.Helper()
	r, err := f.Open(t.Context(), path, opts)
	require.NoError(t, err)
	defer r.Close()
	content, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(content)
}

// sh runs a script as a program of the sandbox.
func (f *fixture) sh(t testing.TB, script string) string {
	t.Helper()
	var out bytes.Buffer
	got, err := f.conn.Run(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", script}, Stdout: &out, Stderr: &out, Timeout: time.Minute})
	require.NoError(t, err)
	require.Zero(t, got.ExitCode, out.String())
	return out.String()
}

func names(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestStatDescribesAFile(t *testing.T) {
	f := start(t)
	path := f.dir + "/a\xff\nb"
	f.write(t, path, "hello", sandbox.WriteOptions{Mode: 0o640})
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1e9, 5)))
	require.NoError(t, os.Symlink("a\xff\nb", f.dir+"/link"))
	require.NoError(t, os.Symlink("none", f.dir+"/dangling"))
	got, err := f.Stat(t.Context(), path, sandbox.StatOptions{})
	require.NoError(t, err)
	uid := os.Geteuid()
	if uid == 0 {
		uid = sandbox.UserID
	}
	require.Equal(t, sandbox.FileInfo{Path: path, Mode: 0o640, Size: 5, Modified: time.Unix(1e9, 5), UID: uid, GID: got.GID}, got)
	got, err = f.Stat(t.Context(), f.dir+"/link", sandbox.StatOptions{})
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink|0o777, got.Mode)
	require.Equal(t, "a\xff\nb", got.Link)
	require.Equal(t, path, got.Real)
	require.Equal(t, fs.FileMode(0o640), got.RealMode)
	got, err = f.Stat(t.Context(), f.dir+"/link", sandbox.StatOptions{Follow: true})
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), got.Mode)
	got, err = f.Stat(t.Context(), f.dir+"/dangling", sandbox.StatOptions{})
	require.NoError(t, err)
	require.Equal(t, "none", got.Link)
	require.Empty(t, got.Real)
	_, err = f.Stat(t.Context(), f.dir+"/dangling", sandbox.StatOptions{Follow: true})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, "stat "+f.dir+"/dangling: no such file or directory")
	for name, kind := range map[string]fs.FileMode{"/": fs.ModeDir, "/tmp": fs.ModeDir | fs.ModeSticky, "/dev/null": fs.ModeDevice | fs.ModeCharDevice} {
		got, err = f.Stat(t.Context(), name, sandbox.StatOptions{})
		require.NoError(t, err)
		require.Equal(t, kind, got.Mode&^fs.ModePerm, name)
	}
}

func TestPathsThatCanNotBe(t *testing.T) {
	f := start(t)
	for _, path := range []string{"", "a", "../a", "/a\x00b", "/" + strings.Repeat("a", 4096)} {
		_, err := f.Stat(t.Context(), path, sandbox.StatOptions{})
		require.ErrorIs(t, err, fs.ErrInvalid, path)
	}
	_, err := f.Stat(t.Context(), "/"+strings.Repeat("a", 300), sandbox.StatOptions{})
	require.ErrorIs(t, err, syscall.ENAMETOOLONG)
	_, err = f.Stat(t.Context(), f.dir+"/a\nb", sandbox.StatOptions{})
	require.ErrorContains(t, err, `/a\nb"`)
	require.ErrorIs(t, f.Move(t.Context(), f.dir, "", sandbox.MoveOptions{}), fs.ErrInvalid)
	require.ErrorIs(t, f.Write(t.Context(), f.dir+"/x", strings.NewReader(""), sandbox.WriteOptions{
		Attrs: map[string]string{"user.x": strings.Repeat("x", 70_000)},
	}), fs.ErrInvalid)
}

func TestProgramsRightsAreTheBounds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without uid 0 all files are ours")
	}
	f := start(t)
	secret := t.TempDir() // 0755 below a directory of root alone
	require.NoError(t, os.Chmod(filepath.Dir(secret), 0o700))
	_, err := f.Stat(t.Context(), secret, sandbox.StatOptions{})
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = f.Open(t.Context(), "/etc/shadow", sandbox.OpenOptions{})
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorIs(t, f.Write(t.Context(), "/etc/x", strings.NewReader(""), sandbox.WriteOptions{}), fs.ErrPermission)
	require.ErrorIs(t, f.Remove(t.Context(), "/etc/passwd", sandbox.RemoveOptions{Recursive: true}), fs.ErrPermission)
	require.ErrorIs(t, f.Chmod(t.Context(), "/etc/passwd", 0o777), fs.ErrPermission)
	status := f.read(t, "/proc/self/status", sandbox.OpenOptions{})
	require.Contains(t, status, "Uid:\t1000\t1000\t1000\t1000\n")
	require.Contains(t, status, "Groups:\t \n")
	require.Contains(t, status, "CapBnd:\t0000000000000000\n")
	require.Contains(t, status, "NoNewPrivs:\t1\n")
}

func TestListGoesDepthFirstByName(t *testing.T) {
	f := start(t)
	for _, dir := range []string{"b/x", "b/y/deep", "a"} {
		require.NoError(t, os.MkdirAll(f.dir+"/"+dir, 0o755))
	}
	require.NoError(t, os.WriteFile(f.dir+"/b.txt", nil, 0o644))
	require.NoError(t, os.WriteFile(f.dir+"/b/x/file", []byte("four"), 0o644))
	require.NoError(t, os.Symlink("b", f.dir+"/c"))
	list := func(opts sandbox.ListOptions) (got []string, err error) {
		err = f.List(t.Context(), f.dir, opts, func(info sandbox.FileInfo) error {
			got = append(got, info.Path)
			return nil
		})
		return got, err
	}
	got, err := list(sandbox.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "b.txt", "c"}, got)
	got, err = list(sandbox.ListOptions{Depth: 9})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "b/x", "b/x/file", "b/y", "b/y/deep", "b.txt", "c"}, got)
	got, err = list(sandbox.ListOptions{Depth: 2, Limit: 3})
	require.ErrorIs(t, err, sandbox.ErrFileLimit)
	require.Equal(t, []string{"a", "b", "b/x"}, got)
	_, err = list(sandbox.ListOptions{Limit: 4})
	require.NoError(t, err, "as many as the limit")
	require.NoError(t, os.Mkdir(f.dir+"/unsearchable", 0o755))
	own(t, f.dir+"/unsearchable")
	f.sh(t, "cd "+f.dir+"/unsearchable && touch f && chmod 444 .")
	require.ErrorIs(t, f.List(t.Context(), f.dir+"/unsearchable", sandbox.ListOptions{}, nil), fs.ErrPermission)
	require.NoError(t, os.Chmod(f.dir+"/unsearchable", 0o755))
	require.ErrorIs(t, f.List(t.Context(), f.dir+"/b.txt", sandbox.ListOptions{}, nil), syscall.ENOTDIR)
	require.ErrorIs(t, f.List(t.Context(), f.dir+"/none", sandbox.ListOptions{}, nil), fs.ErrNotExist)
	require.ErrorIs(t, f.List(t.Context(), f.dir, sandbox.ListOptions{}, func(sandbox.FileInfo) error { return io.ErrShortWrite }), io.ErrShortWrite)
}

// TestAProcessThatEndedIsPassedBy: of one that its parent has not waited for, /proc
// shows a net that nobody can read.
func TestAProcessThatEndedIsPassedBy(t *testing.T) {
	f := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from, to := io.Pipe()
	var programs sync.WaitGroup
	defer programs.Wait()
	defer cancel()
	programs.Go(func() {
		_, _ = f.conn.Run(ctx, sandbox.Cmd{Stdout: to, Argv: []string{"bash", "-c", `(until grep -q sleep /proc/$$/comm; do :; done) & echo $!; exec sleep 1000`}})
	})
	pid, err := bufio.NewReader(from).ReadString('\n')
	require.NoError(t, err)
	dir := "/proc/" + strings.TrimSpace(pid)
	require.Eventually(t, func() bool {
		return strings.Contains(f.read(t, dir+"/status", sandbox.OpenOptions{Any: true}), "State:\tZ")
	}, deadline, time.Millisecond)
	var got []string
	require.NoError(t, f.List(t.Context(), dir, sandbox.ListOptions{Depth: 2}, func(info sandbox.FileInfo) error {
		got = append(got, info.Path)
		return nil
	}))
	require.Contains(t, got, "net")
	require.Contains(t, got, "status")
}

func TestTenThousandFilesAreListed(t *testing.T) {
	f := start(t)
	require.NoError(t, os.Mkdir(f.dir+"/d", 0o755))
	own(t, f.dir+"/d")
	for i := range 10_000 {
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/d/%05d", f.dir, i), nil, 0o644))
	}
	n := 0
	require.NoError(t, f.List(t.Context(), f.dir, sandbox.ListOptions{Depth: 2}, func(info sandbox.FileInfo) error {
		if n > 0 {
			require.Equal(t, fmt.Sprintf("d/%05d", n-1), info.Path)
		}
		n++
		return nil
	}))
	require.Equal(t, 10_001, n)
	require.NoError(t, f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{Recursive: true}))
	require.Empty(t, names(t, f.dir))
}

func TestReadGivesRanges(t *testing.T) {
	f := start(t)
	path := f.dir + "/f"
	f.write(t, path, "0123456789", sandbox.WriteOptions{})
	require.Equal(t, "0123456789", f.read(t, path, sandbox.OpenOptions{}))
	require.Equal(t, "345", f.read(t, path, sandbox.OpenOptions{Offset: 3, Length: 3}))
	require.Equal(t, "9", f.read(t, path, sandbox.OpenOptions{Offset: 9, Length: 100}))
	require.Empty(t, f.read(t, path, sandbox.OpenOptions{Offset: 1 << 40}))
	require.NotEmpty(t, f.read(t, "/proc/cpuinfo", sandbox.OpenOptions{}), "which has no size")
	r, err := f.Open(t.Context(), path, sandbox.OpenOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 10, r.Info().Size)
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.Open(t.Context(), f.dir, sandbox.OpenOptions{})
	require.ErrorIs(t, err, syscall.EISDIR)
	_, err = f.Open(t.Context(), path, sandbox.OpenOptions{Offset: -1})
	require.ErrorIs(t, err, fs.ErrInvalid)
}

func TestPipesAndDevicesNeverBlock(t *testing.T) {
	f := start(t)
	pipe := f.dir + "/pipe"
	require.NoError(t, unix.Mkfifo(pipe, 0o666))
	own(t, pipe)
	for _, path := range []string{pipe, "/dev/zero", "/dev/null"} {
		_, err := f.Open(t.Context(), path, sandbox.OpenOptions{})
		require.ErrorIs(t, err, sandbox.ErrNotRegular, path)
		for _, how := range []sandbox.WriteMode{sandbox.WriteInPlace, sandbox.WriteAppend} {
			require.ErrorIs(t, f.Write(t.Context(), path, strings.NewReader("x"), sandbox.WriteOptions{How: how}), sandbox.ErrNotRegular, path)
		}
	}
	require.ErrorIs(t, f.Write(t.Context(), pipe, strings.NewReader("x"), sandbox.WriteOptions{}), sandbox.ErrNotRegular)
	require.Empty(t, f.read(t, pipe, sandbox.OpenOptions{Any: true}), "nobody writes it")
	w, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer w.Close()
	require.Empty(t, f.read(t, pipe, sandbox.OpenOptions{Any: true}), "somebody may")
	_, err = w.WriteString("now")
	require.NoError(t, err)
	require.Equal(t, "now", f.read(t, pipe, sandbox.OpenOptions{Any: true}))
	require.Len(t, f.read(t, "/dev/zero", sandbox.OpenOptions{Any: true, Length: 1 << 20}), 1<<20)
}

func TestWriteReplacesAtOnce(t *testing.T) {
	f := start(t)
	path := f.dir + "/a/b/f"
	require.ErrorIs(t, f.Write(t.Context(), path, strings.NewReader("x"), sandbox.WriteOptions{}), fs.ErrNotExist)
	f.write(t, path, "one", sandbox.WriteOptions{Parents: true, Mode: 0o755})
	f.write(t, path, "two", sandbox.WriteOptions{})
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode(), "the mode stays")
	require.ErrorIs(t, f.Write(t.Context(), path, strings.NewReader("x"), sandbox.WriteOptions{Exclusive: true}), fs.ErrExist)
	require.ErrorIs(t, f.Write(t.Context(), f.dir+"/a", strings.NewReader("x"), sandbox.WriteOptions{}), syscall.EISDIR)
	require.ErrorIs(t, f.Write(t.Context(), path+"/g", strings.NewReader("x"), sandbox.WriteOptions{}), syscall.ENOTDIR)
	require.Equal(t, "two", f.read(t, path, sandbox.OpenOptions{}))

	require.NoError(t, os.Symlink("a/b/f", f.dir+"/link"))
	f.write(t, f.dir+"/link", "three", sandbox.WriteOptions{})
	require.Equal(t, "three", f.read(t, path, sandbox.OpenOptions{}), "through the link")
	require.NoError(t, os.Symlink("loop", f.dir+"/loop"))
	require.ErrorIs(t, f.Write(t.Context(), f.dir+"/loop", strings.NewReader("x"), sandbox.WriteOptions{}), syscall.ELOOP)
	require.Equal(t, []string{"f"}, names(t, f.dir+"/a/b"), "no temporary file")
	require.Equal(t, []string{"a", "link", "loop"}, names(t, f.dir))
}

func TestWriteInPlaceKeepsTheFile(t *testing.T) {
	f := start(t)
	path := f.dir + "/f"
	f.write(t, path, "one", sandbox.WriteOptions{How: sandbox.WriteAppend})
	require.NoError(t, os.Link(path, f.dir+"/g"))
	f.write(t, path, " two", sandbox.WriteOptions{How: sandbox.WriteAppend})
	require.Equal(t, "one two", f.read(t, f.dir+"/g", sandbox.OpenOptions{}))
	f.write(t, path, "3", sandbox.WriteOptions{How: sandbox.WriteInPlace})
	require.Equal(t, "3", f.read(t, f.dir+"/g", sandbox.OpenOptions{}))
	require.ErrorIs(t, f.Write(t.Context(), path, strings.NewReader("x"), sandbox.WriteOptions{How: sandbox.WriteInPlace, Exclusive: true}), fs.ErrExist)
	require.ErrorIs(t, f.Write(t.Context(), path, strings.NewReader("x"), sandbox.WriteOptions{How: "else"}), syscall.EINVAL)
}

func TestAFailedSourceChangesNothing(t *testing.T) {
	f := start(t)
	path := f.dir + "/f"
	f.write(t, path, "old", sandbox.WriteOptions{})
	broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), errReader{io.ErrNoProgress})
	require.ErrorIs(t, f.Write(t.Context(), path, broken, sandbox.WriteOptions{}), io.ErrNoProgress)
	require.Equal(t, "old", f.read(t, path, sandbox.OpenOptions{}))
	ctx, cancel := context.WithCancel(t.Context())
	ends := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, nil
	}))
	require.ErrorIs(t, f.Write(ctx, path, ends, sandbox.WriteOptions{}), context.Canceled)
	require.Equal(t, "old", f.read(t, path, sandbox.OpenOptions{}))
	require.Equal(t, []string{"f"}, names(t, f.dir))
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

type readerFunc func([]byte) (int, error)

func (r readerFunc) Read(p []byte) (int, error) { return r(p) }

// TestAFileAtItsLimitLeavesTheOldOneWhole, and the process works on.
func TestAFileAtItsLimitLeavesTheOldOneWhole(t *testing.T) {
	f := start(t, "prlimit", "--fsize=1000000")
	path := f.dir + "/f"
	f.write(t, path, "old", sandbox.WriteOptions{})
	for range 3 {
		require.ErrorIs(t, f.Write(t.Context(), path, io.LimitReader(zeros{}, 5_000_000), sandbox.WriteOptions{}), syscall.EFBIG)
	}
	require.Equal(t, "old", f.read(t, path, sandbox.OpenOptions{}))
	require.Equal(t, []string{"f"}, names(t, f.dir))
	require.ErrorIs(t, f.Write(t.Context(), path, zeros{}, sandbox.WriteOptions{How: sandbox.WriteAppend}), syscall.EFBIG)
	info, err := f.Stat(t.Context(), path, sandbox.StatOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1_000_000, info.Size)
}

func TestAttributesGoWithTheFile(t *testing.T) {
	f := start(t)
	f.dir = directory(t, "/var/tmp") // not every tmpfs has them
	path := f.dir + "/f"
	attrs := map[string]string{"user.e2b.k": "v", "user.e2b.empty": ""}
	f.write(t, path, "x", sandbox.WriteOptions{Attrs: attrs})
	got, err := f.Stat(t.Context(), path, sandbox.StatOptions{Attrs: true})
	require.NoError(t, err)
	require.Equal(t, attrs, got.Attrs)
	require.NoError(t, f.List(t.Context(), f.dir, sandbox.ListOptions{Attrs: true}, func(info sandbox.FileInfo) error {
		require.Equal(t, attrs, info.Attrs)
		return nil
	}))
	f.write(t, path, "x", sandbox.WriteOptions{})
	got, err = f.Stat(t.Context(), path, sandbox.StatOptions{Attrs: true})
	require.NoError(t, err)
	require.Empty(t, got.Attrs, "a new file has none")
	require.Error(t, f.Write(t.Context(), path, strings.NewReader("y"), sandbox.WriteOptions{Attrs: map[string]string{"trusted.x": "y"}}))
	require.Equal(t, "x", f.read(t, path, sandbox.OpenOptions{}))
	require.Equal(t, []string{"f"}, names(t, f.dir))
}

func TestMove(t *testing.T) {
	f := start(t)
	f.write(t, f.dir+"/f", "x", sandbox.WriteOptions{})
	require.ErrorIs(t, f.Move(t.Context(), f.dir+"/f", f.dir+"/d/g", sandbox.MoveOptions{}), fs.ErrNotExist)
	require.NoError(t, f.Move(t.Context(), f.dir+"/f", f.dir+"/d/g", sandbox.MoveOptions{Parents: true}))
	f.write(t, f.dir+"/f", "y", sandbox.WriteOptions{})
	require.ErrorIs(t, f.Move(t.Context(), f.dir+"/f", f.dir+"/d/g", sandbox.MoveOptions{Exclusive: true}), fs.ErrExist)
	require.NoError(t, f.Move(t.Context(), f.dir+"/f", f.dir+"/d/g", sandbox.MoveOptions{}))
	require.Equal(t, "y", f.read(t, f.dir+"/d/g", sandbox.OpenOptions{}))
	require.NoError(t, f.Move(t.Context(), f.dir+"/d", f.dir+"/e/", sandbox.MoveOptions{}))
	require.ErrorIs(t, f.Move(t.Context(), f.dir+"/e", f.dir+"/e/in", sandbox.MoveOptions{}), syscall.EINVAL)
	require.ErrorIs(t, f.Move(t.Context(), f.dir+"/e/..", f.dir+"/x", sandbox.MoveOptions{}), syscall.EBUSY)
	require.Equal(t, []string{"e"}, names(t, f.dir))
}

func TestMoveBetweenFileSystemsCopies(t *testing.T) {
	f := start(t)
	other := directory(t, "/dev/shm")
	var a, b unix.Stat_t
	require.NoError(t, unix.Stat(f.dir, &a))
	require.NoError(t, unix.Stat(other, &b))
	require.NotEqual(t, a.Dev, b.Dev, "the test needs two file systems")
	f.write(t, f.dir+"/f", "x", sandbox.WriteOptions{Mode: 0o751})
	require.NoError(t, os.Chtimes(f.dir+"/f", time.Time{}, time.Unix(1e9, 0)))
	require.NoError(t, f.Move(t.Context(), f.dir+"/f", other+"/g", sandbox.MoveOptions{}))
	info, err := os.Stat(other + "/g")
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o751), info.Mode())
	require.Equal(t, time.Unix(1e9, 0), info.ModTime())
	f.write(t, f.dir+"/f", "y", sandbox.WriteOptions{})
	require.ErrorIs(t, f.Move(t.Context(), f.dir+"/f", other+"/g", sandbox.MoveOptions{Exclusive: true}), fs.ErrExist)
	require.NoError(t, os.Symlink("g", f.dir+"/link"))
	own(t, f.dir+"/link")
	require.NoError(t, f.Move(t.Context(), f.dir+"/link", other+"/link", sandbox.MoveOptions{}))
	require.Equal(t, "x", f.read(t, other+"/link", sandbox.OpenOptions{}))
	require.NoError(t, f.Mkdir(t.Context(), f.dir+"/d", sandbox.MkdirOptions{}))
	require.ErrorIs(t, f.Move(t.Context(), f.dir+"/d", other+"/d", sandbox.MoveOptions{}), syscall.EXDEV)
	require.Equal(t, []string{"d", "f"}, names(t, f.dir))
}

func TestMkdirAndChmod(t *testing.T) {
	f := start(t)
	require.ErrorIs(t, f.Mkdir(t.Context(), f.dir+"/a/b", sandbox.MkdirOptions{}), fs.ErrNotExist)
	require.NoError(t, f.Mkdir(t.Context(), f.dir+"/a/b/", sandbox.MkdirOptions{Parents: true, Mode: 0o777}))
	require.ErrorIs(t, f.Mkdir(t.Context(), f.dir+"/a/b", sandbox.MkdirOptions{Parents: true}), fs.ErrExist)
	got, err := f.Stat(t.Context(), f.dir+"/a/b", sandbox.StatOptions{})
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|0o777, got.Mode)
	require.NoError(t, f.Chmod(t.Context(), f.dir+"/a/b", 0))
	got, err = f.Stat(t.Context(), f.dir+"/a/b", sandbox.StatOptions{})
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir, got.Mode)
}

func TestManyOperationsAtOnce(t *testing.T) {
	f := start(t)
	big := strings.Repeat("0123456789abcdef", 100_000)
	f.write(t, f.dir+"/big", big, sandbox.WriteOptions{})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			path := fmt.Sprintf("%s/%d", f.dir, i)
			require.NoError(t, f.Write(t.Context(), path, strings.NewReader(big), sandbox.WriteOptions{}))
			r, err := f.Open(t.Context(), path, sandbox.OpenOptions{})
			require.NoError(t, err)
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.True(t, string(got) == big)
			require.NoError(t, r.Close())
			_, err = f.Stat(t.Context(), path, sandbox.StatOptions{})
			require.NoError(t, err)
			require.NoError(t, f.Remove(t.Context(), path, sandbox.RemoveOptions{}))
		})
	}
	wg.Wait()
	require.Equal(t, []string{"big"}, names(t, f.dir))
}

func TestWritersOfOneFileDoNotMix(t *testing.T) {
	f := start(t)
	var wg sync.WaitGroup
	for i := range 30 {
		text := strings.Repeat(fmt.Sprintf("%02d", i), 200_000)
		wg.Go(func() {
			require.NoError(t, f.Write(t.Context(), f.dir+"/f", strings.NewReader(text), sandbox.WriteOptions{}))
		})
	}
	wg.Wait()
	got := f.read(t, f.dir+"/f", sandbox.OpenOptions{})
	require.Equal(t, strings.Repeat(got[:2], 200_000), got)
	require.Equal(t, []string{"f"}, names(t, f.dir))
}

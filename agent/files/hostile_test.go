package files_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
)

const deadline = 20 * time.Second

func TestRemoveDoesNotFollowLinks(t *testing.T) {
	f := start(t)
	keep := directory(t, "/tmp")
	f.write(t, keep+"/precious", "x", sandbox.WriteOptions{})
	f.sh(t, fmt.Sprintf("mkdir -p %[1]s/d/e && ln -s %[2]s %[1]s/d/e/link && ln -s %[2]s %[1]s/link", f.dir, keep))
	require.ErrorIs(t, f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{}), fs.ErrExist)
	require.NoError(t, f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{Recursive: true}))
	require.NoError(t, f.Remove(t.Context(), f.dir+"/link/", sandbox.RemoveOptions{Recursive: true}))
	require.Empty(t, names(t, f.dir))
	require.Equal(t, []string{"precious"}, names(t, keep))
	require.ErrorIs(t, f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{Recursive: true}), fs.ErrNotExist)
	for _, path := range []string{"/", "//", f.dir + "/.", f.dir + "/.."} {
		require.Error(t, f.Remove(t.Context(), path, sandbox.RemoveOptions{Recursive: true}), path)
	}
}

func TestRemoveIsBoundedBySteps(t *testing.T) {
	f := start(t)
	f.sh(t, "mkdir -p "+f.dir+"/d/{1,2,3}/{1,2,3}")
	require.ErrorIs(t, f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{Recursive: true, Limit: 5}), sandbox.ErrFileLimit)
	require.NoError(t, f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{Recursive: true}))
	f.sh(t, fmt.Sprintf("mkdir -p %[1]s/d/e/f && chmod 0 %[1]s/d/e", f.dir))
	err := f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{Recursive: true})
	if os.Geteuid() == 0 {
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, "/d, at e: permission denied")
	}
	require.NoError(t, os.Chmod(f.dir+"/d/e", 0o755))
}

// TestRemoveOfAnyDepthNeedsFewDescriptors has paths a hundred times as long as the kernel
// takes, which programs can make step by step.
func TestRemoveOfAnyDepthNeedsFewDescriptors(t *testing.T) {
	f := start(t)
	f.sh(t, fmt.Sprintf("cd %s && mkdir d && cd d && python3 -c 'import os\nfor i in range(20000):\n os.mkdir(\"deep-deep-deep-deep\"); os.chdir(\"deep-deep-deep-deep\")\n if i %% 1000 == 0: open(\"f\", \"w\")'", f.dir))
	limit := func(info sandbox.FileInfo) error { return nil }
	require.ErrorIs(t, f.List(t.Context(), f.dir, sandbox.ListOptions{Depth: 1 << 30}, limit), sandbox.ErrFileLimit, "a path would be too long")
	require.NoError(t, f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{Recursive: true}))
	require.Empty(t, names(t, f.dir))
}

// TestLinksThatAreSwappedDuringARemoval: whatever a program does meanwhile, nothing that
// only a link leads to is removed.
func TestLinksThatAreSwappedDuringARemoval(t *testing.T) {
	f := start(t)
	keep := directory(t, "/tmp")
	f.sh(t, fmt.Sprintf("mkdir -p %[1]s/{1..20}/{1..5} && touch %[1]s/{1..20}/{1..5}/f", keep))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	defer r.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := f.conn.Run(ctx, sandbox.Cmd{Dir: ".", Stdout: w, Argv: []string{"python3", "-c", `
import os,sys
def quiet(f,*a):
    try: f(*a)
    except OSError: pass
i=0
while True:
    i+=1
    quiet(os.makedirs,"d/a/b/c")
    quiet(os.mkdir,"d/a/e")
    quiet(os.rename,"d/a","d/x")
    quiet(os.symlink,sys.argv[1],"d/a")
    quiet(os.unlink,"d/a")
    quiet(os.rename,"d/x","d/a")
    if i==50: os.write(1,b"x")
`, keep}})
		ended <- err
	}()
	_, err := io.ReadFull(r, make([]byte, 1))
	require.NoError(t, err)
	for range 300 {
		_ = f.Remove(t.Context(), f.dir+"/d", sandbox.RemoveOptions{Recursive: true})
	}
	cancel()
	require.NoError(t, <-ended)
	found := 0
	require.NoError(t, filepath.WalkDir(keep, func(string, fs.DirEntry, error) error { found++; return nil }))
	require.Equal(t, 1+20+100+100, found)
}

// TestAKilledWriteLeavesNothingAfterTheNext kills the process at many points.
func TestAKilledWriteLeavesNothingAfterTheNext(t *testing.T) {
	f := start(t)
	path := f.dir + "/f"
	f.write(t, path, "0", sandbox.WriteOptions{})
	interrupted := 0
	for i := range 60 {
		text := strings.Repeat(strconv.Itoa(i%10), 300_000)
		n := 0
		err := f.Write(t.Context(), path, readerFunc(func(p []byte) (int, error) {
			if n++; n == i%8+1 {
				f.sh(t, `for p in /proc/[0-9]*; do readlink $p/fd/* 2>/dev/null | grep -q ^`+f.dir+` && kill -9 ${p#/proc/}; done; true`)
			}
			take := min(len(p), len(text))
			copy(p, text[:take])
			if text = text[take:]; take == 0 {
				return 0, io.EOF
			}
			return take, nil
		}), sandbox.WriteOptions{})
		if err != nil {
			require.ErrorIs(t, err, sandbox.ErrInterrupted)
			interrupted++
		}
		got := f.read(t, path, sandbox.OpenOptions{})
		require.Equal(t, strings.Repeat(got[:1], len(got)), got, "old or new")
		require.LessOrEqual(t, len(names(t, f.dir)), 2)
	}
	require.Greater(t, interrupted, 20)
	f.write(t, path, "last", sandbox.WriteOptions{})
	require.Equal(t, []string{"f"}, names(t, f.dir))
}

// TestWhatHasTheNameOfATemporaryFile isn't touched.
func TestWhatHasTheNameOfATemporaryFile(t *testing.T) {
	f := start(t)
	path := f.dir + "/f"
	started, free := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		n := 0
		done <- f.Write(t.Context(), path, readerFunc(func(p []byte) (int, error) {
			if n++; n == 3 {
				close(started)
				<-free
				return 0, io.EOF
			}
			return copy(p, "first"), nil
		}), sandbox.WriteOptions{})
	}()
	<-started
	var temp string
	require.Eventually(t, func() bool {
		all := names(t, f.dir)
		if len(all) == 1 {
			temp = all[0]
		}
		return temp != ""
	}, deadline, time.Millisecond)
	require.True(t, strings.HasPrefix(temp, ".wisbox-"), temp)
	f.write(t, path, "second", sandbox.WriteOptions{})
	close(free)
	require.NoError(t, <-done)
	require.Equal(t, "firstfirst", f.read(t, path, sandbox.OpenOptions{}))
	// A program may have it as a link, a pipe, a directory, or as another name of a file.
	for _, make := range []string{"ln -s victim %[2]s", "ln victim %[2]s", "mkdir %[2]s", "mkfifo %[2]s"} {
		f.sh(t, fmt.Sprintf("cd %[1]s && echo -n precious >victim && "+make, f.dir, temp))
		f.write(t, path, "third", sandbox.WriteOptions{})
		require.Equal(t, "precious", f.read(t, f.dir+"/victim", sandbox.OpenOptions{}))
		f.sh(t, "cd "+f.dir+" && rm -r "+temp)
	}
}

func TestAGigabyteNeedsNoMemory(t *testing.T) {
	size := int64(1 << 30)
	if hosttest.Raced { // which copies 10 MiB a second
		size = 128 << 20
	}
	f := start(t)
	path := directory(t, "/var/tmp") + "/big"
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	require.NoError(t, f.Write(t.Context(), path, io.LimitReader(zeros{}, size), sandbox.WriteOptions{}))
	t.Logf("written: %.0f MiB/s", float64(size>>20)/time.Since(begin).Seconds())
	begin = time.Now()
	r, err := f.Open(t.Context(), path, sandbox.OpenOptions{})
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	require.NoError(t, r.Close())
	t.Logf("read: %.0f MiB/s", float64(size>>20)/time.Since(begin).Seconds())
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.Sys)-int64(before.Sys), int64(16<<20))
	status := f.read(t, "/proc/self/status", sandbox.OpenOptions{})
	_, rest, _ := strings.Cut(status, "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	t.Logf("inside: %d KiB", kib)
	require.Less(t, kib, 64<<10, "of a test binary; it is a tenth of that alone")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestACancelledOperationEndsAtOnce, wherever it is.
func TestACancelledOperationEndsAtOnce(t *testing.T) {
	f := start(t)
	for name, operation := range map[string]func(ctx context.Context, cancel func()) error{
		"read": func(ctx context.Context, cancel func()) error {
			r, err := f.Open(ctx, "/dev/zero", sandbox.OpenOptions{Any: true})
			require.NoError(t, err)
			defer r.Close()
			cancel()
			_, err = io.Copy(io.Discard, r)
			return err
		},
		"write": func(ctx context.Context, cancel func()) error {
			return f.Write(ctx, f.dir+"/endless", readerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }), sandbox.WriteOptions{})
		},
		"list": func(ctx context.Context, cancel func()) error {
			return f.List(ctx, "/proc", sandbox.ListOptions{Depth: 20}, func(sandbox.FileInfo) error { cancel(); return nil })
		},
		"watch": func(ctx context.Context, cancel func()) error {
			w, err := f.Watch(ctx, f.dir, sandbox.WatchOptions{})
			require.NoError(t, err)
			defer w.Close()
			time.AfterFunc(time.Millisecond, cancel)
			_, err = w.Next()
			return err
		},
		"before": func(ctx context.Context, cancel func()) error {
			cancel()
			return f.Mkdir(ctx, f.dir+"/never", sandbox.MkdirOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begin := time.Now()
			require.ErrorIs(t, operation(ctx, cancel), context.Canceled)
			require.Less(t, time.Since(begin), deadline)
		})
	}
	require.Empty(t, names(t, f.dir))
	_, err := f.Stat(t.Context(), f.dir, sandbox.StatOptions{})
	require.NoError(t, err)
}

func TestTheEndOfTheConnectionEndsAll(t *testing.T) {
	f := start(t)
	w, err := f.Watch(t.Context(), f.dir, sandbox.WatchOptions{})
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, f.conn.Close())
	_, err = w.Next()
	require.ErrorIs(t, err, sandbox.ErrLost)
	_, err = f.Stat(t.Context(), f.dir, sandbox.StatOptions{})
	require.ErrorIs(t, err, sandbox.ErrLost)
}

// TestProgramsDoNotShareWithFiles: a process that waits makes no verdict doubtful.
func TestProgramsDoNotShareWithFiles(t *testing.T) {
	f := start(t)
	_, err := f.Stat(t.Context(), f.dir, sandbox.StatOptions{})
	require.NoError(t, err)
	got, err := f.conn.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	require.False(t, got.Shared)
}

package files_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// until reads changes up to that of a name.
func until(t testing.TB, w sandbox.FileWatch, last string) (all []string) {
	t.Helper()
	for {
		e, err := w.Next()
		require.NoError(t, err)
		all = append(all, string(e.Change)+" "+e.Name)
		if e.Name == last {
			return all
		}
	}
}

func (f *fixture) watch(t testing.TB, opts sandbox.WatchOptions) sandbox.FileWatch {
	t.Helper()
	w, err := f.Watch(t.Context(), f.dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

func TestWatchReportsEachKindOfChange(t *testing.T) {
	f := start(t)
	f.dir += "/watched" // no process stands in it
	f.sh(t, "mkdir "+f.dir)
	w := f.watch(t, sandbox.WatchOptions{})
	f.sh(t, "cd "+f.dir+" && echo x >a && mv a b && chmod 600 b && rm b && mkdir d && echo y >d/below && touch end")
	require.Equal(t, []string{"created a", "written a", "renamed a", "created b", "mode b", "removed b", "created d", "created end"}, until(t, w, "end"))
	f.write(t, f.dir+"/ours", "x", sandbox.WriteOptions{})
	f.sh(t, "touch "+f.dir+"/end2")
	got := until(t, w, "end2")
	require.Equal(t, []string{"created ours", "written ours", "created end2"}, slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "mode ") }))
	f.sh(t, "rm -r "+f.dir)
	for {
		e, err := w.Next()
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		if e.Name == "" {
			require.Equal(t, sandbox.FileRemoved, e.Change)
		}
	}
	_, err := f.Watch(t.Context(), f.dir, sandbox.WatchOptions{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = f.Watch(t.Context(), "/etc/passwd", sandbox.WatchOptions{})
	require.ErrorIs(t, err, syscall.ENOTDIR)
}

// TestARecursiveWatchFollowsNewDirectories, and misses nothing that is made in them
// before it can look.
func TestARecursiveWatchFollowsNewDirectories(t *testing.T) {
	f := start(t)
	f.sh(t, "mkdir -p "+f.dir+"/old/deep")
	w := f.watch(t, sandbox.WatchOptions{Recursive: true})
	f.sh(t, "cd "+f.dir+" && echo x >old/deep/f && for i in {1..50}; do mkdir -p n$i/a/b && echo x >n$i/a/b/f; done; touch end")
	got := until(t, w, "end")
	require.Contains(t, got, "written old/deep/f")
	for i := range 50 {
		for _, path := range []string{"n%d", "n%d/a", "n%d/a/b", "n%d/a/b/f"} {
			name := "created " + fmt.Sprintf(path, i+1)
			require.Equal(t, 1, count(got, name), name)
		}
		require.GreaterOrEqual(t, count(got, fmt.Sprintf("written n%d/a/b/f", i+1)), 1)
	}
	f.sh(t, "cd "+f.dir+" && mv n1 old/m1 && echo y >old/m1/a/b/g && ln -s /tmp link && touch end2")
	got = until(t, w, "end2")
	require.Contains(t, got, "renamed n1")
	require.Contains(t, got, "created old/m1")
	require.Contains(t, got, "created old/m1/a/b/g")
	require.Contains(t, got, "created link")
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

func TestAWatchIsBounded(t *testing.T) {
	f := start(t)
	for range 4 {
		w := f.watch(t, sandbox.WatchOptions{})
		defer w.Close()
	}
	_, err := f.Watch(t.Context(), f.dir, sandbox.WatchOptions{})
	require.ErrorIs(t, err, sandbox.ErrFileLimit)
	_, err = f.Stat(t.Context(), f.dir, sandbox.StatOptions{})
	require.NoError(t, err, "others go on")
}

func TestAWatchOfMoreThanItMayIsRefused(t *testing.T) {
	f := start(t)
	f.sh(t, "mkdir -p "+f.dir+"/{1..20}")
	_, err := f.Watch(t.Context(), f.dir, sandbox.WatchOptions{Recursive: true, Limit: 10})
	require.ErrorIs(t, err, sandbox.ErrFileLimit)
	w := f.watch(t, sandbox.WatchOptions{Recursive: true, Limit: 21})
	f.sh(t, "mkdir "+f.dir+"/more")
	for {
		if _, err = w.Next(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, sandbox.ErrFileLimit)
}

// TestTenThousandChanges all come, where somebody reads them.
func TestTenThousandChanges(t *testing.T) {
	f := start(t)
	w := f.watch(t, sandbox.WatchOptions{})
	made := make(chan error, 1)
	go func() {
		_, err := f.conn.Run(context.Background(), sandbox.Cmd{Argv: []string{"bash", "-c", "cd " + f.dir + " && for i in {1..10000}; do >$i; done; touch end"}})
		made <- err
	}()
	got := until(t, w, "end")
	require.NoError(t, <-made)
	require.NotContains(t, got, "lost ")
	require.Len(t, slices.DeleteFunc(got, func(s string) bool { return !strings.HasPrefix(s, "created ") }), 10_001)
}

// TestLostChangesAreTold, where nobody does.
func TestLostChangesAreTold(t *testing.T) {
	f := start(t)
	w := f.watch(t, sandbox.WatchOptions{})
	f.sh(t, `cd `+f.dir+` && python3 -c '
import os
a="a"*200; b="b"*200
open(a,"w").close()
for i in range(30000):
    os.rename(a,b); os.rename(b,a)
'`)
	lost := false
	for !lost {
		e, err := w.Next()
		require.NoError(t, err)
		lost = e.Change == sandbox.FilesLost
	}
	f.sh(t, "touch "+f.dir+"/end")
	until(t, w, "end")
}

func TestCloseEndsNext(t *testing.T) {
	f := start(t)
	w := f.watch(t, sandbox.WatchOptions{})
	ended := make(chan error, 1)
	go func() {
		_, err := w.Next()
		ended <- err
	}()
	require.NoError(t, w.Close())
	require.ErrorIs(t, <-ended, fs.ErrClosed)
}

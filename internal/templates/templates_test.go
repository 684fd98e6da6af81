package templates_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// With this variable, the test binary creates templates until it is killed.
const victimVariable = "WISBOX_TEMPLATES_VICTIM"

func TestMain(m *testing.M) {
	if job := os.Getenv(victimVariable); job != "" {
		dir, id, _ := strings.Cut(job, "|")
		fmt.Fprintln(os.Stderr, victim(dir, id))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func victim(dir, id string) error {
	s, err := openSnapshots(dir)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	store := templates.Open(filepath.Join(dir, "templates"), slog.New(slog.DiscardHandler))
	for {
		made, err := store.Create(context.Background(), templates.Template{Name: "kept"}, templates.Source{Snapshots: s, ID: id})
		if err != nil {
			return err
		}
		if err := store.Remove(context.Background(), made.ID); err != nil {
			return err
		}
	}
}

func openSnapshots(dir string) (*snapshot.Store, error) {
	o := &snapshot.Options{}
	for name, root := range map[string]**os.Root{"ws": &o.Workspace, "tmp": &o.Tmp, "store": &o.Store} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
		r, err := os.OpenRoot(path)
		if err != nil {
			return nil, err
		}
		*root = r
	}
	return snapshot.New(o)
}

// bench is a workspace with snapshots, and templates next to it.
type bench struct {
	t         *testing.T
	dir       string
	snapshots *snapshot.Store
	templates *templates.Store
	log       bytes.Buffer
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	b.snapshots = b.open(b.dir)
	b.templates = templates.Open(filepath.Join(b.dir, "templates"), slog.New(slog.NewTextHandler(&b.log, nil)))
	return b
}

func (b *bench) open(dir string) *snapshot.Store {
	b.t.Helper()
	s, err := openSnapshots(dir)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { assert.NoError(b.t, s.Close()) })
	return s
}

func (b *bench) write(name, text string) string {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, "ws", name), []byte(text), 0o600))
	info, err := b.snapshots.Create(b.t.Context(), nil)
	require.NoError(b.t, err)
	return info.ID
}

func (b *bench) create(t templates.Template, id string) templates.Template {
	b.t.Helper()
	made, err := b.templates.Create(b.t.Context(), t, templates.Source{Snapshots: b.snapshots, ID: id, Extra: map[string][]byte{"a": []byte("b")}})
	require.NoError(b.t, err)
	return made
}

// filled returns the content of a new workspace that a template has filled.
func (b *bench) filled(u *templates.Used, name string) string {
	b.t.Helper()
	dir := b.t.TempDir()
	require.NoError(b.t, u.FillInto(b.t.Context(), b.open(dir)))
	raw, err := os.ReadFile(filepath.Join(dir, "ws", name))
	require.NoError(b.t, err)
	return string(raw)
}

func (b *bench) use(id string) *templates.Used {
	b.t.Helper()
	u, err := b.templates.Use(b.t.Context(), id)
	require.NoError(b.t, err)
	return u
}

// names returns the content of the directory of templates, except for its lock.
func (b *bench) names() (names []string) {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, "templates"))
	require.NoError(b.t, err)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestATemplateHoldsOneStateAndNoOther(t *testing.T) {
	b := newBench(t)
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	b.write("secret", string(large))
	require.NoError(t, os.Remove(filepath.Join(b.dir, "ws", "secret")))
	id := b.write("f", "1")
	made := b.create(templates.Template{Name: "n", Owner: "o", Session: "s", Image: "i"}, id)
	assert.Less(t, made.Disk, int64(64<<10), "what only another snapshot needs is left out")
	b.write("f", "2")
	u := b.use(made.ID)
	assert.Equal(t, "1", b.filled(u, "f"))
	assert.Equal(t, map[string][]byte{"a": []byte("b")}, u.Extra)
	require.NoError(t, u.Close())
	all, err := b.templates.List()
	require.NoError(t, err)
	assert.Equal(t, []templates.Template{made}, all)
}

func TestANameIsTheNewestOfItsOwner(t *testing.T) {
	b := newBench(t)
	id := b.write("f", "1")
	all := map[string]templates.Template{}
	for _, owner := range []string{"a", "b", "a"} {
		all[owner] = b.create(templates.Template{Name: "n", Owner: owner}, id)
	}
	for owner, want := range all {
		found, err := b.templates.Find("n", owner)
		require.NoError(t, err)
		assert.Equal(t, want.Created, found.Created, "they may have been made in the same millisecond")
		assert.Equal(t, owner, found.Owner)
	}
	_, err := b.templates.Find("n", "")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	for _, name := range []string{"-a", "a b", strings.Repeat("a", 129), strings.Repeat("a", 20), "../x\n"} {
		_, err := b.templates.Create(t.Context(), templates.Template{Name: name}, templates.Source{Snapshots: b.snapshots, ID: id})
		assert.Equal(t, tool.Invalid, tool.KindOf(err), name)
	}
	for _, ref := range []string{"", ".", "..", "nosuch", strings.Repeat("z", 20)} {
		_, err := b.templates.Find(ref, "a")
		assert.Equal(t, tool.NotFound, tool.KindOf(err), ref)
		_, err = b.templates.Use(t.Context(), ref)
		assert.Equal(t, tool.NotFound, tool.KindOf(err), ref)
		assert.Equal(t, tool.NotFound, tool.KindOf(b.templates.Remove(t.Context(), ref)), ref)
	}
}

func TestARemovalWaitsForWhoUsesTheTemplate(t *testing.T) {
	b := newBench(t)
	made := b.create(templates.Template{}, b.write("f", "1"))
	u := b.use(made.ID)
	l := flock.New(filepath.Join(b.dir, "templates", made.ID, "lock"))
	ok, err := l.TryLock() // like a removal
	require.NoError(t, err)
	assert.False(t, ok)
	ok, err = l.TryRLock()
	require.NoError(t, err)
	assert.True(t, ok, "others may use it too")
	require.NoError(t, l.Close())
	var removal sync.WaitGroup
	removal.Go(func() { assert.NoError(t, b.templates.Remove(t.Context(), made.ID)) })
	assert.Equal(t, "1", b.filled(u, "f"))
	assert.Equal(t, []string{made.ID}, b.names(), "it is there as long as it is used")
	require.NoError(t, u.Close())
	removal.Wait()
	assert.Empty(t, b.names())
}

func TestAFailureLeavesNothing(t *testing.T) {
	b := newBench(t)
	id := b.write("f", "1")
	_, err := b.templates.Create(t.Context(), templates.Template{}, templates.Source{Snapshots: b.snapshots, ID: "nosuch"})
	require.Error(t, err)
	full := func(context.Context) error { return tool.Errorf(tool.NoSpace, "full") }
	_, err = b.templates.Create(t.Context(), templates.Template{}, templates.Source{Snapshots: b.snapshots, ID: id, Room: full})
	assert.Equal(t, tool.NoSpace, tool.KindOf(err))
	assert.Empty(t, b.names())
}

func TestAProcessKilledAnywhereLeavesWholeTemplatesAlone(t *testing.T) {
	b := newBench(t)
	id := b.write("f", strings.Repeat("1", 1000))
	for i := range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), victimVariable+"="+b.dir+"|"+id)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 5))
		require.NoError(t, err)
		<-time.After(time.Duration(i*7) * time.Millisecond) // somewhere in its loop
		cancel()
		exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
		require.True(t, ok)
		how := exit.Sys().(syscall.WaitStatus)
		require.True(t, how.Signaled() && how.Signal() == syscall.SIGKILL, "it ended by itself: %s", exit)
		all, err := b.templates.List()
		require.NoError(t, err)
		for _, found := range all {
			u := b.use(found.ID)
			assert.Len(t, b.filled(u, "f"), 1000)
			require.NoError(t, u.Close())
		}
		made := b.create(templates.Template{}, id)
		assert.Len(t, b.names(), len(all)+1, "what was half made or removed has gone")
		for _, gone := range append(all, made) {
			require.NoError(t, b.templates.Remove(t.Context(), gone.ID))
		}
	}
}

func TestWhatIsBeingMadeIsNotSwept(t *testing.T) {
	b := newBench(t)
	id := b.write("f", "1")
	made := filepath.Join(b.dir, "templates", ".new-x")
	require.NoError(t, os.MkdirAll(made, 0o700))
	l := flock.New(filepath.Join(made, "lock"))
	require.NoError(t, l.Lock())
	b.create(templates.Template{}, id)
	assert.DirExists(t, made)
	assert.Empty(t, b.templates.Sweep(t.Context(), false))
	require.NoError(t, l.Close())
	b.create(templates.Template{}, id)
	assert.NoDirExists(t, made)
}

func TestWhatIsLeftIsSwept(t *testing.T) {
	b := newBench(t)
	assert.Empty(t, b.templates.Sweep(t.Context(), false))
	assert.NoDirExists(t, filepath.Join(b.dir, "templates"), "looking makes nothing")
	whole := b.create(templates.Template{}, b.write("f", "1"))
	left := []string{".gone-x", ".new-y"}
	for _, name := range left {
		require.NoError(t, os.MkdirAll(filepath.Join(b.dir, "templates", name, "full"), 0o700))
	}
	assert.Equal(t, left, b.templates.Sweep(t.Context(), true))
	assert.Len(t, b.names(), 3)
	assert.Equal(t, left, b.templates.Sweep(t.Context(), false))
	assert.Equal(t, []string{whole.ID}, b.names())
	assert.Empty(t, b.log.String())
}

// TestATemplateThatCantBeReadHidesNoOther, nor what isn't there.
func TestATemplateThatCantBeReadHidesNoOther(t *testing.T) {
	b := newBench(t)
	id := b.write("f", "1")
	good, bad := b.create(templates.Template{Name: "good", Owner: "a"}, id), b.create(templates.Template{Name: "bad", Owner: "b"}, id)
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "templates", bad.ID, "template.json"), []byte("{"), 0o600))
	found, err := b.templates.Find("good", "a")
	require.NoError(t, err)
	assert.Equal(t, good, found)
	_, err = b.templates.Find("nosuch", "a")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	assert.Contains(t, b.log.String(), bad.ID)
	_, err = b.templates.Find(bad.ID, "b")
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
}

func TestATemplateThatCouldntBeReadIsntMade(t *testing.T) {
	b := newBench(t)
	_, err := b.templates.Create(t.Context(), templates.Template{}, templates.Source{
		Snapshots: b.snapshots, ID: b.write("f", "1"), Extra: map[string][]byte{"a": make([]byte, 13<<20)}, // larger in base64
	})
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	assert.Empty(t, b.names())
}

// TestAListingReadsNoFileTwice unless it has changed: a file may have many MiB.
func TestAListingReadsNoFileTwice(t *testing.T) {
	b := newBench(t)
	made := b.create(templates.Template{Name: "n", Owner: "a", Built: true, Tags: []string{"one"}}, b.write("f", "x"))
	_, err := b.templates.List()
	require.NoError(t, err)
	path := filepath.Join(b.dir, "templates", made.ID, "template.json")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("x"), int(info.Size())), 0o600))
	require.NoError(t, os.Chtimes(path, time.Time{}, info.ModTime()))
	all, err := b.templates.List()
	require.NoError(t, err, "the file was read")
	require.Equal(t, []templates.Template{made}, all)
	all[0].Tags[0] = "another"

	require.NoError(t, os.Chtimes(path, time.Time{}, info.ModTime().Add(time.Second)))
	all, err = b.templates.List()
	require.Error(t, err, "it has changed")
	assert.Empty(t, all)
}

// TestAListingHasWhatAnotherProcessChanged.
func TestAListingHasWhatAnotherProcessChanged(t *testing.T) {
	b := newBench(t)
	made := b.create(templates.Template{Name: "n", Built: true}, b.write("f", "x"))
	_, err := b.templates.List()
	require.NoError(t, err)
	other := templates.Open(filepath.Join(b.dir, "templates"), slog.New(slog.DiscardHandler))
	_, err = other.Tag(t.Context(), made.ID, []string{"v1"})
	require.NoError(t, err)
	all, err := b.templates.List()
	require.NoError(t, err)
	assert.Equal(t, []string{"v1"}, all[0].Tags)
	require.NoError(t, other.Remove(t.Context(), made.ID))
	all, err = b.templates.List()
	require.NoError(t, err)
	assert.Empty(t, all)
}

// TestATemplatesDiskHasWhatIsKeptWithIt.
func TestATemplatesDiskHasWhatIsKeptWithIt(t *testing.T) {
	b := newBench(t)
	id := b.write("f", "x")
	small, err := b.templates.Create(t.Context(), templates.Template{}, templates.Source{Snapshots: b.snapshots, ID: id})
	require.NoError(t, err)
	large, err := b.templates.Create(t.Context(), templates.Template{}, templates.Source{Snapshots: b.snapshots, ID: id, Extra: map[string][]byte{"a": make([]byte, 3<<20)}})
	require.NoError(t, err)
	assert.Equal(t, int64(4<<20), large.Disk-small.Disk)
}

// TestFindReadsATemplateOnce: what it carries may have many MiB.
func TestFindReadsATemplateOnce(t *testing.T) {
	b := newBench(t)
	id := b.write("f", "x")
	made, err := b.templates.Create(t.Context(), templates.Template{Name: "n"}, templates.Source{Snapshots: b.snapshots, ID: id, Extra: map[string][]byte{"a": make([]byte, 4<<20)}})
	require.NoError(t, err)
	_, err = b.templates.Find(made.ID, "")
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found, err := b.templates.Find(made.ID, "")
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Equal(t, made.Name, found.Name)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

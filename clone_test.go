package wisbox_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/tool"
)

func mounts(host, at string) []hostmount.Mount {
	return []hostmount.Mount{{HostPath: host, MountPath: at}}
}

// sink collects events.
type sink struct {
	mu   sync.Mutex
	seen []string
}

func (s *sink) take(e wisbox.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, e.Tool+" "+e.Path)
}

func TestAFullCloneIsItsOwn(t *testing.T) {
	eachHere(t, wisbox.SessionOptions{Env: map[string]string{"WHO": "both"}}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"d/f","content":"1"}`)
		text(t, s, "workspace_digest", `{"set":"said"}`)
		var events sink
		c, err := s.Clone(t.Context(), &wisbox.CloneOptions{OnEvent: events.take})
		require.NoError(t, err)
		defer c.Close(t.Context())
		assert.NotEqual(t, s.ID(), c.ID())
		assert.Equal(t, "1", content(t, c, "d/f"))
		text(t, c, "write_file", `{"file_path":"d/f","content":"2","mode":"overwrite"}`)
		script(t, c, "echo c >c; printenv WHO >who")
		script(t, s, "echo s >s")
		assert.Equal(t, "1", content(t, s, "d/f"))
		assert.Equal(t, "2", content(t, c, "d/f"))
		assert.Equal(t, "(none)", content(t, s, "c"))
		assert.Equal(t, "(none)", content(t, c, "s"))
		assert.Equal(t, "both\n", content(t, c, "who"), "settings go along")
		assert.Contains(t, text(t, c, "workspace_digest", `{}`), "said")
		assert.Equal(t, []string{"write_file d/f", "shell_execute ", "workspace_digest "}, events.seen)
		assert.NotContains(t, text(t, s, "snapshot_list", `{}`), "cloned", "the source keeps no snapshot of it")
	})
}

func TestACloneBeginsWithWhatWasDefinedInLisp(t *testing.T) {
	s := session(t, wisbox.SessionOptions{})
	record := func(s *wisbox.Session) string { return filepath.Join(sessionDir(s), "lisp.json") }
	require.NoError(t, os.WriteFile(record(s), []byte("[]"), 0o600))
	c, err := s.Clone(t.Context(), nil)
	require.NoError(t, err)
	assert.FileExists(t, record(c))
	require.NoError(t, c.Reset(t.Context()))
	assert.NoFileExists(t, record(c))
	assert.FileExists(t, record(s))
}

// TestACopyKeepsVersionsAndTimes covers a clone, a clone of it, and an archive.
func TestACopyKeepsVersionsAndTimes(t *testing.T) {
	eachHere(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"d/f","content":"1"}`)
		text(t, s, "write_file", `{"file_path":"d/f","content":"2","mode":"overwrite"}`)
		known := func(s *wisbox.Session) (at struct {
			Version   int64  `json:"version"`
			CreatedAt string `json:"created_at"`
		}) {
			require.NoError(t, json.Unmarshal([]byte(text(t, s, "read_file", `{"file_path":"d/f"}`)), &at))
			return at
		}
		was := known(s)
		require.EqualValues(t, 2, was.Version)
		c, err := s.Clone(t.Context(), nil)
		require.NoError(t, err)
		defer c.Close(t.Context())
		again, err := c.Clone(t.Context(), nil)
		require.NoError(t, err)
		defer again.Close(t.Context())
		assert.Equal(t, was, known(again))
		assert.Equal(t, was, known(c))
		text(t, c, "write_file", `{"file_path":"d/f","content":"3","mode":"overwrite"}`)
		assert.EqualValues(t, 3, known(c).Version)
		assert.Equal(t, was.CreatedAt, known(c).CreatedAt)
		assert.Equal(t, was, known(s))
	})
}

func TestASharedCloneIsAnotherHandle(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		c, err := s.Clone(t.Context(), &wisbox.CloneOptions{Mode: wisbox.Shared})
		require.NoError(t, err)
		assert.Equal(t, s.ID(), c.ID())
		script(t, s, "echo 1 >f")
		assert.Contains(t, script(t, c, "cat f"), `1\n`)
		require.NoError(t, s.Close(t.Context()))
		_, err = call(t, s, "ls", `{}`)
		assert.Equal(t, tool.Closed, tool.KindOf(err))
		assert.Contains(t, script(t, c, "cat f"), `1\n`, "the last one closes")
		path := c.WorkspacePath()
		require.NoError(t, c.Close(t.Context()))
		if !c.Options().Kept {
			assert.NoDirExists(t, path)
		}
	})
}

func TestAForkIsSeveralClonesOfOneState(t *testing.T) {
	s := session(t, wisbox.SessionOptions{})
	text(t, s, "write_file", `{"file_path":"f","content":"1"}`)
	forks, err := s.Fork(t.Context(), 3, &wisbox.CloneOptions{Name: "try", Kept: true})
	require.NoError(t, err)
	for i, f := range forks {
		assert.Equal(t, "try-"+string(rune('1'+i)), f.ID())
		assert.Equal(t, "1", content(t, f, "f"))
		text(t, f, "write_file", `{"file_path":"own","content":"`+f.ID()+`"}`)
	}
	assert.Equal(t, "(none)", content(t, s, "own"))
	_, err = s.Fork(t.Context(), 2, &wisbox.CloneOptions{Name: "try", Kept: true})
	assert.Equal(t, tool.Exists, tool.KindOf(err))
	_, err = s.Fork(t.Context(), 0, nil)
	assert.Equal(t, "n", tool.AsError(err).Field)
	_, err = s.Fork(t.Context(), 1, &wisbox.CloneOptions{Mode: wisbox.Shared})
	assert.Equal(t, "mode", tool.AsError(err).Field)
	_, err = s.Clone(t.Context(), &wisbox.CloneOptions{Mode: "some"})
	assert.Equal(t, "mode", tool.AsError(err).Field)
}

func TestACloneCopiesTheMountsAgainWhenAsked(t *testing.T) {
	host := t.TempDir()
	file := filepath.Join(host, "m")
	require.NoError(t, os.WriteFile(file, []byte("1"), 0o600))
	s := session(t, wisbox.SessionOptions{Mounts: mounts(host, "p"), AllowedRoots: []string{host}})
	text(t, s, "write_file", `{"file_path":"own","content":"x"}`)
	require.NoError(t, os.WriteFile(file, []byte("2"), 0o600))
	for again, want := range map[bool]string{false: "1", true: "2"} {
		c, err := s.Clone(t.Context(), &wisbox.CloneOptions{Remount: again})
		require.NoError(t, err)
		assert.Equal(t, want, content(t, c, "p/m"))
		assert.Equal(t, "x", content(t, c, "own"))
	}
}

func TestASavedSessionIsLoadedElsewhere(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{Env: map[string]string{"A": "b"}, MaxTimeout: 7 * time.Second}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"f","content":"1"}`)
		text(t, s, "snapshot_create", `{"label":"first"}`)
		script(t, s, "printf 2 >f; ln -s f l; mkdir -m 700 e")
		var archive bytes.Buffer
		_, err := s.Save(t.Context(), &archive)
		require.NoError(t, err)

		m, _ := manager(t, wisbox.Options{})
		l, err := m.Load(t.Context(), bytes.NewReader(archive.Bytes()), &wisbox.LoadOptions{Name: "there", Kept: true, WithSettings: true})
		require.NoError(t, err)
		assert.Equal(t, "there", l.ID())
		assert.Equal(t, "2", content(t, l, "l"))
		assert.Contains(t, text(t, l, "ls", `{}`), `"version":2,"created_at":"`, "versions go along")
		assert.Equal(t, 7*time.Second, l.Options().MaxTimeout)
		assert.Contains(t, script(t, l, "echo $A; stat -c %a e"), `b\n700`)
		assert.Contains(t, text(t, l, "snapshot_list", `{}`), "first")
		_, err = m.Load(t.Context(), bytes.NewReader(archive.Bytes()[:archive.Len()/2]), &wisbox.LoadOptions{Name: "cut"})
		assert.Equal(t, tool.Invalid, tool.KindOf(err))
		_, err = m.Attach(t.Context(), "cut")
		assert.Equal(t, tool.NotFound, tool.KindOf(err), "nothing is left")
	})
}

func TestAnArchiveReadsNoHostFile(t *testing.T) {
	host := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(host, "secret"), []byte("s"), 0o600))
	s := session(t, wisbox.SessionOptions{Mounts: mounts(host, "p"), AllowedRoots: []string{host}})
	text(t, s, "rm", `{"path":"p"}`)
	var archive bytes.Buffer
	_, err := s.Save(t.Context(), &archive)
	require.NoError(t, err)
	assert.NotContains(t, archive.String(), host, "no path of the host is in it")
	m, _ := manager(t, wisbox.Options{AllowedRoots: []string{host}})
	l, err := m.Load(t.Context(), io.MultiReader(&archive), nil)
	require.NoError(t, err)
	assert.Empty(t, l.Options().Mounts)
	assert.Equal(t, "(none)", content(t, l, "p/secret"))
}

// atEnd calls do at the end of the input.
type atEnd struct {
	io.Reader
	do func()
}

func (r *atEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF && r.do != nil {
		r.do()
		r.do = nil
	}
	return n, err
}

// TestASessionThatIsBeingMadeIsNotThereYet, and neither is a session whose creator was killed.
func TestASessionThatIsBeingMadeIsNotThereYet(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		text(t, s, "write_file", `{"file_path":"f","content":"1"}`)
		var archive bytes.Buffer
		_, err := s.Save(t.Context(), &archive)
		require.NoError(t, err)
		m, _ := manager(t, wisbox.Options{})
		var early error
		_, err = m.Load(t.Context(), &atEnd{&archive, func() { _, early = m.Attach(t.Context(), "there") }}, &wisbox.LoadOptions{Name: "there", Kept: true})
		require.NoError(t, err)
		require.ErrorContains(t, early, "session there is incomplete")
		_, err = m.Attach(t.Context(), "there")
		require.NoError(t, err)
	})
}

func TestASessionBeginsWithATemplate(t *testing.T) {
	opts := wisbox.SessionOptions{Kept: true, Env: map[string]string{"WHO": "both", "ONE": "1"}, TTL: time.Hour}
	t.Run("local", func(t *testing.T) {
		m, _ := manager(t, wisbox.Options{})
		s, err := m.Open(t.Context(), &opts)
		require.NoError(t, err)
		testTemplate(t, m, s, func() {
			require.NoError(t, s.Close(t.Context()))
			require.NoError(t, m.Remove(t.Context(), s.ID()), "the template outlives it")
		})
	})
	t.Run("held", func(t *testing.T) {
		s, m, _ := heldWith(t, time.Minute, opts)
		testTemplate(t, m, s, func() {})
	})
}

func testTemplate(t *testing.T, m *wisbox.Manager, s *wisbox.Session, remove func()) {
	ctx := t.Context()
	text(t, s, "write_file", `{"file_path":"d/f","content":"1"}`)
	script(t, s, "chmod 755 d/f; ln -s f d/link; mkdir empty")
	made, err := s.CreateTemplate(ctx, &wisbox.TemplateOptions{Name: "begin"})
	require.NoError(t, err)
	assert.Positive(t, made.Disk)
	assert.NotContains(t, text(t, s, "snapshot_list", `{}`), "template", "the source keeps no snapshot of it")
	text(t, s, "write_file", `{"file_path":"d/f","content":"2","mode":"overwrite"}`)
	remove()

	host := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(host, "mounted"), []byte("m"), 0o600))
	for _, ref := range []string{"begin", made.ID} {
		n, err := m.Open(ctx, &wisbox.SessionOptions{Template: ref, Env: map[string]string{"ONE": "2"}, Mounts: mounts(host, "host"), AllowedRoots: []string{host}})
		require.NoError(t, err)
		assert.Equal(t, "1", content(t, n, "d/f"))
		assert.Equal(t, "m", content(t, n, "host/mounted"))
		script(t, n, `test -x d/f && test "$(readlink d/link)" = f && test -d empty && echo "$WHO $ONE" >who`)
		assert.Equal(t, "both 2\n", content(t, n, "who"), "what the session says itself wins")
		assert.Equal(t, made.ID, n.Options().Template)
		assert.Zero(t, n.Options().TTL)
		require.NoError(t, n.Close(ctx))
	}
	all, err := m.Templates()
	require.NoError(t, err)
	assert.Equal(t, []wisbox.Template{made}, all)
	images, err := m.SessionImages(ctx)
	require.NoError(t, err)
	assert.Equal(t, made.Image, images["template "+made.ID], "no prune takes its image")

	lives, err := m.Open(ctx, &wisbox.SessionOptions{Template: made.ID})
	require.NoError(t, err)
	defer lives.Close(ctx)
	require.NoError(t, m.RemoveTemplate(ctx, made.ID))
	assert.Equal(t, "1", content(t, lives, "d/f"))
	text(t, lives, "write_file", `{"file_path":"d/f","content":"3","mode":"overwrite"}`)
	for _, ref := range []string{"begin", made.ID, "../sessions"} {
		_, err = m.Open(ctx, &wisbox.SessionOptions{Template: ref})
		assert.Equal(t, tool.NotFound, tool.KindOf(err), "%v", err)
	}
	assert.Equal(t, tool.NotFound, tool.KindOf(m.RemoveTemplate(ctx, made.ID)))
}

package inside_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/inside"
	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake answers from its fields.
type fake struct {
	sandbox.FileSystem
	asked   string // the last path
	attrs   map[string]string
	info    sandbox.FileInfo
	content string
	err     error
	writes  int
}

func (f *fake) Stat(_ context.Context, path string, _ sandbox.StatOptions) (sandbox.FileInfo, error) {
	f.asked = path
	return f.info, f.err
}

func (f *fake) List(_ context.Context, _ string, _ sandbox.ListOptions, each func(sandbox.FileInfo) error) error {
	for range 3 {
		if err := each(f.info); err != nil {
			return err
		}
	}
	return f.err
}

func (f *fake) Open(context.Context, string, sandbox.OpenOptions) (sandbox.FileReader, error) {
	return opened{io.NopCloser(io.MultiReader(strings.NewReader(f.content), failing{f.err})), f.info}, nil
}

func (f *fake) Write(_ context.Context, _ string, r io.Reader, opts sandbox.WriteOptions) error {
	f.writes++
	content, err := io.ReadAll(r)
	f.content, f.attrs = string(content), opts.Attrs
	return errors.Join(err, f.err)
}

type opened struct {
	io.ReadCloser
	info sandbox.FileInfo
}

func (o opened) Info() sandbox.FileInfo { return o.info }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// client returns a Client as in another process: only text passes.
func client(on sandbox.FileSystem) inside.Client {
	return inside.Client{Do: func(ctx context.Context, a *inside.Ask, in io.Reader, out io.Writer) error {
		var there inside.Ask
		raw, err := json.Marshal(a)
		if err = errors.Join(err, json.Unmarshal(raw, &there)); err != nil {
			return err
		}
		err = inside.Serve(ctx, on, &there, in, out)
		if err == nil {
			return nil
		}
		raw, _ = json.Marshal(tool.AsError(err))
		back := &tool.Error{}
		return errors.Join(json.Unmarshal(raw, back), back)
	}}
}

func TestFilesOfAnyNamesSurviveTheTrip(t *testing.T) {
	texts := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) })
	rapid.Check(t, func(t *rapid.T) {
		f := &fake{info: sandbox.FileInfo{
			Path: texts.Draw(t, "path"), Link: texts.Draw(t, "link"), Real: texts.Draw(t, "real"), Mode: fs.FileMode(rapid.Uint32().Draw(t, "mode")),
			Size: rapid.Int64().Draw(t, "size"), Modified: time.Unix(rapid.Int64Range(0, 253402300799).Draw(t, "time"), 1).UTC(), UID: 1, GID: 2, RealMode: 3,
			Attrs: map[string]string{"user.a": texts.Draw(t, "attribute")},
		}, content: texts.Draw(t, "content")}
		c, path := client(f), texts.Draw(t, "asked")
		got, err := c.Stat(context.Background(), path, sandbox.StatOptions{})
		require.NoError(t, err)
		require.Equal(t, f.info, got)
		require.Equal(t, path, f.asked)
		n := 0
		require.NoError(t, c.List(context.Background(), "/", sandbox.ListOptions{}, func(got sandbox.FileInfo) error {
			n++
			require.Equal(t, f.info, got)
			return nil
		}))
		require.Equal(t, 3, n)
		r, err := c.Open(context.Background(), "/", sandbox.OpenOptions{})
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, f.content, string(content))
		require.Equal(t, f.info, r.Info())
		want := texts.Draw(t, "written")
		require.NoError(t, c.Write(context.Background(), "/", strings.NewReader(want), sandbox.WriteOptions{Attrs: f.info.Attrs}))
		require.Equal(t, want, f.content)
		require.Equal(t, f.info.Attrs, f.attrs)
	})
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	for _, c := range []struct {
		err, is error
		kind    tool.Kind
	}{
		{syscall.ENOENT, fs.ErrNotExist, tool.NotFound}, {syscall.EEXIST, fs.ErrExist, tool.Exists}, {syscall.EACCES, fs.ErrPermission, tool.Permission},
		{syscall.ENOTDIR, syscall.ENOTDIR, tool.NotDir}, {syscall.EISDIR, syscall.EISDIR, tool.IsDir}, {syscall.ENOSPC, syscall.ENOSPC, tool.NoSpace},
		{syscall.EDQUOT, syscall.ENOSPC, tool.NoSpace}, {syscall.EROFS, fs.ErrPermission, tool.Permission}, {syscall.ENAMETOOLONG, syscall.ENAMETOOLONG, tool.Invalid},
		{sandbox.ErrNotRegular, sandbox.ErrNotRegular, tool.NotRegular}, {sandbox.ErrFileLimit, sandbox.ErrFileLimit, tool.Limit},
		{sandbox.ErrInterrupted, sandbox.ErrInterrupted, tool.Unavailable}, {syscall.ENOTEMPTY, syscall.ENOTEMPTY, tool.Conflict},
		{syscall.EBUSY, syscall.EBUSY, tool.Busy},
	} {
		on := &fake{err: fmt.Errorf("do: %w", c.err), content: "half"}
		for name, do := range map[string]func(inside.Client) error{
			"stat": func(f inside.Client) error { _, err := f.Stat(t.Context(), "/x\n", sandbox.StatOptions{}); return err },
			"write": func(f inside.Client) error {
				return f.Write(t.Context(), "/x", strings.NewReader(""), sandbox.WriteOptions{})
			},
			"list": func(f inside.Client) error {
				return f.List(t.Context(), "/x", sandbox.ListOptions{}, func(sandbox.FileInfo) error { return nil })
			},
			"read": func(f inside.Client) error {
				r, err := f.Open(t.Context(), "/x", sandbox.OpenOptions{})
				require.NoError(t, err)
				defer r.Close()
				_, err = io.ReadAll(r)
				return err
			},
		} {
			err := do(client(on))
			assert.Equal(t, c.kind, tool.KindOf(err), "%s: %v", name, c.err)
			assert.ErrorIs(t, err, c.is, name)
			assert.NotContains(t, err.Error(), "\n")
		}
	}
}

func TestWhoGivesTheContentFailsWithItsOwnError(t *testing.T) {
	own := errors.New("the line is cut")
	err := client(&fake{}).Write(t.Context(), "/x", failing{own}, sandbox.WriteOptions{})
	assert.ErrorIs(t, err, own)
}

func TestAnInterruptedWriteIsCleanedUp(t *testing.T) {
	on := &fake{err: sandbox.ErrInterrupted}
	require.Error(t, client(on).Write(t.Context(), "/x", strings.NewReader("x"), sandbox.WriteOptions{}))
	assert.Equal(t, 2, on.writes)
}

// TestAClientWithoutStreamsEndsNoHolder: a hostile client can leave them out.
func TestAClientWithoutStreamsEndsNoHolder(t *testing.T) {
	for _, do := range []string{inside.Stat, inside.List, inside.Open, inside.Write} {
		assert.NoError(t, inside.Serve(t.Context(), &fake{}, &inside.Ask{Do: do}, nil, nil), do)
	}
}

func TestAReaderMayLeaveEarly(t *testing.T) {
	c := client(&fake{content: strings.Repeat("x", 10<<20)})
	r, err := c.Open(t.Context(), "/x", sandbox.OpenOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Close())
	_, err = r.Read(make([]byte, 1<<20))
	for err == nil {
		_, err = r.Read(make([]byte, 1<<20))
	}
	assert.ErrorIs(t, err, io.ErrClosedPipe)
	stop := errors.New("enough")
	assert.ErrorIs(t, c.List(t.Context(), "/", sandbox.ListOptions{}, func(sandbox.FileInfo) error { return stop }), stop)
}

func TestAMessageWithoutAnEndIsNotKept(t *testing.T) {
	taken, ended := 0, make(chan struct{})
	c := inside.Client{Do: func(_ context.Context, _ *inside.Ask, _ io.Reader, out io.Writer) error {
		defer close(ended)
		for {
			n, err := out.Write(make([]byte, 1<<10))
			taken += n
			if err != nil {
				return err
			}
		}
	}}
	_, err := c.Stat(t.Context(), "/x", sandbox.StatOptions{})
	assert.ErrorIs(t, err, sandbox.ErrInterrupted)
	assert.ErrorContains(t, err, "a message of more than 524288 bytes")
	<-ended
	assert.Less(t, taken, 1<<20)
}

func TestTheLongestMessageOfAFilePasses(t *testing.T) {
	f := &fake{info: sandbox.FileInfo{Path: strings.Repeat("p", 8<<10), Attrs: map[string]string{strings.Repeat("<", 60<<10): ""}, Modified: time.Unix(0, 0).UTC()}}
	got, err := client(f).Stat(t.Context(), "/x", sandbox.StatOptions{})
	require.NoError(t, err)
	assert.Equal(t, f.info, got)
}

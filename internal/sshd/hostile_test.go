package sshd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/wisbox/wisbox/internal/sshd"
	"github.com/wisbox/wisbox/sandbox"
)

// long is a time for which no test waits.
const long = time.Hour

// watched is a session whose files can be frozen; it counts its streams.
type watched struct {
	*session
	opts    sshd.Options
	reading atomic.Int64
	busy    atomic.Bool // operations and uploads wait for the end of their context
}

func newWatched(t *testing.T) *watched {
	w := &watched{session: newSession(t)}
	w.opts.Hurry(long, long, long, long)
	return w
}

func (w *watched) Inside() sandbox.FileSystem { return watchedFiles{w.session.Inside(), w} }

type watchedFiles struct {
	sandbox.FileSystem
	w *watched
}

type watchedReader struct {
	sandbox.FileReader
	w *watched
}

func (r watchedReader) Close() error {
	defer r.w.reading.Add(-1)
	return r.FileReader.Close()
}

func (f watchedFiles) Open(ctx context.Context, path string, opts sandbox.OpenOptions) (sandbox.FileReader, error) {
	r, err := f.FileSystem.Open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	f.w.reading.Add(1)
	return watchedReader{r, f.w}, nil
}

func (f watchedFiles) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	if f.w.busy.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.FileSystem.Mkdir(ctx, path, opts)
}

func (f watchedFiles) Write(ctx context.Context, path string, r io.Reader, opts sandbox.WriteOptions) error {
	if f.w.busy.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.FileSystem.Write(ctx, path, r, opts)
}

// write creates a file on this machine that the session's user may change.
func (w *watched) write(t *testing.T, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(w.dir, "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(path, sandbox.UserID, sandbox.GroupID))
	}
	return path
}

func (w *watched) sftp(t *testing.T) *sftp.Client {
	t.Helper()
	return newSFTP(t, connectWith(t, w, w.opts))
}

// inTime fails a test that hangs.
func inTime(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it hangs")
	}
}

// rawSFTP is a client that can send anything.
type rawSFTP struct {
	t   *testing.T
	in  io.Writer
	out io.Reader
}

func newRawSFTP(t *testing.T, c *ssh.Client) *rawSFTP {
	t.Helper()
	s := newChannel(t, c)
	in, err := s.StdinPipe()
	require.NoError(t, err)
	out, err := s.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.RequestSubsystem("sftp"))
	r := &rawSFTP{t, in, out}
	r.send(1, uint32(3))
	typ, _ := r.receive()
	require.Equal(t, byte(2), typ)
	return r
}

func (r *rawSFTP) send(typ byte, fields ...any) {
	r.t.Helper()
	_, err := r.in.Write(request(typ, fields...))
	require.NoError(r.t, err)
}

func request(typ byte, fields ...any) []byte {
	p := []byte{0, 0, 0, 0, typ}
	for _, field := range fields {
		switch field := field.(type) {
		case uint32:
			p = binary.BigEndian.AppendUint32(p, field)
		case uint64:
			p = binary.BigEndian.AppendUint64(p, field)
		case string:
			p = append(binary.BigEndian.AppendUint32(p, uint32(len(field))), field...)
		}
	}
	binary.BigEndian.PutUint32(p, uint32(len(p)-4))
	return p
}

// receive returns the type of an answer and the bytes after its number.
func (r *rawSFTP) receive() (byte, []byte) {
	r.t.Helper()
	var head [9]byte
	_, err := io.ReadFull(r.out, head[:])
	require.NoError(r.t, err)
	typ, rest := head[4], make([]byte, binary.BigEndian.Uint32(head[:])-5)
	_, err = io.ReadFull(r.out, rest)
	require.NoError(r.t, err)
	return typ, rest
}

// open opens a file with SFTP's flags.
func (r *rawSFTP) open(path string, flags uint32) (handle string) {
	r.t.Helper()
	r.send(3, uint32(1), path, flags, uint32(0))
	typ, rest := r.receive()
	require.Equal(r.t, byte(102), typ)
	return string(rest[4:])
}

// status returns the code of an answer without other content.
func (r *rawSFTP) status() uint32 {
	r.t.Helper()
	typ, rest := r.receive()
	require.Equal(r.t, byte(101), typ)
	return binary.BigEndian.Uint32(rest)
}

func TestAReadOfAFileThatIsOpenForWritingWritesNothing(t *testing.T) {
	w := newWatched(t)
	c := w.sftp(t)
	for _, flags := range []int{os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_APPEND} {
		path := w.write(t, []byte("0123456789"))
		f, err := c.OpenFile(path, flags)
		require.NoError(t, err)
		got := make([]byte, 4)
		_, err = f.ReadAt(got, 2)
		require.NoError(t, err)
		require.Equal(t, "2345", string(got))
		require.NoError(t, f.Close())
		on, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(on))
	}
	path := w.write(t, []byte("0123456789"))
	f, err := c.OpenFile(path, os.O_RDWR|os.O_TRUNC)
	require.NoError(t, err)
	_, err = f.ReadAt(make([]byte, 4), 0)
	require.ErrorIs(t, err, io.EOF)
	_, err = f.Write([]byte("new"))
	require.NoError(t, err)
	_, err = f.ReadAt(make([]byte, 4), 0)
	require.ErrorContains(t, err, "open it again to read")
	require.NoError(t, f.Close())
	on, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(on))
}

func TestAFileThatIsWrittenFromItsMiddleEnds(t *testing.T) {
	w := newWatched(t)
	w.opts.Hurry(time.Millisecond, long, long, long)
	path := w.write(t, []byte("0123456789"))
	c := w.sftp(t)
	inTime(t, func() {
		f, err := c.OpenFile(path, os.O_WRONLY)
		if err != nil {
			t.Error(err)
			return
		}
		piece := make([]byte, 32<<10)
		for at := int64(1 << 20); err == nil && at < 8<<20; at += int64(len(piece)) {
			_, err = f.WriteAt(piece, at)
		}
		if err == nil {
			t.Error("no write was refused")
		}
		if f.Close() == nil {
			t.Error("the file is reported as whole")
		}
	})
	on, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(on))
}

func TestPiecesComeInAnyOrder(t *testing.T) {
	w := newWatched(t)
	path := w.write(t, nil)
	r := newRawSFTP(t, connectWith(t, w, w.opts))
	inTime(t, func() {
		handle := r.open(path, 2|16)
		for i := 63; i >= 0; i-- {
			r.send(6, uint32(i), handle, uint64(i)<<15, string(bytes.Repeat([]byte{byte(i)}, 32<<10)))
		}
		for range 64 {
			require.Zero(t, r.status())
		}
		r.send(4, uint32(1), handle)
		require.Zero(t, r.status())
	})
	on, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, on, 2<<20)
	for i := range 64 {
		require.Equal(t, byte(i), on[i<<15])
	}
}

// both is a stream with two separate ends.
type both struct {
	io.Reader
	io.Writer
}

func (both) Close() error { return nil }

func TestFewRequestsHaveNoAnswer(t *testing.T) {
	one := request(17, uint32(7), "/")
	ctx, cancel := context.WithCancel(t.Context())
	f := sshd.Frames(ctx, both{bytes.NewReader(bytes.Repeat(one, 1000)), io.Discard})
	read := func() error {
		_, err := io.ReadFull(f, make([]byte, len(one)))
		return err
	}
	for range sshd.MaxUnanswered {
		require.NoError(t, read())
	}
	answer := request(101, uint32(7), uint32(0))
	for _, part := range [][]byte{answer[:3], answer[3:6], append(answer[6:], answer...)} {
		_, err := f.Write(part)
		require.NoError(t, err)
	}
	require.NoError(t, read())
	require.NoError(t, read())
	cancel()
	require.ErrorIs(t, read(), context.Canceled)
}

func TestAnOperationThatWaitsEndsAndItsChannelLivesOn(t *testing.T) {
	w := newWatched(t)
	w.opts.Hurry(long, long, long, time.Millisecond)
	c := w.sftp(t)
	w.busy.Store(true)
	inTime(t, func() {
		if err := c.Mkdir(w.dir + "/a"); err == nil || !bytes.Contains([]byte(err.Error()), []byte("busy")) {
			t.Error("no refusal:", err)
		}
	})
	at, err := c.RealPath(".")
	require.NoError(t, err)
	require.Equal(t, sandbox.WorkspaceDir, at)
}

func TestASessionThatRollsBackTakesOneChangeAtATime(t *testing.T) {
	w := newWatched(t)
	w.opts.OneAtATime = true
	path := w.write(t, []byte("old"))
	c := w.sftp(t)
	f, err := c.OpenFile(path, os.O_WRONLY|os.O_TRUNC)
	require.NoError(t, err)
	_, err = f.Write([]byte("new"))
	require.NoError(t, err)
	const want = "close the file first"
	require.ErrorContains(t, c.Mkdir(w.dir+"/a"), want)
	require.ErrorContains(t, c.PosixRename(path, path+"2"), want)
	require.ErrorContains(t, c.Chmod(w.dir, 0o700), want)
	_, err = c.Create(w.dir + "/b")
	require.ErrorContains(t, err, want)
	require.NoError(t, f.Chmod(0o640), "it is set at the end")
	require.NoError(t, f.Close())
	require.NoError(t, c.Mkdir(w.dir+"/a"))
}

func TestADownloadThatIsNotReadGivesItsStreamBack(t *testing.T) {
	w := newWatched(t)
	w.opts.Hurry(long, time.Millisecond, long, long)
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	path := w.write(t, content)
	f, err := w.sftp(t).Open(path)
	require.NoError(t, err)
	got := make([]byte, len(content)/2)
	_, err = io.ReadFull(f, got[:1000])
	require.NoError(t, err)
	free := func() bool { return w.reading.Load() == 0 }
	require.Eventually(t, free, 30*time.Second, time.Millisecond)
	_, err = io.ReadFull(f, got[1000:])
	require.NoError(t, err)
	require.True(t, bytes.Equal(content[:len(got)], got))
	require.Eventually(t, free, 30*time.Second, time.Millisecond)

	next := path + ".new"
	require.NoError(t, os.WriteFile(next, content[16:], fs.FileMode(0o644)))
	require.NoError(t, os.Rename(next, path))
	_, err = io.ReadFull(f, got)
	require.ErrorContains(t, err, "has changed while it was read")
}

func TestAnUploadThatStandsStillEnds(t *testing.T) {
	w := newWatched(t)
	w.opts.Hurry(long, long, time.Millisecond, long)
	w.busy.Store(true)
	c := w.sftp(t)
	inTime(t, func() {
		f, err := c.Create(w.dir + "/new")
		if err == nil {
			_, _ = f.Write([]byte("x"))
			err = f.Close()
		}
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte("write it again")) {
			t.Error("no refusal:", err)
		}
	})
}

func TestAttributesThatAreTooShortAreRefused(t *testing.T) {
	w := newWatched(t)
	path := w.write(t, nil)
	r := newRawSFTP(t, connectWith(t, w, w.opts))
	r.send(9, uint32(1), path, uint32(1|2|4))
	require.Equal(t, uint32(5), r.status())
}

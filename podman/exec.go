package podman

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
)

const (
	maxStderr   = 8 << 10 // bytes kept of what an exec session writes there
	frameHeader = 8

	// detachKeys can't be none on every server: this many single control
	// characters, each read alone, don't come by chance.
	detachKeys = "ctrl-@,ctrl-],ctrl-@,ctrl-],ctrl-@,ctrl-],ctrl-@,ctrl-]"
)

var attachTimeout = patience.For(10 * time.Second) // to create and start an exec session

// execConfig is one program started through Podman itself.
type execConfig struct {
	Cmd          []string `json:"Cmd"`
	User         string   `json:"User"`
	WorkingDir   string   `json:"WorkingDir,omitempty"`
	Env          []string `json:"Env,omitempty"`
	AttachStdin  bool     `json:"AttachStdin"`
	AttachStdout bool     `json:"AttachStdout"`
	AttachStderr bool     `json:"AttachStderr"`
	Tty          bool     `json:"Tty"`
	DetachKeys   string   `json:"DetachKeys"`
}

// exec starts a program in the container, attached over a connection of its own.
// Closing the stream closes the program's stdin; the program must end by itself.
func (b *Backend) exec(ctx context.Context, name string, config execConfig) (*stream, error) {
	config.AttachStdin, config.AttachStdout, config.AttachStderr = true, true, true
	config.DetachKeys = detachKeys
	var session struct{ Id string }
	err := b.do(ctx, request{
		method: http.MethodPost, path: containerPath(name, "/exec"), body: config, out: &session, limit: attachTimeout,
	})
	if err != nil {
		return nil, err
	}
	e, err := b.engine(ctx)
	if err != nil {
		return nil, err
	}
	return e.attach(ctx, session.Id)
}

// attach starts an exec session and takes over the connection.
func (e *engine) attach(ctx context.Context, session string) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	conn, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	r, err := upgrade(conn, e.base+apiPrefix+"/exec/"+session+"/start")
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return newStream(conn, r), nil
}

// upgrade sends the start request and reads the head of the answer; what follows
// on r are frames.
func upgrade(conn net.Conn, target string) (*bufio.Reader, error) {
	body, err := json.Marshal(map[string]bool{"Detach": false, "Tty": false})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Connection": {"Upgrade"}, "Upgrade": {"tcp"}}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	resp, err := http.ReadResponse(r, req) //nolint:bodyclose // the body of a switched connection is the connection
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
		return nil, readError(resp)
	}
	return r, nil
}

// stream is an attached exec session as one pipe: Read reads its stdout, Write writes to its stdin. Its
// stderr is kept for messages. One goroutine may read while another writes.
type stream struct {
	conn net.Conn
	r    *bufio.Reader
	left int // bytes of stdout to read before the next frame

	reading sync.Mutex // held by the reader

	mu     sync.Mutex
	stderr []byte
}

var _ io.ReadWriteCloser = (*stream)(nil)

func newStream(conn net.Conn, r *bufio.Reader) *stream {
	return &stream{conn: conn, r: r}
}

func (s *stream) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for s.left == 0 {
		if err := s.nextFrame(); err != nil {
			return 0, err
		}
	}
	n, err := s.r.Read(p[:min(len(p), s.left)])
	s.left -= n
	if err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// nextFrame reads a frame's head, and all of it when it isn't stdout.
func (s *stream) nextFrame() error {
	var head [frameHeader]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(head[4:]))
	switch head[0] {
	case 1:
		s.left = int(size)
		return nil
	case 2:
		return s.keepStderr(size)
	case 3:
		text, err := io.ReadAll(io.LimitReader(s.r, min(size, maxErrorText)))
		return errors.Join(fmt.Errorf("podman ended the connection: %s", text), err)
	}
	return fmt.Errorf("unknown stream %d in an attach", head[0])
}

func (s *stream) keepStderr(size int64) error {
	s.mu.Lock()
	room := min(size, int64(maxStderr-len(s.stderr)))
	s.mu.Unlock()
	kept := make([]byte, room)
	if _, err := io.ReadFull(s.r, kept); err != nil {
		return err
	}
	s.mu.Lock()
	s.stderr = append(s.stderr, kept...)
	s.mu.Unlock()
	_, err := io.CopyN(io.Discard, s.r, size-room)
	return err
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.conn.Write(p)
	if err != nil {
		s.lastWords()
	}
	return n, err
}

// lastWords reads the stderr of a program that doesn't read its input any more, if nobody else reads.
func (s *stream) lastWords() {
	if !s.reading.TryLock() {
		return
	}
	defer s.reading.Unlock()
	_ = s.conn.SetReadDeadline(time.Now().Add(patience.For(time.Second)))
	for s.left == 0 && s.nextFrame() == nil {
	}
}

func (s *stream) Close() error { return s.conn.Close() }

// Stderr returns the first 8 KiB of the program's stderr.
func (s *stream) Stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.stderr)
}

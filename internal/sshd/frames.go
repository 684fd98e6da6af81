package sshd

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/sync/semaphore"
)

// Bounds of the requests of one SFTP channel.
const (
	maxUnanswered = 256
	maxFrame      = 256 << 10 // as in the library
)

// frames is the stream of an SFTP channel, request by request. The library keeps an unbounded
// number of answers behind one that waits, so frames stops reading requests when too many are
// unanswered. Also, the library treats a read of a file that was opened only for writing as a write
// of zeros, so frames makes each file opened for writing readable too.
type frames struct {
	io.ReadWriteCloser
	ctx  context.Context
	room *semaphore.Weighted // unanswered requests

	in []byte // the rest of the current request

	head []byte // the beginning of an answer's length
	left uint32 // remaining bytes of the answer
}

func newFrames(ctx context.Context, ch io.ReadWriteCloser) *frames {
	return &frames{ReadWriteCloser: ch, ctx: ctx, room: semaphore.NewWeighted(maxUnanswered)}
}

// Read implements [io.Reader].
func (f *frames) Read(p []byte) (int, error) {
	if len(f.in) == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.in)
	f.in = f.in[n:]
	return n, nil
}

// next reads a request.
func (f *frames) next() error {
	if err := f.room.Acquire(f.ctx, 1); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(f.ReadWriteCloser, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length == 0 || length > maxFrame {
		return errors.New("an SFTP request is empty or too long")
	}
	f.in = append(make([]byte, 0, 4+length), head[:]...)[:4+length]
	if _, err := io.ReadFull(f.ReadWriteCloser, f.in[4:]); err != nil {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	openToRead(f.in[4:])
	return nil
}

// openToRead changes a request that opens a file for writing, so that it opens the file for reading
// too.
func openToRead(request []byte) {
	const (
		open   = 3  // SSH_FXP_OPEN: type, id, length of the path, path, flags, attributes
		before = 9  // bytes before the path
		reads  = 1  // SSH_FXF_READ
		writes = 30 // SSH_FXF_WRITE, APPEND, CREAT, TRUNC
	)
	if len(request) < before || request[0] != open {
		return
	}
	at := before + int64(binary.BigEndian.Uint32(request[5:]))
	if at+4 > int64(len(request)) {
		return
	}
	if flags := request[at : at+4]; flags[3]&writes != 0 {
		flags[3] |= reads
	}
}

// Write implements [io.Writer].
func (f *frames) Write(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Write(p)
	for p = p[:n]; len(p) > 0; {
		if f.left == 0 {
			if f.head, p = append(f.head, p[0]), p[1:]; len(f.head) == 4 {
				f.left, f.head = binary.BigEndian.Uint32(f.head), f.head[:0]
			}
			continue
		}
		some := min(uint32(len(p)), f.left)
		if f.left, p = f.left-some, p[some:]; f.left == 0 {
			f.room.Release(1)
		}
	}
	return n, err
}

package sshd

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/pkg/sftp"

	"github.com/wisbox/wisbox/sandbox"
)

// maxQueued is the maximum number of bytes of a file that wait for the sandbox.
const maxQueued = 1 << 20

// upload is a file that a client writes completely, or appends to. The library's workers deliver
// the pieces roughly in order; upload sorts them into the stream for the sandbox. Unless the client
// appends, readers see the old file or the complete new one.
type upload struct {
	f    *filer
	path string
	opts sandbox.WriteOptions
	has  bool  // the file exists
	size int64 // its size then
	trim bool  // remove its content
	done chan struct{}

	// filer.writes guards:
	began  bool
	next   int64            // offset of the next piece
	early  map[int64][]byte // later pieces
	held   int              // their bytes
	late   *time.Timer      // ends the upload if the next piece doesn't come
	stuck  *time.Timer      // ends the upload if nothing leaves the queue
	queue  []byte           // bytes on their way into the sandbox
	closed bool             // no more pieces come
	err    error
	mode   *fs.FileMode // to set at the end
	wanted *uint64      // the size according to the client
	unhook func() bool
	ctx    context.Context // for the writing
	cancel context.CancelFunc
}

// readWriter is a file that was opened for writing: its old content can be read until the first
// piece comes.
type readWriter struct {
	*upload
	old *download
}

// ReadAt implements [io.ReaderAt].
func (w *readWriter) ReadAt(p []byte, off int64) (int, error) {
	if err := w.readable(); err != nil {
		return 0, err
	}
	return w.old.ReadAt(p, off)
}

func (u *upload) readable() error {
	u.f.writes.Lock()
	defer u.f.writes.Unlock()
	switch {
	case u.err != nil:
		return asSFTP(u.err)
	case u.began || len(u.early) > 0:
		return refuse(sftp.ErrSSHFxFailure, "%s is being written; close it, and open it again to read", u.path)
	case u.trim:
		return io.EOF
	}
	return nil
}

// Close implements [io.Closer].
func (w *readWriter) Close() error {
	_ = w.old.Close()
	return w.upload.Close()
}

// newUpload opens a file to write. The file stays unchanged until the first piece, or the end.
func (f *filer) newUpload(r *sftp.Request) (*upload, error) {
	flags := r.Pflags()
	u := &upload{f: f, path: r.Filepath, early: map[int64][]byte{}, done: make(chan struct{}), trim: flags.Trunc}
	info, err := f.files.Stat(f.ctx, u.path, sandbox.StatOptions{Follow: true})
	switch {
	case err == nil && flags.Creat && flags.Excl:
		return nil, refuse(sftp.ErrSSHFxFailure, "%s exists", u.path)
	case err == nil && !info.Mode.IsRegular():
		return nil, refuse(sftp.ErrSSHFxFailure, "%s is not a regular file", u.path)
	case err == nil:
		u.has, u.size = true, info.Size
	case !errors.Is(asCode(err), sftp.ErrSSHFxNoSuchFile) || !flags.Creat:
		return nil, err
	default:
		if err := u.create(r, flags); err != nil {
			return nil, err
		}
	}
	if flags.Append {
		u.opts.How, u.next = sandbox.WriteAppend, u.size
	}
	if err := f.addUpload(u); err != nil {
		return nil, err
	}
	u.ctx, u.cancel = context.WithCancel(f.ctx)
	u.unhook = context.AfterFunc(f.ctx, func() { u.fail(f.ctx.Err()) })
	return u, nil
}

// create prepares an upload of a new file. The library passes on the values of the client's
// attributes, but not which ones they are; only permissions alone have four bytes.
func (u *upload) create(r *sftp.Request, flags sftp.FileOpenFlags) error {
	dir, err := u.f.files.Stat(u.f.ctx, path.Dir(u.path), sandbox.StatOptions{Follow: true})
	if err != nil {
		return err
	}
	if !dir.Mode.IsDir() {
		return refuse(sftp.ErrSSHFxNoSuchFile, "%s is not a directory", path.Dir(u.path))
	}
	u.trim, u.opts.Exclusive = true, flags.Excl
	if len(r.Attrs) == 4 {
		u.opts.Mode = fs.FileMode(binary.BigEndian.Uint32(r.Attrs)) & fs.ModePerm &^ umask
	}
	return nil
}

func asCode(err error) error {
	if r, ok := errors.AsType[*refusal](asSFTP(err)); ok {
		return r.code
	}
	return nil
}

func (f *filer) addUpload(u *upload) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.uploads[u.path] != nil:
		return refuse(sftp.ErrSSHFxFailure, "%s is being written already", u.path)
	case f.alone && len(f.uploads) > 0:
		return errAlone
	case len(f.uploads) == maxWrites:
		return refuse(sftp.ErrSSHFxFailure, "%d files are being written, the maximum; close one first", maxWrites)
	}
	f.uploads[u.path] = u
	return nil
}

// WriteAt implements [io.WriterAt].
func (u *upload) WriteAt(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	f := u.f
	f.writes.Lock()
	defer f.writes.Unlock()
	for {
		switch late := off > u.next; {
		case u.err != nil:
			return 0, asSFTP(u.err)
		case off < u.next || late && u.early[off] != nil:
			u.end(refuse(sftp.ErrSSHFxOpUnsupported, "wisbox writes a file from start to end, or appends to it: byte %d came instead of byte %d; write the whole file", off, u.next))
			continue
		case late && u.held+len(p)+perPiece <= maxEarly:
			u.early[off] = slices.Clone(p)
			if u.held += len(p) + perPiece; len(u.early) == 1 {
				u.awaitNext()
			}
			return len(p), nil
		case !late && len(u.queue) < maxQueued:
			u.take(p)
			return len(p), nil
		case late && f.waiting == sftp.SftpServerWorkerCount-1:
			u.end(u.gap()) // nobody is left to deliver the missing piece
			continue
		case late:
			f.awaitPiece()
		default:
			f.moved.Wait()
		}
	}
}

// awaitPiece waits until an upload has progressed. A worker that a signal has woken no longer
// counts as waiting, even if it continues later.
func (f *filer) awaitPiece() {
	f.waiting++
	before := f.pieces
	f.moved.Wait()
	if f.pieces == before {
		f.waiting--
	}
}

// cameFurther wakes workers that wait for a piece.
func (f *filer) cameFurther() {
	f.pieces, f.waiting = f.pieces+1, 0
	f.moved.Broadcast()
}

func (u *upload) gap() error {
	return refuse(sftp.ErrSSHFxOpUnsupported, "wisbox writes a file without gaps: byte %d is missing", u.next)
}

// awaitNext ends the upload if the next piece doesn't come while later ones wait for it.
func (u *upload) awaitNext() {
	if u.late != nil {
		u.late.Stop()
	}
	if len(u.early) == 0 {
		return
	}
	at := u.next
	u.late = time.AfterFunc(u.f.times.gap, func() {
		u.f.writes.Lock()
		defer u.f.writes.Unlock()
		switch {
		case u.next != at || len(u.early) == 0:
		case len(u.queue) >= maxQueued: // the piece may have come, and waits for the sandbox
			u.awaitNext()
		default:
			u.end(u.gap())
		}
	})
}

// take takes the next piece, and the later ones that follow it.
func (u *upload) take(p []byte) {
	for p != nil {
		u.queue, u.next = append(u.queue, p...), u.next+int64(len(p))
		early := u.early[u.next]
		delete(u.early, u.next)
		if p = early; p != nil {
			u.held -= len(p) + perPiece
		}
	}
	u.awaitNext()
	u.begin()
	u.f.cameFurther()
}

// begin makes the sandbox write the stream.
func (u *upload) begin() {
	if u.began {
		return
	}
	u.began = true
	u.stuck = time.AfterFunc(u.f.times.stuck, func() {
		u.fail(refuse(sftp.ErrSSHFxFailure, "%s: no byte of it was written for %v; write it again", u.path, u.f.times.stuck))
		u.cancel()
	})
	go func() {
		defer close(u.done)
		defer u.stuck.Stop()
		if err := u.f.files.Write(u.ctx, u.path, u, u.opts); err != nil {
			u.fail(err)
		}
	}()
}

// Read implements [io.Reader] for the sandbox.
func (u *upload) Read(p []byte) (int, error) {
	u.f.writes.Lock()
	defer u.f.writes.Unlock()
	for {
		switch {
		case u.err != nil:
			return 0, u.err
		case len(u.queue) > 0:
			n := copy(p, u.queue)
			if u.queue = u.queue[n:]; len(u.queue) == 0 {
				u.queue = nil
			}
			u.stuck.Reset(u.f.times.stuck)
			u.f.moved.Broadcast()
			return n, nil
		case u.closed:
			return 0, io.EOF
		}
		u.f.moved.Wait()
	}
}

// fail ends the upload, and leaves the file unchanged if it can.
func (u *upload) fail(err error) {
	u.f.writes.Lock()
	defer u.f.writes.Unlock()
	u.end(err)
}

func (u *upload) end(err error) {
	if u.err == nil {
		u.err, u.queue, u.early = err, nil, nil
		u.awaitNext()
		u.f.cameFurther()
	}
}

// TransferError implements [sftp.TransferError]: it is called when the client has gone.
func (u *upload) TransferError(err error) { u.fail(err) }

// setStat handles permissions for a file that is being written: they are set at its end.
func (u *upload) setStat(has sftp.FileAttrFlags, want *sftp.FileStat) error {
	if has.UidGid && (want.UID != sandbox.UserID || want.GID != sandbox.GroupID) {
		return refuse(sftp.ErrSSHFxPermissionDenied, "a file's owner can't be changed")
	}
	u.f.writes.Lock()
	defer u.f.writes.Unlock()
	if has.Permissions {
		mode := want.FileMode().Perm()
		u.mode = &mode
	}
	if has.Size {
		if want.Size == 0 && !u.began {
			u.trim = true
		} else {
			u.wanted = &want.Size
		}
	}
	return nil
}

// info returns the information about a file that doesn't exist yet.
func (u *upload) info() sandbox.FileInfo {
	u.f.writes.Lock()
	defer u.f.writes.Unlock()
	return sandbox.FileInfo{Size: u.next, Mode: 0o644, UID: sandbox.UserID, GID: sandbox.GroupID}
}

// Close implements [io.Closer]: the file is written when it returns.
func (u *upload) Close() error {
	if u.finish() {
		<-u.done
	}
	u.unhook()
	u.cancel()
	u.f.mu.Lock()
	delete(u.f.uploads, u.path)
	u.f.mu.Unlock()
	u.f.writes.Lock()
	err, mode := u.err, u.mode
	u.f.writes.Unlock()
	if err == nil && mode != nil {
		err = u.f.files.Chmod(u.f.ctx, u.path, *mode)
	}
	return asSFTP(err)
}

// finish ends the input if the file is complete, and reports whether the sandbox writes it.
func (u *upload) finish() (began bool) {
	u.f.writes.Lock()
	defer u.f.writes.Unlock()
	if u.err != nil {
		return u.began
	}
	replaces := u.opts.How != sandbox.WriteAppend
	switch untouched := !u.began && !u.trim; {
	case len(u.early) > 0:
		u.end(u.gap())
	case untouched && (u.wanted == nil || *u.wanted == uint64(u.size)):
	case untouched, u.wanted != nil && *u.wanted != uint64(u.next):
		u.end(refuse(sftp.ErrSSHFxOpUnsupported, "a file's size can't be set to anything but the bytes written"))
	case replaces && !u.trim && u.wanted == nil && u.next < u.size:
		u.end(refuse(sftp.ErrSSHFxOpUnsupported, "wisbox writes a file as a whole: it had %d bytes, and %d were written over them", u.size, u.next))
	default:
		u.begin()
	}
	u.closed = true
	u.f.moved.Broadcast()
	return u.began
}

package sshd

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/pkg/sftp"

	"github.com/wisbox/wisbox/sandbox"
)

// download is a file that a client reads, in pieces that are requested roughly in order. It is read
// from the sandbox as one stream, whose newest bytes are kept.
type download struct {
	f    *filer
	path string

	// filer.reads guards:
	stream sandbox.FileReader // nil if there is none at present
	kept   []byte
	from   int64             // offset of kept
	ended  bool              // the end of the file is reached
	was    *sandbox.FileInfo // when it was first opened
	idle   *time.Timer       // closes the stream
}

// ReadAt implements [io.ReaderAt].
func (d *download) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, refuse(sftp.ErrSSHFxFailure, "no file has that many bytes")
	}
	d.f.reads.Lock()
	defer d.f.reads.Unlock()
	n, err := d.read(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		d.pause()
	}
	d.await()
	return n, asSFTP(err)
}

func (d *download) read(p []byte, off int64) (int, error) {
	if err := d.come(off); err != nil {
		return 0, err
	}
	for !d.ended && d.from+int64(len(d.kept)) < off+int64(len(p)) {
		if err := d.more(off); err != nil {
			return 0, err
		}
	}
	n := 0
	if at := off - d.from; at < int64(len(d.kept)) {
		n = copy(p, d.kept[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// come ensures that there is a stream from which off can be read.
func (d *download) come(off int64) error {
	to := d.from + int64(len(d.kept))
	near := off >= d.from && (off <= to+maxAhead/2 || d.ended)
	if near && (d.stream != nil || d.ended) {
		return nil
	}
	d.stop()
	if near { // the pieces between are requested later
		off = to
	}
	d.f.makeRoomToRead()
	stream, err := d.f.files.Open(d.f.ctx, d.path, sandbox.OpenOptions{Offset: off})
	if err != nil {
		return err
	}
	info := stream.Info()
	if d.was != nil && (d.was.Size != info.Size || !d.was.Modified.Equal(info.Modified)) {
		_ = stream.Close()
		return refuse(sftp.ErrSSHFxFailure, "%s has changed while it was read; read it again", d.path)
	}
	d.was = &info
	d.f.reading = append(d.f.reading, d)
	d.stream, d.kept, d.from, d.ended = stream, nil, off, false
	return nil
}

// more reads further, and forgets bytes far before off.
func (d *download) more(off int64) error {
	if len(d.kept) > maxAhead {
		far := min(int64(len(d.kept)-maxAhead/2), max(off-d.from, 0))
		d.kept, d.from = append([]byte(nil), d.kept[far:]...), d.from+far
	}
	n := len(d.kept)
	d.kept = slices.Grow(d.kept, 64<<10)
	got, err := d.stream.Read(d.kept[n : n+64<<10])
	d.kept = d.kept[:n+got]
	if errors.Is(err, io.EOF) {
		d.ended = true
		d.stop()
		return nil
	}
	return err
}

// stop ends the stream; the bytes read so far stay.
func (d *download) stop() {
	if d.stream == nil {
		return
	}
	if d.idle != nil {
		d.idle.Stop()
	}
	_ = d.stream.Close()
	d.stream = nil
	d.f.reading = slices.DeleteFunc(d.f.reading, func(other *download) bool { return other == d })
}

// pause ends the stream; the next read opens another one at the same place.
func (d *download) pause() {
	if d.stream != nil {
		d.stop()
		d.from, d.kept = d.from+int64(len(d.kept)), nil
	}
}

// await ends the stream unless there is another read soon: sessions have few streams.
func (d *download) await() {
	if d.stream == nil {
		return
	}
	if d.idle != nil {
		d.idle.Reset(d.f.times.idle)
		return
	}
	d.idle = time.AfterFunc(d.f.times.idle, func() {
		d.f.reads.Lock()
		defer d.f.reads.Unlock()
		d.pause()
	})
}

// Close implements [io.Closer].
func (d *download) Close() error {
	d.f.reads.Lock()
	defer d.f.reads.Unlock()
	d.stop()
	d.kept = nil
	d.f.leave()
	return nil
}

// makeRoomToRead ends the oldest stream if there are too many; the next read of its file opens
// another one.
func (f *filer) makeRoomToRead() {
	for len(f.reading) >= maxReads {
		f.reading[0].pause()
	}
}

package vfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/sys"
)

// patch is a change to an existing file in its place, so that programs that have the file open or watch
// it, its other names and its attributes keep it.
type patch struct {
	file *os.File
	from int64  // where the change begins
	data []byte // the new content from there on
	size int64  // of the file afterwards; -1 for an append

	old     []byte // the old content from there on
	oldSize int64
}

// SetInPlace makes edits change a file in its place as long as inPlace returns true, because programs
// may have it open or watch it. Otherwise an edit replaces the file as a whole, unless it has several
// names. Call it before the first edit.
func (f *FS) SetInPlace(inPlace func() bool) { f.inPlace = inPlace }

// openToChange opens exactly the file that locate found, for writing. ok is false if that isn't allowed
// and the file can only be replaced.
func (c *change) openToChange(ctx context.Context, flags int) (file *os.File, ok bool, err error) {
	h, err := patiently(ctx, func() (*beneath.Handle, error) { return c.parent.OpenTo(unix.O_RDWR | flags) })
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ETXTBSY), errors.Is(err, unix.EROFS), beneath.Leased(err):
		return nil, false, nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO):
		return nil, false, beneath.ErrChanged
	case err != nil:
		return nil, false, err
	}
	if h.Stat.Ino != c.old.Ino || h.Stat.Dev != c.old.Dev {
		return nil, false, errors.Join(beneath.ErrChanged, h.Close())
	}
	return h.File, true, nil
}

// prepareAppend opens the file for an append, which a program's own appends don't disturb.
func (c *change) prepareAppend(ctx context.Context, content []byte) error {
	if err := c.locate(); err != nil {
		return err
	}
	if most := c.f.opts.Limits.WholeBytes; c.old.Size+int64(len(content)) > most {
		return tooLarge(c.old.Size, most-int64(len(content)))
	}
	file, ok, err := c.openToChange(ctx, unix.O_APPEND)
	if err != nil {
		return err
	}
	if !ok {
		return c.prepareLonger(ctx, content)
	}
	c.patch = &patch{file: file, data: content, size: -1}
	return nil
}

// prepareEdit prepares to change the file's content from old to now.
func (c *change) prepareEdit(ctx context.Context, old, now []byte) error {
	if c.old.Nlink > 1 || c.f.inPlace != nil && c.f.inPlace() {
		file, ok, err := c.openToChange(ctx, 0)
		if err != nil {
			return err
		}
		if ok {
			from := 0
			for from < len(old) && from < len(now) && old[from] == now[from] {
				from++
			}
			sum := sha256.Sum256(now)
			c.sum = hex.EncodeToString(sum[:])
			c.patch = &patch{file: file, from: int64(from), data: now[from:], size: int64(len(now)), old: old[from:], oldSize: int64(len(old))}
			return c.reserve()
		}
	}
	c.fits = func(now *unix.Stat_t) bool { return sameContent(c.old, now) }
	return c.replace(nil, now)
}

// reserve takes the room that the new content needs, so that a full disk changes nothing.
func (c *change) reserve() error {
	fd, more := int(c.patch.file.Fd()), c.patch.size-c.patch.oldSize
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	if !sameContent(c.old, &now) {
		return beneath.ErrChanged
	}
	if more <= 0 {
		return nil
	}
	err := sys.Reserve(fd, c.patch.oldSize, more)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return err
	}
	return unix.Fstat(fd, c.old) // some kernels count it as a change of the file
}

func (c *change) commitPatch() (err error) {
	p := c.patch
	var now unix.Stat_t
	if err := unix.Fstat(int(p.file.Fd()), &now); err != nil {
		return err
	}
	if p.size < 0 {
		if err := p.append(now.Size); err != nil {
			return err
		}
		c.placed = true
		return c.flushPatch()
	}
	if !sameContent(c.old, &now) { // a program has written meanwhile
		return beneath.ErrChanged
	}
	c.placed = true
	_, err = p.file.WriteAt(p.data, p.from)
	if err == nil && p.size < p.oldSize {
		err = p.file.Truncate(p.size)
	}
	if err == nil && now.Mode&0o7000 != 0 { // as with a new file
		err = unix.Fchmod(int(p.file.Fd()), uint32(now.Mode&0o777)) //nolint:unconvert // macOS has 16 bits
	}
	return errors.Join(err, c.flushPatch())
}

func (c *change) flushPatch() error {
	if !c.f.opts.Fsync {
		return nil
	}
	return c.patch.file.Sync()
}

// append writes at the end, all or nothing.
func (p *patch) append(size int64) error {
	p.oldSize = size
	n, err := p.file.Write(p.data)
	if err != nil && n > 0 {
		err = errors.Join(err, p.cut(n))
	}
	return err
}

// cut removes what an append has written, if nobody has appended since.
func (p *patch) cut(n int) error {
	size, err := p.file.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return err
	}
	tail := make([]byte, n)
	if _, err := p.file.ReadAt(tail, size-int64(n)); err != nil || !bytes.Equal(tail, p.data[:n]) {
		return err
	}
	return p.file.Truncate(size - int64(n))
}

func (p *patch) rollback() {
	if p.size < 0 {
		_ = p.cut(len(p.data))
		return
	}
	_, _ = p.file.WriteAt(p.old, p.from)
	_ = p.file.Truncate(p.oldSize)
}

// sumOf returns the hash of an open file, "" if a program has made it larger than most.
func sumOf(file *os.File, size, most int64) string {
	if size > most {
		return ""
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, size)); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// keepAttributes copies the attributes of the file that will be replaced to the new one, and records what the new
// one lacks.
func (c *change) keepAttributes() error {
	h, err := c.parent.Open()
	if err != nil {
		return nil // the file is gone, or nobody may read it
	}
	defer h.Close()
	lost, err := beneath.CopyAttributes(int(c.temp.Fd()), int(h.Fd()))
	if err != nil {
		return err
	}
	if n := h.Stat.Nlink; n > 1 {
		c.note("the file had " + strconv.FormatUint(uint64(n), 10) + " names (hard links); the others still have the old content")
	}
	if sys.OpenElsewhere(int(h.Fd())) {
		c.note("a program has the old file open, and doesn't see the change until it opens the file again")
	}
	if len(lost) > 0 {
		c.note("attributes of the file were dropped: " + strings.Join(lost, ", "))
	}
	return nil
}

func (c *change) note(text string) {
	if c.notice != "" {
		c.notice += "; "
	}
	c.notice += text
}

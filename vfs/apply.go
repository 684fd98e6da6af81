package vfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

// WriteMode is the state of the path that a write expects.
type WriteMode string

// The modes of write_file.
const (
	Create    WriteMode = "create"    // the path doesn't exist; parents are created
	Overwrite WriteMode = "overwrite" // a file exists: replace its content
	Append    WriteMode = "append"    // a file exists: append to it
)

// Write is a change of one file.
type Write struct {
	Path    string
	Content []byte
	Mode    WriteMode // "" means Create

	latin1 bool // Content is Latin-1, as its caller said
}

// Written is the result of a Write.
type Written struct {
	Path      string
	SizeBytes int64 // of the whole file
	Version   int64
	Created   bool
	SHA256    string // of the whole file, hexadecimal
	// Notice describes what of the old file the new one lacks, such as its other names.
	Notice string
}

const (
	newFileMode = 0o644
	retries     = 8 // while a program changes the file that is being replaced
)

// Apply makes all of the writes, or none if it returns an error. Every reader sees either the old
// file or the new one, except that an append extends the file itself. An existing file keeps its mode
// bits and its attributes (user.*). A link that stays inside is followed, except by Create, for which the
// path exists already.
func (f *FS) Apply(ctx context.Context, writes []Write) ([]Written, error) {
	rels := make([]string, len(writes))
	for i, w := range writes {
		rel, err := notTop(f.opts.Paths.clean(w.Path))
		if err != nil {
			return nil, in(err, "path")
		}
		rels[i] = rel
	}
	return f.apply(ctx, rels, writes)
}

func (f *FS) apply(ctx context.Context, rels []string, writes []Write) (done []Written, err error) {
	leave, err := f.enterToChange(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for range retries {
		done, err = f.applyOnce(ctx, rels, writes)
		if !errors.Is(err, beneath.ErrChanged) {
			break
		}
	}
	return done, err
}

func (f *FS) applyOnce(ctx context.Context, rels []string, writes []Write) ([]Written, error) {
	changes := make([]*change, 0, len(writes))
	defer func() {
		for _, c := range changes {
			c.release()
		}
	}()
	for i, w := range writes {
		c := &change{f: f, who: clientOf(ctx), rel: rels[i], latin1: w.latin1}
		changes = append(changes, c)
		if err := c.prepare(ctx, w); err != nil {
			undoAll(changes)
			return nil, fail(err, c.rel)
		}
		if slices.ContainsFunc(changes[:i], c.sameFile) {
			undoAll(changes)
			return nil, tool.Errorf(tool.Conflict, "%s is a file that another of these writes changes too; change it once", f.opts.Paths.Display(c.rel))
		}
	}
	for _, c := range changes {
		if err := c.commit(); err != nil {
			undoAll(changes)
			return nil, fail(err, c.rel)
		}
	}
	done := make([]Written, len(changes))
	for i, c := range changes {
		done[i] = c.written()
	}
	return done, nil
}

func (c *change) sameFile(other *change) bool {
	return c.old != nil && other.old != nil && c.old.Ino == other.old.Ino && c.old.Dev == other.old.Dev
}

func undoAll(changes []*change) {
	for _, change := range slices.Backward(changes) {
		change.rollback()
	}
}

// change is a write in progress: it prepares the new file in the staging directory, then renames
// it into place; or it opens the existing file to change it in its place.
type change struct {
	f      *FS
	who    clientID
	rel    string
	parent *beneath.Parent
	old    *unix.Stat_t // the replaced file, or nil
	fits   func(*unix.Stat_t) bool
	temp   *beneath.Temp
	sum    string       // of the new content
	made   beneath.Made // parents
	placed bool
	patch  *patch // instead of temp
	notice string
	latin1 bool // the new content is Latin-1
}

func (c *change) prepare(ctx context.Context, w Write) error {
	switch w.Mode {
	case Create, "":
		return c.prepareNew(w.Content)
	case Overwrite:
		return c.prepareOver(w.Content)
	case Append:
		return c.prepareAppend(ctx, w.Content)
	}
	return tool.Errorf(tool.Invalid, "mode is %q; it must be one of create, overwrite, append", string(w.Mode)).In("mode")
}

func (c *change) prepareNew(content []byte) (err error) {
	if c.parent, c.made, err = c.f.tree.MakeParent(c.rel, c.f.staging); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := c.parent.Lstat(&st); err == nil {
		return exists(c.rel, &st)
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return c.stage(newFileMode, nil, content)
}

func exists(rel string, st *unix.Stat_t) error {
	if kindOf(st) == File {
		return tool.Errorf(tool.Exists, "%s already exists; use mode overwrite or append, or edit_file", Any.Display(rel))
	}
	return tool.Errorf(tool.Exists, "%s already exists as a %s; choose another name, or remove it first", Any.Display(rel), kindOf(st))
}

// locate finds the file to change and stats it.
func (c *change) locate() (err error) {
	if c.parent, err = c.f.tree.Target(c.rel); err != nil {
		return err
	}
	c.old = new(unix.Stat_t)
	if err := c.parent.Lstat(c.old); err != nil {
		return err
	}
	if err := beneath.Regular(c.old); err != nil {
		return err
	}
	return c.allowed()
}

func (c *change) allowed() error {
	if known := c.f.versions.known(c.who, c.parent.Path, c.old); known || !c.f.opts.ReadBeforeWrite {
		return nil
	}
	return tool.Errorf(tool.Conflict, "%s was not read by this client, or has changed since; read it first", c.f.opts.Paths.Display(c.rel))
}

// prepareOver prepares to replace the file that exists at the end, which ReadBeforeWrite requires
// to be the one that was read.
func (c *change) prepareOver(content []byte) error {
	if err := c.locate(); err != nil {
		return err
	}
	c.fits = func(now *unix.Stat_t) bool {
		return beneath.Regular(now) == nil && (!c.f.opts.ReadBeforeWrite || sameContent(c.old, now))
	}
	return c.replace(nil, content)
}

// replace stages a new file for the old one, with its attributes.
func (c *change) replace(head io.Reader, content []byte) error {
	if err := c.stage(beneath.Mode(c.old), head, content); err != nil {
		return err
	}
	return c.keepAttributes()
}

// prepareLonger prepares a longer file for one that can't be opened for writing.
func (c *change) prepareLonger(ctx context.Context, content []byte) error {
	h, err := c.openOld(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	c.fits = func(now *unix.Stat_t) bool { return sameContent(c.old, now) }
	return c.replace(io.LimitReader(h, h.Stat.Size), content)
}

// openOld opens exactly the file that locate found.
func (c *change) openOld(ctx context.Context) (*beneath.Handle, error) {
	h, err := patiently(ctx, c.parent.Open)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOENT) {
		return nil, beneath.ErrChanged
	}
	if err != nil {
		return nil, err
	}
	if !sameContent(c.old, &h.Stat) {
		return nil, errors.Join(beneath.ErrChanged, h.Close())
	}
	return h, nil
}

// stage writes the new file: the bytes of head, then content.
func (c *change) stage(mode fs.FileMode, head io.Reader, content []byte) (err error) {
	if c.temp, err = c.f.staging.Create(mode); err != nil {
		return err
	}
	sum := sha256.New()
	if head != nil {
		if _, err := io.Copy(io.MultiWriter(c.temp.File, sum), head); err != nil {
			return err
		}
	}
	if _, err := c.temp.Write(content); err != nil {
		return err
	}
	sum.Write(content)
	c.sum = hex.EncodeToString(sum.Sum(nil))
	return c.temp.Flush()
}

func (c *change) commit() (err error) {
	if c.patch != nil {
		return c.commitPatch()
	}
	if c.old == nil {
		err = c.temp.Place(c.parent)
	} else if err = c.temp.Swap(c.parent, c.fits); errors.Is(err, unix.ENOENT) {
		err = beneath.ErrChanged
	}
	c.placed = err == nil
	return err
}

func (c *change) rollback() {
	switch {
	case c.placed && c.patch != nil:
		c.patch.rollback()
	case c.placed:
		_ = c.temp.Back(c.parent, c.old != nil)
	}
	c.placed = false
	c.made.Undo()
	c.made = nil
}

// written counts the change and returns its result.
func (c *change) written() Written {
	w := Written{Path: c.f.opts.Paths.Display(c.rel), Created: c.old == nil, SHA256: c.sum, Notice: c.notice}
	file := c.file()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return w
	}
	if c.patch != nil && w.SHA256 == "" {
		w.SHA256 = sumOf(file, st.Size, c.f.opts.Limits.WholeBytes)
	}
	w.SizeBytes, w.Version = st.Size, c.f.versions.wrote(c.who, c.parent.Path, &st, c.latin1).version
	return w
}

// file returns the file with the new content.
func (c *change) file() *os.File {
	if c.patch != nil {
		return c.patch.file
	}
	return c.temp.File
}

// release frees the resources of the change and removes the replaced file.
func (c *change) release() {
	if c.patch != nil {
		_ = c.patch.file.Close()
	}
	if c.temp != nil {
		c.temp.Discard()
	}
	if c.parent != nil {
		c.parent.Close()
	}
	c.made.Close()
}

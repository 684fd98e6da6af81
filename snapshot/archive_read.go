package snapshot

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// Archive reads an archive: first the caller's own files, then packs and records. The archive is
// not trusted: its entries must be plain files with the names that Export writes, each once, none
// of them sparse, and with nothing after the last.
type Archive struct {
	Extra map[string][]byte // by name

	in   *tar.Reader
	rest *tail
	info archiveInfo
	next *tar.Header // the first entry after the caller's own; nil at the end
	size int64       // bytes of Extra
	seen map[string]bool
}

// OpenArchive reads an archive up to its packs.
func OpenArchive(r io.Reader) (*Archive, error) {
	rest := &tail{in: r}
	a := &Archive{Extra: map[string][]byte{}, in: tar.NewReader(rest), rest: rest, seen: map[string]bool{}}
	if err := a.head(); err != nil {
		return nil, archiveError(err)
	}
	return a, nil
}

func (a *Archive) head() error {
	if err := a.step(); err != nil {
		return err
	}
	if a.next == nil || a.next.Name != archiveHead {
		return errFormat
	}
	b, err := a.small()
	if err != nil || decodeStrictly(b, &a.info) != nil || a.info.Format != archiveFormat || checkID(a.info.Head, "") != nil {
		return errors.Join(errFormat, err)
	}
	for {
		if err := a.step(); err != nil || a.next == nil {
			return err
		}
		name, ok := strings.CutPrefix(a.next.Name, extraDir)
		if !ok {
			return nil
		}
		if !extraName().MatchString(name) || len(a.Extra) == maxExtras {
			return errFormat
		}
		if a.Extra[name], err = a.small(); err != nil {
			return err
		}
	}
}

// decodeStrictly decodes one JSON value without unknown fields.
func decodeStrictly(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errFormat
	}
	return nil
}

// step goes to the next entry.
func (a *Archive) step() (err error) {
	if a.next, err = a.in.Next(); errors.Is(err, io.EOF) {
		a.next = nil
		return a.rest.end()
	}
	if err != nil {
		return errors.Join(errFormat, err)
	}
	if a.next.Typeflag != tar.TypeReg || a.next.Size < 0 || a.seen[a.next.Name] {
		return errFormat
	}
	a.seen[a.next.Name] = true
	for key := range a.next.PAXRecords { // including those of sparse files
		if key != "size" {
			return errFormat
		}
	}
	return nil
}

// small reads one of the caller's own files.
func (a *Archive) small() ([]byte, error) {
	if a.size += a.next.Size; a.size > maxExtra {
		return nil, badArchive("has more than 16 MiB beside the workspace")
	}
	b := make([]byte, a.next.Size)
	_, err := io.ReadFull(a.in, b)
	return b, err
}

// tail counts the zero bytes at the end of what was read.
type tail struct {
	in    io.Reader
	zeros int64 // that they are
}

const (
	tarEnd  = 1 << 10 // bytes of zeros that end a tar file
	maxZero = 1 << 20 // and that may follow them
)

// Read implements io.Reader.
func (t *tail) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	last := bytes.TrimRight(p[:n], "\x00")
	if len(last) > 0 {
		t.zeros = 0
	}
	t.zeros += int64(n - len(last))
	return n, err
}

// end checks that the tar file is complete and that nothing follows it.
func (t *tail) end() error {
	if t.zeros < tarEnd {
		return io.ErrUnexpectedEOF
	}
	before := t.zeros
	n, err := io.Copy(io.Discard, io.LimitReader(t, maxZero+1))
	if err != nil || n > maxZero || t.zeros != before+n {
		return errors.Join(errFormat, err)
	}
	return nil
}

func archiveError(err error) error {
	if e := (*tool.Error)(nil); errors.As(err, &e) {
		return e
	}
	if errors.Is(err, errFormat) || errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badArchive("is incomplete, or is not an archive of wisbox").Because(err)
	}
	return storeError(err)
}

func badArchive(why string) *tool.Error {
	return tool.Errorf(tool.Invalid, "the archive %s; nothing of it was kept", why)
}

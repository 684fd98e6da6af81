package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// An archive is a tar file: archive.json, the caller's own files under extra/,
// then packs/ and records/ as they lie in a store. Reading it never takes a name
// from it that isn't one of these.
const (
	archiveFormat = 1
	archiveHead   = "archive.json"
	extraDir      = "extra/"
	maxExtra      = 16 << 20 // bytes of one extra file
	maxExtras     = 64
)

type archiveInfo struct {
	Format int    `json:"format"`
	Head   string `json:"head"` // the snapshot that is the workspace
}

var extraName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,79}$`)

// Export writes an archive of the workspace as it is, of all snapshots and of
// the caller's own small files (settings, for instance; names of lower-case
// letters, digits, dots and dashes, at most 16 MiB each). It makes a snapshot
// for it, which stays.
func (s *Store) Export(ctx context.Context, w io.Writer, extra map[string][]byte) (Info, error) {
	head, err := s.Create(ctx, &CreateOptions{Label: "saved"})
	if err != nil {
		return Info{}, err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	a := &exporter{ctx: ctx, out: tar.NewWriter(w)}
	err = a.archive(s, head.ID, extra)
	if err = errors.Join(err, a.out.Close()); err != nil {
		return Info{}, storeError(err)
	}
	return head, nil
}

type exporter struct {
	ctx context.Context
	out *tar.Writer
}

func (a *exporter) archive(s *Store, head string, extra map[string][]byte) error {
	b, err := json.Marshal(archiveInfo{Format: archiveFormat, Head: head})
	if err != nil {
		return err
	}
	if err := a.bytes(archiveHead, b); err != nil {
		return err
	}
	for name, b := range extra {
		if !extraName.MatchString(name) || len(b) > maxExtra {
			return tool.Errorf(tool.Internal, "%q can't be put in an archive", name)
		}
		if err := a.bytes(extraDir+name, b); err != nil {
			return err
		}
	}
	for name := range s.objects.packs {
		if err := a.file(s.packs, name, "packs/"+name); err != nil {
			return err
		}
	}
	ids, err := s.ids()
	for _, id := range ids {
		err = errors.Join(err, a.file(s.records, id+recordSuffix, "records/"+id+recordSuffix))
	}
	return err
}

func (a *exporter) bytes(name string, b []byte) error {
	return a.stream(name, int64(len(b)), bytes.NewReader(b))
}

func (a *exporter) file(root *os.Root, name, as string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return a.stream(as, info.Size(), f)
}

func (a *exporter) stream(name string, size int64, r io.Reader) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if err := a.out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := io.CopyN(a.out, r, size)
	return err
}

// Archive is an archive that is being read: what the caller put in, then packs
// and records.
type Archive struct {
	Extra map[string][]byte // by name

	in   *tar.Reader
	info archiveInfo
	next *tar.Header // the first that is not the caller's; nil at the end
}

// OpenArchive reads an archive up to the snapshots. It may come from anywhere.
func OpenArchive(r io.Reader) (*Archive, error) {
	a := &Archive{Extra: map[string][]byte{}, in: tar.NewReader(r)}
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
	if err != nil || json.Unmarshal(b, &a.info) != nil || a.info.Format != archiveFormat {
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
		if !extraName.MatchString(name) || len(a.Extra) == maxExtras {
			return errFormat
		}
		if a.Extra[name], err = a.small(); err != nil {
			return err
		}
	}
}

func (a *Archive) step() (err error) {
	if a.next, err = a.in.Next(); errors.Is(err, io.EOF) {
		a.next = nil
		return nil
	}
	if err != nil {
		return errors.Join(errFormat, err)
	}
	if a.next.Typeflag != tar.TypeReg {
		return errFormat
	}
	return nil
}

func (a *Archive) small() ([]byte, error) {
	if a.next.Size > maxExtra {
		return nil, errFormat
	}
	return io.ReadAll(a.in)
}

// Import takes an archive into a store that has no snapshots and brings its
// workspace back. Every object is checked first, and after an error nothing of it
// stays.
func (s *Store) Import(ctx context.Context, a *Archive) error {
	if err := s.takeIn(ctx, a); err != nil {
		return err
	}
	_, err := s.Restore(ctx, a.info.Head, nil)
	return err
}

func (s *Store) takeIn(ctx context.Context, from *Archive) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if ids, err := s.ids(); err != nil || len(ids) > 0 || len(s.objects.packs) > 0 {
		return errors.Join(storeError(err), tool.Errorf(tool.Exists, "the session has snapshots already; load the archive into a new session"))
	}
	a := &importer{ctx: ctx, store: s, Archive: from, left: 4 * s.opts.Limits.Bytes}
	err = a.run()
	if err == nil {
		err = s.accept(ctx, a)
	}
	if err != nil {
		return archiveError(errors.Join(err, a.undo()))
	}
	return nil
}

func archiveError(err error) error {
	if e := (*tool.Error)(nil); errors.As(err, &e) {
		return e
	}
	if errors.Is(err, errFormat) || errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badArchive("is cut or not one of wisbox's").Because(err)
	}
	return storeError(err)
}

func badArchive(why string) *tool.Error {
	return tool.Errorf(tool.Invalid, "the archive %s; nothing of it was kept", why)
}

type importer struct {
	*Archive
	ctx   context.Context
	store *Store
	left  int64
	packs []string
	ids   []string
}

func (a *importer) run() error {
	for a.next != nil {
		if a.left -= a.next.Size; a.left < 0 {
			return badArchive("is too large")
		}
		if err := errors.Join(a.ctx.Err(), a.entry(a.next)); err != nil {
			return err
		}
		if err := a.step(); err != nil {
			return err
		}
	}
	return nil
}

func (a *importer) entry(h *tar.Header) error {
	folder, name, _ := strings.Cut(h.Name, "/")
	switch folder {
	case "packs":
		return a.pack(name)
	case "records":
		return a.record(h, name)
	}
	return errFormat
}

func (a *importer) pack(name string) error {
	id, ok := strings.CutSuffix(name, packSuffix)
	if !ok || checkID(id, "") != nil || slices.Contains(a.packs, name) {
		return errFormat
	}
	a.packs = append(a.packs, name)
	return takePack(a.store.packs, name, a.in)
}

func (a *importer) record(h *tar.Header, name string) error {
	id, ok := strings.CutSuffix(name, recordSuffix)
	if !ok || checkID(id, "") != nil || h.Size > maxRecord {
		return errFormat
	}
	b, err := io.ReadAll(a.in)
	if err != nil {
		return err
	}
	if _, err := decodeRecord(b, id); err != nil {
		return errFormat
	}
	a.ids = append(a.ids, id)
	return replaceFile(a.store.records, name, b, false)
}

// accept checks that all of the archive's snapshots are whole.
func (s *Store) accept(ctx context.Context, a *importer) error {
	if !slices.Contains(a.ids, a.info.Head) {
		return errFormat
	}
	if err := s.objects.refresh(); err != nil {
		return err
	}
	found, err := s.verify(ctx)
	if err == nil && len(found) > 0 {
		err = badArchive("is damaged at " + found[0].Path)
	}
	return err
}

func (a *importer) undo() error {
	var errs []error
	for _, id := range a.ids {
		errs = append(errs, ignoreMissing(a.store.records.Remove(id+recordSuffix)))
	}
	for _, name := range a.packs {
		errs = append(errs, ignoreMissing(a.store.packs.Remove(name)))
	}
	return errors.Join(append(errs, a.store.objects.refresh())...)
}

package snapshot

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxPacks   = 1_024 // of an archive; each takes a descriptor
	maxRecords = 10_000
	// maxAhead is how far in the future the time of an archive's snapshot may be: clocks
	// differ, but the newest snapshots must be the session's own.
	maxAhead = 48 * time.Hour
)

// Import adds an archive to a store without snapshots and restores its workspace. It checks every
// part first: the hash of each object, that each pack is complete and has nothing else, that
// each record is valid and its tree is in the packs. After an error nothing of the archive stays.
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
		return errors.Join(storeError(err), tool.Errorf(tool.Exists, "the session already has snapshots; load the archive into a new session"))
	}
	b := budget.New(ctx, budget.Limits{Out: 4 * s.opts.Limits.Bytes, Memory: s.opts.Limits.Memory, Time: budget.None})
	defer b.Close()
	a := &importer{Archive: from, store: s, budget: b, left: s.opts.Limits.Store}
	err = a.run()
	if err == nil {
		err = a.accept()
	}
	if err != nil {
		return archiveError(errors.Join(err, a.undo()))
	}
	return nil
}

type importer struct {
	*Archive
	store  *Store
	budget *budget.Budget
	left   int64 // bytes left for packs and records
	packs  []string
	found  []*record
}

func (a *importer) run() error {
	for a.next != nil {
		if a.left -= a.next.Size; a.left < 0 {
			return badArchive("has more than the " + units.BytesSize(float64(a.store.opts.Limits.Store)) + " that the session's snapshots may take")
		}
		if err := errors.Join(a.budget.Check(), a.entry(a.next)); err != nil {
			return err
		}
		if err := a.step(); err != nil {
			return err
		}
	}
	return nil
}

func (a *importer) entry(h *tar.Header) error {
	if name, ok := strings.CutPrefix(h.Name, packsDir); ok {
		return a.pack(name)
	}
	if name, ok := strings.CutPrefix(h.Name, recordsDir); ok {
		return a.record(h, name)
	}
	return errFormat
}

func (a *importer) pack(name string) error {
	id, ok := strings.CutSuffix(name, packSuffix)
	if !ok || checkID(id, "") != nil || len(a.packs) == maxPacks {
		return errFormat
	}
	a.packs = append(a.packs, name)
	return takePack(a.store.packs, name, &asking{in: a.in, ask: func() error {
		return errors.Join(a.budget.Check(), a.store.room(a.budget.Context()))
	}})
}

// asking is a reader that checks before each MiB whether there is room for it.
type asking struct {
	in   io.Reader
	ask  func() error
	left int
}

// Read implements io.Reader.
func (r *asking) Read(p []byte) (int, error) {
	if r.left <= 0 {
		if err := r.ask(); err != nil {
			return 0, err
		}
		r.left = writeSize
	}
	n, err := r.in.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

func (a *importer) record(h *tar.Header, name string) error {
	id, ok := strings.CutSuffix(name, recordSuffix)
	if !ok || checkID(id, "") != nil || h.Size > maxRecord || len(a.found) == maxRecords {
		return errFormat
	}
	raw := make([]byte, h.Size)
	if _, err := io.ReadFull(a.in, raw); err != nil {
		return err
	}
	r := &record{}
	if err := decodeStrictly(raw, r); err != nil {
		return errors.Join(errFormat, err)
	}
	if _, err := decodeRecord(raw, id); err != nil {
		return errors.Join(errFormat, err)
	}
	if err := r.plausible(); err != nil {
		return errors.Join(errFormat, err)
	}
	r.Unstable, r.Skipped, r.Unkept = nil, nil, nil // thousands of records are kept until they are checked
	a.found = append(a.found, r)
	return replaceFile(a.store.records, name, raw, false)
}

// plausible refuses a record that no store could have written.
func (r *record) plausible() error {
	id, err := ulid.ParseStrict(strings.ToUpper(r.ID))
	if err != nil || time.Until(ulid.Time(id.Time())) > maxAhead {
		return errors.Join(errFormat, err)
	}
	for _, list := range [][]string{r.Unstable, r.Skipped, r.Unkept} {
		if len(list) > maxNamed || slices.ContainsFunc(list, func(path string) bool { return len(path) > 2*maxShown || !printable(path) }) {
			return errFormat
		}
	}
	return errors.Join(checkLine(r.Label, maxLabel, "label"), checkLine(r.Call, maxCall, "call"))
}

// accept checks that the whole archive is sound.
func (a *importer) accept() error {
	if !slices.ContainsFunc(a.found, func(r *record) bool { return r.ID == a.info.Head }) {
		return errFormat
	}
	s := a.store
	pieces := 0
	for _, name := range a.packs {
		n, err := s.objects.check(a.budget, name)
		if err != nil {
			return err
		}
		if pieces += n; pieces > s.opts.Limits.Objects { // before they are in the index, which is in memory
			return badArchive("holds more pieces than the session's snapshots may have")
		}
	}
	if err := s.objects.refresh(); err != nil {
		return err
	}
	v := newVerifier(a.budget, s.objects, s.opts.Limits.Entries)
	v.hashed = true
	for _, r := range a.found {
		sum, err := v.snapshot(r)
		if err != nil {
			return err
		}
		if len(v.found) > 0 {
			return badArchive("is damaged at " + v.found[0].Path)
		}
		if sum.entries > s.opts.Limits.Entries || sum.files != r.Files || sum.bytes != r.Bytes {
			return badArchive("has a snapshot that doesn't match its record")
		}
	}
	return nil
}

func (a *importer) undo() error {
	var errs []error
	for _, r := range a.found {
		errs = append(errs, ignoreMissing(a.store.records.Remove(r.ID+recordSuffix)))
	}
	for _, name := range a.packs {
		errs = append(errs, ignoreMissing(a.store.packs.Remove(name)))
	}
	return errors.Join(append(errs, a.store.objects.refresh())...)
}

// check reads a whole pack, and returns the number of its objects. It must be exactly as [packWriter] writes it, and each
// object must match its hash.
func (o *objects) check(b *budget.Budget, name string) (n int, err error) {
	f, err := o.root.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size()
	index, err := heldIndex(b, f, size)
	if err != nil {
		return 0, err
	}
	defer b.Release(len(index))
	if err := chargeAll(b, index); err != nil {
		return 0, err
	}
	var scratch []byte
	p := &pack{name: name, file: f, size: size}
	at, rest := int64(len(packMagic)), index
	var failed error
	err = scanObjects(f, size-footerSize-int64(len(index)), func(h Hash, l location) {
		if failed != nil {
			return
		}
		l.pack = p
		if len(rest) < indexEntry || string(appendIndex(nil, h, l)) != string(rest[:indexEntry]) {
			failed = errFormat
			return
		}
		at, rest = l.offset+int64(l.stored), rest[indexEntry:]
		scratch, failed = o.checkOne(b, h, l, scratch)
	})
	if err := errors.Join(err, failed); err != nil {
		return 0, err
	}
	if len(rest) > 0 || at != size-footerSize-int64(len(index)) {
		return 0, errFormat
	}
	return len(index) / indexEntry, nil
}

// chargeAll charges the unpacked lengths of an index's objects before the first is unpacked.
// None may unpack to more than its length.
func chargeAll(b *budget.Budget, index []byte) error {
	total := int64(0)
	eachIn(index, func(_ Hash, l location) { total = sum(total, int64(l.length)) })
	if err := b.Out(int(total)); err != nil {
		return archiveTooLarge(err)
	}
	return nil
}

// checkOne reads an object into scratch, which it returns for the next one.
func (o *objects) checkOne(b *budget.Budget, h Hash, l location, scratch []byte) ([]byte, error) {
	if err := b.Step(1); err != nil {
		return scratch, archiveTooLarge(err)
	}
	held := int(l.length)
	if err := b.Hold(held); err != nil {
		return scratch, archiveTooLarge(err)
	}
	defer b.Release(held)
	content, err := o.read(l, scratch)
	if err != nil || len(content) != held || held == 0 || hashOf(content) != h {
		return scratch, errors.Join(badArchive("has a pack that is damaged"), err)
	}
	if cap(content) > cap(scratch) {
		return content, nil
	}
	return scratch, nil
}

func archiveTooLarge(err error) error {
	if !errors.Is(err, budget.ErrExceeded) {
		return err
	}
	return badArchive("unpacks to more than the snapshots of a session may have").Because(err)
}

// sum adds two numbers without overflow.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

package snapshot

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/oklog/ulid/v2"
)

const packSize = 64 << 20 // bytes after which a new pack is begun

// objects are the packs of one store. get and put may be called from many goroutines at once;
// the other methods are for the one that holds the store.
type objects struct {
	root *os.Root // the directory of the packs
	sync bool
	enc  *zstd.Encoder
	dec  *zstd.Decoder
	bufs sync.Pool // for compression

	mu    sync.Mutex
	packs map[string]*pack
	index map[Hash]location
	open  *packWriter       // being filled
	claim map[Hash]struct{} // going into open
	added int64             // bytes that put has stored since the last flush
	puts  int               // and how many objects
	taken int64             // bytes of all packs
	room  room
}

// room bounds the bytes that put may add.
type room struct {
	bytes   int64 // of the whole store
	beside  int64 // of these, the bytes outside of packs
	objects int   // their number: each is in memory
	ask     func() error
	unasked int64 // bytes that were put since the last ask
	lacking int64 // bytes that did not fit
}

// errFull reports that the store is at its limit.
var errFull = errors.New("the store of snapshots is at its limit")

// take charges one object, and asks for room on the host before each write to the disk.
func (o *objects) take(n int64) error {
	r := &o.room
	pending := int64(0)
	if o.open != nil {
		pending = o.open.size()
	}
	if r.beside+o.taken+pending+n > r.bytes || len(o.index)+len(o.claim) > r.objects {
		r.lacking = max(r.lacking, n)
		return errFull
	}
	if r.unasked += n; r.unasked < writeSize {
		return nil
	}
	r.unasked = 0
	return r.ask()
}

func openObjects(root *os.Root, durable bool, room room) (*objects, error) {
	o := &objects{root: root, sync: durable, packs: map[string]*pack{}, index: map[Hash]location{}, claim: map[Hash]struct{}{}, room: room}
	o.room.unasked = writeSize
	o.bufs.New = func() any { return new([]byte) }
	var err error
	if o.enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0))); err != nil {
		return nil, err
	}
	if o.dec, err = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxObject), zstd.WithDecoderMaxWindow(maxObject), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(0)); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *objects) close() error {
	o.dec.Close()
	err := o.abandon()
	for _, p := range o.packs {
		err = errors.Join(err, p.file.Close())
	}
	return err
}

// refresh opens the packs that other processes have made, and closes those that they have
// removed.
func (o *objects) refresh() error {
	names, err := listNames(o.root)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, name := range names {
		if !strings.HasSuffix(name, packSuffix) || strings.HasPrefix(name, tempPrefix) {
			continue
		}
		seen[name] = true
		if o.packs[name] == nil {
			if err := o.load(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errFormat) {
				return err
			}
		}
	}
	var gone []*pack
	for name, p := range o.packs {
		if !seen[name] {
			gone = append(gone, p)
		}
	}
	o.forget(gone)
	return nil
}

func listNames(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (o *objects) load(name string) error {
	f, err := o.root.Open(name)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p := &pack{name: name, file: f, size: info.Size()}
	if err := p.each(func(h Hash, l location) { o.index[h] = l }); err != nil {
		return errors.Join(err, f.Close())
	}
	o.keep(p)
	return nil
}

func (o *objects) keep(p *pack) {
	o.packs[p.name] = p
	o.taken += p.size
}

func (o *objects) forget(packs []*pack) {
	if len(packs) == 0 {
		return
	}
	maps.DeleteFunc(o.index, func(_ Hash, l location) bool { return slices.Contains(packs, l.pack) })
	for _, p := range packs {
		o.taken -= p.size
		delete(o.packs, p.name)
		_ = p.file.Close()
	}
}

// find returns the location of an object.
func (o *objects) find(h Hash) (l location, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, ok = o.index[h]
	return l, ok
}

// has reports whether an object is stored, or about to be.
func (o *objects) has(h Hash) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, stored := o.index[h]
	_, coming := o.claim[h]
	return stored || coming
}

// put stores content unless the store already has it.
func (o *objects) put(content []byte) (Hash, error) {
	h := hashOf(content)
	if !o.mine(h) {
		return h, nil
	}
	buf := o.bufs.Get().(*[]byte)
	defer o.bufs.Put(buf)
	stored := o.enc.EncodeAll(content, (*buf)[:0])
	*buf = stored
	if len(stored) >= len(content) {
		stored = content
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.take(int64(len(stored)) + objectHeader + indexEntry); err != nil {
		return h, err
	}
	return h, o.append(h, len(content), stored)
}

// mine claims an object for the caller to store, and reports whether it succeeded.
func (o *objects) mine(h Hash) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, stored := o.index[h]; stored {
		return false
	}
	if _, coming := o.claim[h]; coming {
		return false
	}
	o.claim[h] = struct{}{}
	return true
}

func (o *objects) append(h Hash, length int, stored []byte) error {
	if o.open != nil && o.open.at > packSize {
		if err := o.seal(); err != nil {
			return err
		}
	}
	if o.open == nil {
		w, err := newPack(o.root, newID())
		if err != nil {
			return err
		}
		o.open = w
	}
	o.added += int64(len(stored)) + objectHeader + indexEntry
	o.puts++
	return o.open.add(h, length, stored)
}

func newID() string { return strings.ToLower(ulid.Make().String()) }

// seal completes the open pack. Its objects are then in the index.
func (o *objects) seal() error {
	w := o.open
	o.open = nil
	p, err := w.seal(o.sync)
	if err != nil {
		return err
	}
	o.keep(p)
	eachIn(w.index, func(h Hash, l location) {
		l.pack = p
		o.index[h] = l
		delete(o.claim, h)
	})
	return nil
}

// flush makes all new objects part of the store and returns the bytes that they took.
func (o *objects) flush() (added int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open != nil {
		err = o.seal()
	}
	added, o.added, o.puts = o.added, 0, 0
	o.claim, o.room.unasked = map[Hash]struct{}{}, writeSize
	return added, err
}

// pending returns the bytes and the number of objects put since the last flush, sealed or not,
// including the largest object that did not fit.
func (o *objects) pending() (bytes int64, objects int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.added + o.room.lacking, o.puts
}

// abandon discards the open pack.
func (o *objects) abandon() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claim, o.added, o.puts, o.room.unasked, o.room.lacking = map[Hash]struct{}{}, 0, 0, writeSize, 0
	if o.open == nil {
		return nil
	}
	w := o.open
	o.open = nil
	return w.abandon()
}

// get reads an object and verifies its hash. It forgets a damaged one, so that the next snapshot
// of the same content stores it again.
func (o *objects) get(h Hash) ([]byte, error) { return o.getInto(h, nil) }

// getInto is like get, but reads into buf if that is large enough.
func (o *objects) getInto(h Hash, buf []byte) ([]byte, error) {
	o.mu.Lock()
	l, ok := o.index[h]
	o.mu.Unlock()
	if !ok {
		return nil, &damage{hash: h, why: "is missing"}
	}
	content, err := o.read(l, buf)
	if err == nil && hashOf(content) == h {
		return content, nil
	}
	o.mu.Lock()
	delete(o.index, h)
	o.mu.Unlock()
	return nil, &damage{hash: h, why: "is not what was stored"}
}

func (o *objects) read(l location, buf []byte) ([]byte, error) {
	if int(l.length) > cap(buf) {
		buf = make([]byte, l.length)
	}
	if l.stored == l.length {
		_, err := l.pack.file.ReadAt(buf[:l.length], l.offset)
		return buf[:l.length], err
	}
	stored := o.bufs.Get().(*[]byte)
	defer o.bufs.Put(stored)
	*stored = slices.Grow((*stored)[:0], int(l.stored))[:l.stored]
	if _, err := l.pack.file.ReadAt(*stored, l.offset); err != nil {
		return nil, err
	}
	return o.dec.DecodeAll(*stored, buf[:0:l.length])
}

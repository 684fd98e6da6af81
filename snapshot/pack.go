package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/zeebo/blake3"

	"github.com/wisbox/wisbox/internal/budget"
)

// A pack is a file of objects that never changes after it was written:
//
//	"wbxpack1"
//	per object: "wobj", hash, length (u32), stored length (u32), the bytes:
//	            zstd if that is shorter, else unchanged
//	index, per object: hash, offset (u64), length, stored length (u32)
//	footer: offset of the index (u64), objects (u64), first 8 bytes of the
//	        index's BLAKE3, "wbxindex"
//
// Numbers are little-endian. If the index is missing or damaged, as in a file that was cut, the
// objects are found one after the other.
const (
	packMagic   = "wbxpack1"
	indexMagic  = "wbxindex"
	objectMagic = "wobj"

	objectHeader = 4 + 32 + 4 + 4
	indexEntry   = 32 + 8 + 4 + 4
	footerSize   = 8 + 8 + 8 + 8
)

// location is the place of an object.
type location struct {
	pack   *pack
	offset int64 // of the bytes, after the header
	length uint32
	stored uint32
}

// cost returns the bytes that the object takes in its pack.
func (l location) cost() int64 { return objectHeader + indexEntry + int64(l.stored) }

type pack struct {
	name string
	file *os.File
	size int64
}

// each lists the pack's objects.
func (p *pack) each(do func(Hash, location)) error {
	return readIndex(p.file, p.size, func(h Hash, l location) { l.pack = p; do(h, l) })
}

// readIndex lists a pack's objects.
func readIndex(f *os.File, size int64, each func(Hash, location)) error {
	head := make([]byte, len(packMagic))
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if string(head) != packMagic {
		return errFormat
	}
	index, err := indexOf(f, size)
	if err != nil {
		return scanObjects(f, size, each)
	}
	eachIn(index, func(h Hash, l location) {
		if l.sound(size) {
			each(h, l)
		}
	})
	return nil
}

func (l location) sound(size int64) bool {
	return l.offset >= 0 && l.offset <= size && int64(l.stored) <= size-l.offset && l.length <= maxObject && l.stored <= l.length
}

// readFooter returns the place of the index, and its checksum.
func readFooter(f *os.File, size int64) (at, length int64, sum []byte, err error) {
	var footer [footerSize]byte
	if size < footerSize+int64(len(packMagic)) {
		return 0, 0, nil, errFormat
	}
	if _, err := f.ReadAt(footer[:], size-footerSize); err != nil {
		return 0, 0, nil, err
	}
	begin, n := binary.LittleEndian.Uint64(footer[0:]), binary.LittleEndian.Uint64(footer[8:])
	if string(footer[24:]) != indexMagic || n > uint64(size)/indexEntry || begin != uint64(size)-footerSize-n*indexEntry || begin < uint64(len(packMagic)) {
		return 0, 0, nil, errFormat
	}
	return int64(begin), int64(n) * indexEntry, footer[16:24], nil
}

func indexOf(f *os.File, size int64) ([]byte, error) {
	at, length, sum, err := readFooter(f, size)
	if err != nil {
		return nil, err
	}
	index := make([]byte, length)
	if _, err := f.ReadAt(index, at); err != nil {
		return nil, err
	}
	if is := blake3.Sum256(index); string(is[:8]) != string(sum) {
		return nil, errFormat
	}
	return index, nil
}

// heldIndex returns the index of an untrusted pack, charged to a budget.
func heldIndex(b *budget.Budget, f *os.File, size int64) ([]byte, error) {
	_, length, _, err := readFooter(f, size)
	if err != nil {
		return nil, err
	}
	if err := b.Hold(int(length)); err != nil {
		return nil, archiveTooLarge(err)
	}
	var head [len(packMagic)]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || string(head[:]) != packMagic {
		return nil, errors.Join(errFormat, err)
	}
	return indexOf(f, size)
}

// scanObjects finds the objects of a pack without an index, up to the first invalid header.
func scanObjects(f *os.File, size int64, each func(Hash, location)) error {
	var head [objectHeader]byte
	for at := int64(len(packMagic)); at+objectHeader <= size; {
		if _, err := f.ReadAt(head[:], at); err != nil {
			return err
		}
		l := location{offset: at + objectHeader, length: binary.LittleEndian.Uint32(head[36:]), stored: binary.LittleEndian.Uint32(head[40:])}
		if string(head[:4]) != objectMagic || !l.sound(size) {
			return nil
		}
		each(Hash(head[4:36]), l)
		at = l.offset + int64(l.stored)
	}
	return nil
}

// packWriter fills one pack under a temporary name.
type packWriter struct {
	root  *os.Root
	name  string // once it is complete
	file  *os.File
	out   *bufio.Writer
	at    int64
	index []byte
}

const (
	tempPrefix = "tmp-"
	writeSize  = 1 << 20 // bytes that go to the disk in one piece
)

func newPack(root *os.Root, id string) (*packWriter, error) {
	name := id + packSuffix
	f, err := root.OpenFile(tempPrefix+name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	w := &packWriter{root: root, name: name, file: f, out: bufio.NewWriterSize(f, writeSize)}
	_, _ = w.out.WriteString(packMagic) // an error stays with the writer until it is flushed
	w.at = int64(len(packMagic))
	return w, nil
}

const packSuffix = ".pack"

// add appends an object: stored is content, compressed if that is shorter.
func (w *packWriter) add(h Hash, length int, stored []byte) error {
	var head [objectHeader]byte
	copy(head[:], objectMagic)
	copy(head[4:], h[:])
	binary.LittleEndian.PutUint32(head[36:], uint32(length))
	binary.LittleEndian.PutUint32(head[40:], uint32(len(stored)))
	_, _ = w.out.Write(head[:])
	if _, err := w.out.Write(stored); err != nil {
		return err
	}
	l := location{offset: w.at + objectHeader, length: uint32(length), stored: uint32(len(stored))}
	w.at = l.offset + int64(l.stored)
	w.index = appendIndex(w.index, h, l)
	return nil
}

func appendIndex(b []byte, h Hash, l location) []byte {
	b = append(b, h[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(l.offset))
	b = binary.LittleEndian.AppendUint32(b, l.length)
	return binary.LittleEndian.AppendUint32(b, l.stored)
}

// eachIn lists the objects of an index.
func eachIn(index []byte, each func(Hash, location)) {
	for ; len(index) > 0; index = index[indexEntry:] {
		le := binary.LittleEndian
		each(Hash(index[:32]), location{offset: int64(le.Uint64(index[32:])), length: le.Uint32(index[40:]), stored: le.Uint32(index[44:])})
	}
}

// size returns the size that the pack will have when it is sealed.
func (w *packWriter) size() int64 { return w.at + int64(len(w.index)) + footerSize }

// seal completes the pack and gives it its name.
func (w *packWriter) seal(sync bool) (*pack, error) {
	sum := blake3.Sum256(w.index)
	footer := binary.LittleEndian.AppendUint64(nil, uint64(w.at))
	footer = binary.LittleEndian.AppendUint64(footer, uint64(len(w.index)/indexEntry))
	footer = append(append(footer, sum[:8]...), indexMagic...)
	_, _ = w.out.Write(w.index)
	_, _ = w.out.Write(footer)
	err := w.out.Flush()
	if err == nil && sync {
		err = w.file.Sync()
	}
	if err == nil {
		err = w.root.Rename(tempPrefix+w.name, w.name)
	}
	if err != nil {
		return nil, errors.Join(err, w.abandon())
	}
	return &pack{name: w.name, file: w.file, size: w.size()}, nil
}

func (w *packWriter) abandon() error {
	err := w.file.Close()
	if rm := w.root.Remove(tempPrefix + w.name); !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

package snapshot

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// kind is the type of an entry. The values are part of the stored format.
type kind byte

const (
	gone    kind = 0 // existed when the directory was listed
	file    kind = 'f'
	folder  kind = 'd'
	symlink kind = 'l'
	special kind = 's' // FIFO, socket, device: noted, never stored
)

func (k kind) String() string {
	switch k {
	case file:
		return "file"
	case folder:
		return "directory"
	case symlink:
		return "symlink"
	}
	return "other"
}

// entry is one name of a directory. There are very many, so its fields leave no gaps.
type entry struct {
	name   string
	target string // of a link
	hash   Hash   // of a file's content (zero for an empty one) or of a directory
	dir    *dir   // of a directory, when it is in memory
	mtime  int64  // nanoseconds since 1970
	size   int64  // of a file

	more *more // what few entries have; may be nil

	// Known only to a scan of the workspace; never stored.
	ino    uint64
	ctime  int64
	links  uint32
	cached int32 // of a file: where the cache of contents has it, see [statCache.find]

	mode     uint32 // permission, set-id and sticky bits
	kind     kind
	list     bool // hash is that of a list of pieces
	sure     bool // of a file: its content is known, and can't change without a change of its times
	unstable bool
}

// more has what few entries have. It is shared and never changed.
type more struct {
	// attrs is the object with the extended attributes (user.*) of a file or directory, or zero.
	attrs Hash
	// first is the path of the first name of a file with several names, in the order of the tree. The
	// first name itself has none.
	first string
	// unkept reports that the file has other attributes, which aren't stored. Known only to a scan.
	unkept bool
}

func (e *entry) attrs() Hash {
	if e.more == nil {
		return Hash{}
	}
	return e.more.attrs
}

func (e *entry) first() string {
	if e.more == nil {
		return ""
	}
	return e.more.first
}

// plain returns what belongs to the file and not to one of its names; nil if there is nothing.
func (m *more) plain() *more {
	if m == nil || m.first == "" {
		return m
	}
	if m.attrs == (Hash{}) && !m.unkept {
		return nil
	}
	return &more{attrs: m.attrs, unkept: m.unkept}
}

func (e *entry) setFirst(path string) {
	e.more = &more{attrs: e.attrs(), first: path, unkept: e.more != nil && e.more.unkept}
}

// Memory of an entry and of a directory, besides their texts, in bytes.
const (
	entryMemory = 128
	moreMemory  = 64
	dirMemory   = 250 // including the queued work on it
)

// dir is a directory's entries, sorted by name.
type dir struct {
	entries []entry

	// Known only to a scan of the workspace, as in an entry.
	stamp   stamp
	settled bool // names can't change without a change of the stamp
	same    bool // everything is as a restore wants it, except for the content of its directories
}

// child returns an entry of a directory that is in memory, or nil.
func (e *entry) child(name string) *entry {
	if e == nil || e.dir == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(e.dir.entries, name, func(c entry, name string) int { return strings.Compare(c.name, name) })
	if !ok {
		return nil
	}
	return &e.dir.entries[i]
}

func (e *entry) take(st *unix.Stat_t) {
	e.mode, e.mtime, e.size = uint32(st.Mode)&0o7777, st.Mtim.Nano(), st.Size
	e.ino, e.ctime, e.links = st.Ino, st.Ctim.Nano(), uint32(min(uint64(st.Nlink), math.MaxUint32)) //nolint:unconvert // macOS has 16 bits
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.kind = file
	case unix.S_IFDIR:
		e.kind, e.size = folder, 0
	case unix.S_IFLNK:
		e.kind = symlink
	default:
		e.kind, e.size = special, 0
	}
}

// encode appends the directory in the stored format, from which its hash is computed: equal trees
// have equal hashes.
func (d *dir) encode(b []byte) []byte {
	rich := slices.ContainsFunc(d.entries, entry.rich)
	b = append(b[:0], treeFormat)
	if rich {
		b[0] = richFormat
	}
	for i := range d.entries {
		e := &d.entries[i]
		b = append(b, byte(e.kind))
		b = appendText(b, e.name)
		b = binary.AppendUvarint(b, uint64(e.mode))
		b = binary.AppendVarint(b, e.mtime)
		switch e.kind {
		case file:
			b = e.encodeFile(b)
		case folder:
			b = append(b, e.hash[:]...)
		case symlink:
			b = appendText(b, e.target)
		}
		if rich {
			b = e.encodeMore(b)
		}
	}
	return b
}

// rich reports whether an entry needs the format that has attributes and links.
func (e entry) rich() bool { return e.attrs() != Hash{} || e.first() != "" }

// Flags of an entry in the rich format.
const (
	hasAttrs = 1 << iota
	hasFirst
)

func (e *entry) encodeMore(b []byte) []byte {
	flags, attrs := byte(0), e.attrs()
	if attrs != (Hash{}) {
		flags |= hasAttrs
	}
	if e.first() != "" {
		flags |= hasFirst
	}
	b = append(b, flags)
	if flags&hasAttrs != 0 {
		b = append(b, attrs[:]...)
	}
	if flags&hasFirst != 0 {
		b = appendText(b, e.first())
	}
	return b
}

// encodedSize returns at least the number of bytes that encode writes.
func (d *dir) encodedSize() int {
	const most = 1 + 2*binary.MaxVarintLen64 + 2*binary.MaxVarintLen32 + 10 + 1 + len(Hash{})
	const rich = 1 + len(Hash{}) + binary.MaxVarintLen32
	n := 1
	for i := range d.entries {
		n += most + rich + len(d.entries[i].name) + len(d.entries[i].target) + len(d.entries[i].first())
	}
	return n
}

func (e *entry) encodeFile(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(e.size))
	if e.size == 0 {
		return b
	}
	list := byte(0)
	if e.list {
		list = 1
	}
	return append(append(b, list), e.hash[:]...)
}

// The formats of a stored directory. One without attributes and further names has the first, so that it
// has the same hash in every version.
const (
	treeFormat = 1
	richFormat = 2
)

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errFormat = errors.New("is not in the format of a snapshot")

// decodeDir decodes a stored directory. It checks everything, since an archive isn't trusted.
func decodeDir(b []byte) (*dir, error) {
	r := &reader{b: b, all: string(b)}
	if r.begin() != nil {
		return nil, errFormat
	}
	n, err := countEntries(b)
	if err != nil {
		return nil, err
	}
	d := &dir{entries: make([]entry, 0, n)}
	for len(r.b) > 0 && !r.bad {
		e := r.entry()
		if n := len(d.entries); r.bad || !validName(e.name) || n > 0 && d.entries[n-1].name >= e.name {
			return nil, errFormat
		}
		d.entries = append(d.entries, e)
	}
	return d, nil
}

// countEntries counts the entries of a stored directory, so that decodeDir allocates no more
// memory than they need.
func countEntries(b []byte) (n int, err error) {
	r := &reader{b: b}
	if err := r.begin(); err != nil {
		return 0, err
	}
	for ; len(r.b) > 0 && !r.bad; n++ {
		r.skipEntry()
	}
	if r.bad {
		return 0, errFormat
	}
	return n, nil
}

func validName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= unix.NAME_MAX && !strings.ContainsAny(name, "/\x00")
}

type reader struct {
	b   []byte // what is left
	all string // texts are parts of it: one piece of memory, not thousands
	bad bool

	rich bool // entries may have more
}

// begin reads the format.
func (r *reader) begin() error {
	format := r.byte()
	r.rich = format == richFormat
	if r.bad || format != treeFormat && format != richFormat {
		return errFormat
	}
	return nil
}

func (r *reader) entry() (e entry) {
	e.kind, e.name = kind(r.byte()), r.text()
	e.mode, e.mtime = uint32(r.uvarint())&0o7777, r.varint()
	switch e.kind {
	case file:
		if e.size = int64(r.uvarint()); e.size < 0 {
			r.bad = true
		}
		if e.size > 0 {
			e.list, e.hash = r.byte() == 1, r.hash()
		}
	case folder:
		e.hash = r.hash()
	case symlink:
		if e.target = r.text(); e.target == "" || len(e.target) >= unix.PathMax || strings.Contains(e.target, "\x00") {
			r.bad = true
		}
	case special:
	default:
		r.bad = true
	}
	if r.rich {
		r.more(&e)
	}
	return e
}

// more reads what a directory in the rich format has of an entry.
func (r *reader) more(e *entry) {
	flags := r.byte()
	var m more
	if flags&hasAttrs != 0 {
		m.attrs = r.hash()
	}
	if flags&hasFirst != 0 {
		m.first = r.text()
		r.bad = r.bad || e.kind != file || m.first == "" || len(m.first) > maxFirst
	}
	if flags&hasAttrs != 0 && e.kind != file && e.kind != folder || flags > hasAttrs|hasFirst {
		r.bad = true
	}
	if flags != 0 {
		e.more = &m
	}
}

func (r *reader) skipEntry() {
	k := kind(r.byte())
	r.next(r.uvarint())
	r.uvarint()
	r.varint()
	switch k {
	case file:
		if r.uvarint() > 0 {
			r.next(1 + uint64(len(Hash{})))
		}
	case folder:
		r.next(uint64(len(Hash{})))
	case symlink:
		r.next(r.uvarint())
	}
	if !r.rich {
		return
	}
	flags := r.byte()
	if flags&hasAttrs != 0 {
		r.next(uint64(len(Hash{})))
	}
	if flags&hasFirst != 0 {
		r.next(r.uvarint())
	}
}

func (r *reader) next(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) text() string {
	n := len(r.next(r.uvarint()))
	end := len(r.all) - len(r.b)
	return r.all[end-n : end]
}

func (r *reader) hash() (h Hash) {
	copy(h[:], r.next(uint64(len(h))))
	return h
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// piece is a part of a large file. Bytes that no piece covers are zero.
type piece struct {
	at   int64
	size int64
	hash Hash
}

func encodePieces(pieces []piece) []byte {
	b := []byte{listFormat}
	for _, p := range pieces {
		b = binary.AppendUvarint(b, uint64(p.at))
		b = binary.AppendUvarint(b, uint64(p.size))
		b = append(b, p.hash[:]...)
	}
	return b
}

const (
	listFormat  = 1
	minPiece    = 34 // bytes of a piece in a list
	pieceMemory = 48 // bytes of a piece
)

func decodePieces(b []byte, size int64) ([]piece, error) {
	r := &reader{b: b}
	if r.byte() != listFormat {
		return nil, errFormat
	}
	pieces, end := make([]piece, 0, len(b)/minPiece), int64(0)
	for len(r.b) > 0 {
		p := piece{at: int64(r.uvarint()), size: int64(r.uvarint()), hash: r.hash()}
		if r.bad || p.at < end || p.size <= 0 || p.size > chunkSize || p.at > size-p.size {
			return nil, errFormat
		}
		end = p.at + p.size
		pieces = append(pieces, p)
	}
	return pieces, nil
}

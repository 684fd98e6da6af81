package snapshot

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
)

const (
	attrsFormat = 1
	maxAttrs    = 256 << 10 // bytes of the attributes of one file
)

type attribute struct {
	name  string
	value []byte
}

// readAttributes reads the attributes of an open file or directory that a snapshot keeps. unkept
// reports that there are others, or too many.
func readAttributes(fd int) (attrs []attribute, unkept bool, err error) {
	names, err := beneath.Attributes(fd)
	if err != nil || len(names) == 0 {
		return nil, false, err
	}
	size := 0
	for _, name := range names {
		if !strings.HasPrefix(name, beneath.UserAttributes) {
			unkept = unkept || name != "security.selinux" // which every file has on some systems
			continue
		}
		value, err := beneath.Attribute(fd, name)
		switch {
		case errors.Is(err, unix.ENODATA):
			continue
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM): // the mode forbids it to the owner
			unkept = true
			continue
		case err != nil:
			return nil, false, err
		}
		if size += len(name) + len(value); size > maxAttrs {
			return nil, true, nil
		}
		attrs = append(attrs, attribute{name, value})
	}
	return attrs, unkept, nil
}

func encodeAttributes(attrs []attribute) []byte {
	b := []byte{attrsFormat}
	for _, a := range attrs {
		b = appendText(b, a.name)
		b = appendText(b, string(a.value))
	}
	return b
}

// decodeAttributes checks everything, since an archive isn't trusted.
func decodeAttributes(b []byte) ([]attribute, error) {
	r := &reader{b: b, all: string(b)}
	if r.byte() != attrsFormat || len(b) > 2*maxAttrs {
		return nil, errFormat
	}
	var attrs []attribute
	for len(r.b) > 0 && !r.bad {
		name := r.text()
		value := r.text()
		if !strings.HasPrefix(name, beneath.UserAttributes) || len(name) > unix.NAME_MAX || strings.Contains(name, "\x00") {
			return nil, errFormat
		}
		attrs = append(attrs, attribute{name, []byte(value)})
	}
	if r.bad || len(attrs) == 0 {
		return nil, errFormat
	}
	return attrs, nil
}

// noteAttributes reads the attributes of the file or directory that is open as fd into its entry.
func (s *scan) noteAttributes(fd int, e *entry) error {
	attrs, unkept, err := readAttributes(fd)
	if err != nil || len(attrs) == 0 && !unkept {
		e.more = nil
		return err
	}
	if err := s.hold(moreMemory); err != nil {
		return err
	}
	m := &more{unkept: unkept}
	if len(attrs) > 0 {
		b := encodeAttributes(attrs)
		if err := s.spend(int64(len(b))); err != nil {
			return err
		}
		if m.attrs, err = s.put(b); err != nil {
			return err
		}
	}
	e.more = m
	return nil
}

// setUserAttributes gives an open file or directory exactly the attributes of an entry, but leaves
// others than the user's alone.
func (st *stage) setUserAttributes(fd int, e *entry) error {
	names, err := beneath.Attributes(fd)
	if err != nil {
		return err
	}
	want, err := st.store.attributesOf(e)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, beneath.UserAttributes) || slices.ContainsFunc(want, func(a attribute) bool { return a.name == name }) {
			continue
		}
		if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return err
		}
	}
	for _, a := range want {
		if err := unix.Fsetxattr(fd, a.name, a.value, 0); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) attributesOf(e *entry) ([]attribute, error) {
	h := e.attrs()
	if h == (Hash{}) {
		return nil, nil
	}
	b, err := s.objects.get(h)
	if err != nil {
		return nil, err
	}
	attrs, err := decodeAttributes(b)
	if err != nil {
		return nil, &damage{hash: h, why: err.Error()}
	}
	return attrs, nil
}

// flags of a record in the cache of contents.
const (
	isList = 1 << iota
	withAttrs
	withUnkept
)

func (c *content) flags() byte {
	flags := byte(0)
	if c.list {
		flags |= isList
	}
	if c.more != nil && c.more.attrs != (Hash{}) {
		flags |= withAttrs
	}
	if c.more != nil && c.more.unkept {
		flags |= withUnkept
	}
	return flags
}

// appendContent appends a record of the cache.
func appendContent(b []byte, c *content) []byte {
	for _, v := range []uint64{c.ino, uint64(c.size), uint64(c.mtime), uint64(c.ctime)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(append(b, c.hash[:]...), c.flags())
	if c.flags()&withAttrs != 0 {
		b = append(b, c.more.attrs[:]...)
	}
	return b
}

// takeContent reads a record; ok is false if b doesn't begin with one.
func takeContent(b []byte) (c content, rest []byte, ok bool) {
	if len(b) < cacheRecord {
		return c, nil, false
	}
	le := binary.LittleEndian
	c.stamp = stamp{le.Uint64(b), int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:]))}
	flags := b[cacheRecord-1]
	c.hash, c.list, rest = Hash(b[32:64]), flags&isList != 0, b[cacheRecord:]
	if flags&(withAttrs|withUnkept) == 0 {
		return c, rest, true
	}
	c.more = &more{unkept: flags&withUnkept != 0}
	if flags&withAttrs == 0 {
		return c, rest, true
	}
	if len(rest) < len(Hash{}) {
		return c, nil, false
	}
	c.more.attrs = Hash(rest[:len(Hash{})])
	return c, rest[len(Hash{}):], true
}

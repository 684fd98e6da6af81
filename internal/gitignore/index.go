package gitignore

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// ErrIndex reports that an index doesn't list all tracked files by itself, or that it isn't one.
var ErrIndex = errors.New("git's index can't be read")

const (
	indexHead  = 12 // bytes before the first entry
	entryStats = 40 // bytes before an entry's hash
	extended   = 1 << 14
	maxName    = 4 << 10
)

// ReadIndex calls each with the path of every file in an index of git, which need not be a sound
// one. The path is valid during the call only.
func ReadIndex(index []byte, each func(path []byte)) error {
	const sha1, sha256 = 20, 32
	for _, hash := range []int{sha1, sha256} {
		if readIndex(index, hash, func([]byte) {}) == nil { // first all of it
			return readIndex(index, hash, each)
		}
	}
	return ErrIndex
}

func readIndex(index []byte, hash int, each func([]byte)) error {
	if len(index) < indexHead+hash || string(index[:4]) != "DIRC" {
		return ErrIndex
	}
	version, entries := binary.BigEndian.Uint32(index[4:]), binary.BigEndian.Uint32(index[8:])
	if version < 2 || version > 4 {
		return ErrIndex
	}
	rest, name := index[indexHead:len(index)-hash], []byte(nil)
	for range entries {
		head := entryStats + hash + 2
		if len(rest) < head {
			return ErrIndex
		}
		if flags := binary.BigEndian.Uint16(rest[head-2:]); version > 2 && flags&extended != 0 {
			head += 2
		}
		if len(rest) < head {
			return ErrIndex
		}
		text := rest[head:]
		if version == 4 { // a name begins as the one before
			drop, n := offset(text)
			if n == 0 || drop > len(name) {
				return ErrIndex
			}
			name, text = name[:len(name)-drop], text[n:]
		} else {
			name = name[:0]
		}
		end := bytes.IndexByte(text, 0)
		if end < 0 || len(name)+end > maxName {
			return ErrIndex
		}
		name = append(name, text[:end]...)
		if len(name) == 0 {
			return ErrIndex
		}
		each(name)
		length := head + end + 1
		if version == 4 {
			length = len(rest) - len(text) + end + 1
		} else {
			length = (length + 7) &^ 7
		}
		if length > len(rest) {
			return ErrIndex
		}
		rest = rest[length:]
	}
	return extensions(rest)
}

// offset reads a number in the form of git's packs.
func offset(b []byte) (v, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		if n++; n > 1 {
			v++
		}
		v = v<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return v, n
		}
	}
	return 0, 0
}

// extensions checks the rest. Extensions with a name in lower case change what the entries mean: a
// split index has entries in another file, a sparse one has directories among its entries.
func extensions(rest []byte) error {
	const head = 8
	for len(rest) > 0 {
		if len(rest) < head || rest[0] < 'A' || rest[0] > 'Z' {
			return ErrIndex
		}
		size := binary.BigEndian.Uint32(rest[4:])
		if uint64(size) > uint64(len(rest)-head) {
			return ErrIndex
		}
		rest = rest[head+int(size):]
	}
	return nil
}

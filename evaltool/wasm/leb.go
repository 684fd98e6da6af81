package wasm

import "errors"

var errModule = errors.New("the module is damaged")

// reader reads the bytes of a module. A read past the end sets bad, and all later reads return zero.
type reader struct {
	data []byte
	at   int
	bad  bool
}

func (r *reader) more() bool { return !r.bad && r.at < len(r.data) }

func (r *reader) byte() byte {
	if r.at >= len(r.data) {
		r.bad = true
		return 0
	}
	r.at++
	return r.data[r.at-1]
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.data)-r.at) {
		r.bad = true
		return nil
	}
	r.at += int(n)
	return r.data[r.at-int(n) : r.at]
}

// u reads an unsigned LEB128 number.
func (r *reader) u() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.bad = true
	return 0
}

// s reads a signed LEB128 number.
func (r *reader) s() int64 {
	var v int64
	for shift := 0; shift < 70; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if b&0x40 != 0 && shift < 57 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	r.bad = true
	return 0
}

// skip skips n LEB128 numbers.
func (r *reader) skip(n int) {
	for ; n > 0; n-- {
		for r.byte() >= 0x80 && !r.bad {
		}
	}
}

func (r *reader) name() string { return string(r.bytes(r.u())) }

func appendU(buf []byte, v uint64) []byte {
	for v >= 0x80 {
		buf = append(buf, byte(v)|0x80)
		v >>= 7
	}
	return append(buf, byte(v))
}

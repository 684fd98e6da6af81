package wasm

import "fmt"

const (
	opBlock    = 0x02
	opLoop     = 0x03
	opIf       = 0x04
	opEnd      = 0x0b
	opI32Const = 0x41
	opI64Const = 0x42
)

// instrument adds fuel counting to every function: one unit at its entry and one at the head of each loop iteration.
// Code between two of these places is straight-line, so the count bounds the work.
func (w *rewriter) instrument(body []byte) ([]byte, error) {
	tick := w.tick()
	r := &reader{data: body}
	count := r.u()
	out := appendU(make([]byte, 0, len(body)+len(body)/4), count)
	var function []byte
	for range count {
		code := r.bytes(r.u())
		if r.bad {
			return nil, errModule
		}
		var err error
		if function, err = instrumentFunction(function[:0], code, tick); err != nil {
			return nil, err
		}
		out = appendU(out, uint64(len(function)))
		out = append(out, function...)
	}
	return out, nil
}

// tick returns the code that takes one unit, and calls the hook if none is left.
func (w *rewriter) tick() []byte {
	const globalGet, globalSet, i64Sub, i64LtS, call, drop, void = 0x23, 0x24, 0x7d, 0x53, 0x10, 0x1a, 0x40
	var t []byte
	t = appendU(append(t, globalGet), w.fuel)
	t = append(t, opI64Const, 1, i64Sub)
	t = appendU(append(t, globalSet), w.fuel)
	t = appendU(append(t, globalGet), w.fuel)
	t = append(t, opI64Const, 0, i64LtS, opIf, void)
	t = appendU(append(t, call), w.hook)
	return append(t, drop, opEnd)
}

func instrumentFunction(out, code, tick []byte) ([]byte, error) {
	r := &reader{data: code}
	for range r.u() {
		if r.bad {
			return nil, errModule
		}
		r.skip(1)
		r.byte()
	}
	out = append(out, code[:r.at]...)
	out = append(out, tick...)
	from := r.at
	for r.more() {
		op := r.byte()
		if err := skipImmediates(r, op); err != nil {
			return nil, err
		}
		if op == opLoop {
			out = append(out, code[from:r.at]...)
			out = append(out, tick...)
			from = r.at
		}
	}
	if r.bad {
		return nil, errModule
	}
	return append(out, code[from:]...), nil
}

// skipImmediates skips the immediates of an opcode.
func skipImmediates(r *reader, op byte) error {
	switch {
	case op == opBlock, op == opLoop, op == opIf, op == 0x0c, op == 0x0d, op == 0x10,
		op >= 0x20 && op <= 0x26, op == opI32Const, op == opI64Const, op == 0x3f, op == 0x40, op == 0xd0, op == 0xd2:
		r.skip(1)
	case op == 0x0e: // br_table
		for range r.u() + 1 {
			if r.bad {
				return errModule
			}
			r.skip(1)
		}
	case op == 0x11, op >= 0x28 && op <= 0x3e: // call_indirect, loads and stores
		r.skip(2)
	case op == 0x1c: // select with types
		r.bytes(r.u())
	case op == 0x43:
		r.bytes(4)
	case op == 0x44:
		r.bytes(8)
	case op == 0xfc:
		return skipExtended(r)
	case op <= 0x01, op == 0x05, op == opEnd, op == 0x0f, op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4, op == 0xd1:
	default:
		return fmt.Errorf("%w: opcode %#x is not known", errModule, op)
	}
	return nil
}

func skipExtended(r *reader) error {
	switch op := r.u(); {
	case op <= 7: // saturating conversions
	case op == 8, op == 10, op == 12, op == 14:
		r.skip(2)
	case op == 9, op == 11, op == 13, op >= 15 && op <= 17:
		r.skip(1)
	default:
		return fmt.Errorf("%w: opcode 0xfc %d is not known", errModule, op)
	}
	return nil
}

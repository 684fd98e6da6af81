package wasm

import (
	"fmt"
	"slices"
)

// Sections of a module that are examined.
const (
	sectionCustom = 0
	sectionImport = 2
	sectionGlobal = 6
	sectionExport = 7
	sectionStart  = 8
	sectionCode   = 10
	sectionData   = 11
	sectionCount  = 12
)

// Names that the rewritten module exports besides its own.
const (
	exportFuel  = "wisbox_fuel"
	exportStack = "wisbox_stack"
)

// The import that is called when the fuel is used up. It is an existing import of the module: a new one would change
// the numbers of all functions.
const (
	hookModule = "wasi_snapshot_preview1"
	hookName   = "sched_yield"
)

// rewritten is a prepared module: it counts fuel, and has no debug information and data. The data is in memory instead,
// from which an instance starts.
type rewritten struct {
	module []byte
	memory []byte // content of the data segments
}

// rewrite prepares a module. The stack pointer is its first global, as in every module of LLVM; loading checks that it
// behaves like one.
func rewrite(original []byte) (*rewritten, error) {
	r := &reader{data: original}
	if string(r.bytes(8)) != "\x00asm\x01\x00\x00\x00" {
		return nil, errModule
	}
	out := &rewritten{module: append(make([]byte, 0, len(original)/2), original[:8]...)}
	w := &rewriter{out: out}
	for r.more() {
		id := r.byte()
		body := r.bytes(r.u())
		if r.bad {
			return nil, errModule
		}
		if err := w.section(id, body); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type rewriter struct {
	out  *rewritten
	fuel uint64 // number of the new global
	hook uint64 // number of the imported function
}

func (w *rewriter) section(id byte, body []byte) error {
	var err error
	switch id {
	case sectionCustom, sectionCount:
		return nil
	case sectionData:
		w.out.memory, err = layOut(body)
		return err
	case sectionStart:
		return fmt.Errorf("%w: it has a start function", errModule)
	case sectionImport:
		w.hook, err = findHook(body)
	case sectionGlobal:
		body, w.fuel, err = addFuel(body)
	case sectionExport:
		body, err = addExports(body, w.fuel)
	case sectionCode:
		body, err = w.instrument(body)
	}
	if err != nil {
		return err
	}
	w.out.module = append(w.out.module, id)
	w.out.module = appendU(w.out.module, uint64(len(body)))
	w.out.module = append(w.out.module, body...)
	return nil
}

// findHook returns the number of the imported function to call. Only functions may be imported, so it equals the
// position in the list.
func findHook(body []byte) (uint64, error) {
	r := &reader{data: body}
	found, ok := uint64(0), false
	for i := range r.u() {
		if r.bad {
			return 0, errModule
		}
		module, name, kind := r.name(), r.name(), r.byte()
		r.u()
		if kind != 0 {
			return 0, fmt.Errorf("%w: it imports more than functions", errModule)
		}
		if module == hookModule && name == hookName {
			found, ok = i, true
		}
	}
	if !ok || r.bad {
		return 0, fmt.Errorf("%w: it does not import %s", errModule, hookName)
	}
	return found, nil
}

// addFuel appends a mutable i64 and returns its number.
func addFuel(body []byte) ([]byte, uint64, error) {
	r := &reader{data: body}
	count := r.u()
	if r.bad || count == 0 {
		return nil, 0, errModule
	}
	out := appendU(nil, count+1)
	out = append(out, body[r.at:]...)
	out = append(out, 0x7e, 1, opI64Const, 0, opEnd)
	return out, count, nil
}

func addExports(body []byte, fuel uint64) ([]byte, error) {
	r := &reader{data: body}
	count := r.u()
	if r.bad {
		return nil, errModule
	}
	out := appendU(nil, count+2)
	out = append(out, body[r.at:]...)
	out = appendExport(out, exportStack, 0)
	return appendExport(out, exportFuel, fuel), nil
}

func appendExport(out []byte, name string, global uint64) []byte {
	out = appendU(out, uint64(len(name)))
	out = append(out, name...)
	return appendU(append(out, 3), global)
}

// maxMemory is the maximum size of the data segments' memory, in bytes.
const maxMemory = 256 << 20

// layOut returns the memory with the data segments.
func layOut(body []byte) ([]byte, error) {
	r := &reader{data: body}
	var memory []byte
	for range r.u() {
		flag, op := r.u(), r.byte()
		offset := uint64(uint32(r.s()))
		end := r.byte()
		data := r.bytes(r.u())
		if r.bad || flag != 0 || op != opI32Const || end != opEnd || offset+uint64(len(data)) > maxMemory {
			return nil, fmt.Errorf("%w: a data segment is of an unexpected kind", errModule)
		}
		if need := int(offset) + len(data); need > len(memory) {
			memory = slices.Grow(memory, need-len(memory))[:need]
		}
		copy(memory[offset:], data)
	}
	return memory, nil
}

package wasm

import (
	"fmt"
	"os"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

const pageSize = 64 << 10 // of a WebAssembly memory

// image is a memory from which instances start: an unnamed file that each maps copy-on-write. It is never written after
// its creation.
type image struct {
	file *os.File
	size int // bytes, whole pages
}

// newImage copies a memory.
func newImage(memory []byte) (*image, error) {
	file, err := sys.UnnamedMemory("wisbox-python")
	if err != nil {
		return nil, fmt.Errorf("make a memory image: %w", err)
	}
	img := &image{file: file, size: (len(memory) + pageSize - 1) / pageSize * pageSize}
	if err = img.file.Truncate(int64(img.size)); err == nil {
		_, err = img.file.WriteAt(memory, 0)
	}
	if err != nil {
		img.close()
		return nil, fmt.Errorf("make a memory image: %w", err)
	}
	return img, nil
}

func (i *image) close() { _ = i.file.Close() }

// region is the memory of one instance: address space for its maximum size, of which only touched pages cost memory.
type region struct {
	all []byte
}

// mapRegion creates a region of at most limit bytes with the image's content.
func (i *image) mapRegion(limit int) (*region, error) {
	limit = max(limit, i.size) / pageSize * pageSize
	all, err := unix.Mmap(-1, 0, limit, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve memory: %w", err)
	}
	r := &region{all: all}
	if i.size == 0 {
		return r, nil
	}
	if err := mapOver(all[:i.size], i.file); err != nil {
		r.unmap()
		return nil, fmt.Errorf("map a memory image: %w", err)
	}
	return r, nil
}

func (r *region) unmap() {
	if r.all != nil {
		_ = unix.Munmap(r.all)
	}
	r.all = nil
}

// Allocate implements experimental.MemoryAllocator.
func (r *region) Allocate(_, _ uint64) experimental.LinearMemory { return r }

// Reallocate implements experimental.LinearMemory. Over the limit it returns nil, which the program sees as a failed
// growth.
func (r *region) Reallocate(size uint64) []byte {
	if size > uint64(len(r.all)) {
		return nil
	}
	return r.all[:size:len(r.all)]
}

// Free implements experimental.LinearMemory. The region's maker unmaps it.
func (r *region) Free() {}

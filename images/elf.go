package images

import (
	"debug/elf"
	"encoding/binary"
)

// CPython's library is 212 MB with its debug sections and 24 MB without. They follow everything that is loaded, so
// stripping only means truncating the file there, without any tool.

// elfHeadSize is enough for the header and the program headers.
const elfHeadSize = 4096

// Offsets in a 64-bit ELF header, and the size of a program header.
const (
	elfPhoff, elfShoff = 32, 40
	elfPhnum, elfShnum = 56, 60
	elfShstrndx        = 62
	elfPhentsize       = 56
)

// loadedSize returns the end of the loaded part of a 64-bit little-endian ELF file, or 0 for other files.
func loadedSize(head []byte) int64 {
	if len(head) < 64 || string(head[:4]) != elf.ELFMAG || elf.Class(head[elf.EI_CLASS]) != elf.ELFCLASS64 ||
		elf.Data(head[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return 0
	}
	le := binary.LittleEndian
	phoff, count := le.Uint64(head[elfPhoff:]), uint64(le.Uint16(head[elfPhnum:]))
	if phoff > elfHeadSize || phoff+count*elfPhentsize > uint64(len(head)) {
		return 0
	}
	var end int64
	for i := range count {
		ph := head[phoff+i*elfPhentsize:]
		offset, size := le.Uint64(ph[8:]), le.Uint64(ph[32:])
		end = max(end, int64(offset+size)) // an overflow is negative, and so never the maximum
	}
	return end
}

// dropSections removes the section table from the header.
func dropSections(head []byte) {
	clear(head[elfShoff : elfShoff+8])
	clear(head[elfShnum : elfShnum+2])
	clear(head[elfShstrndx : elfShstrndx+2])
}

package vfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/holes"
)

const (
	tarBlock = 512
	// A file with more parts, or more bytes in them, is written with its zeros.
	mostParts  = 64 << 10
	mostStored = 7 << 30
)

// sparse writes a file with holes in the format of GNU tar, version 1.0 over PAX, which package tar
// only reads: an extended header, then a map of the data, then the data. done is false if the file
// has too many parts for that.
func (ex *exporting) sparse(name string, f *os.File, st *unix.Stat_t) (done bool, err error) {
	parts, size, err := partsOf(f, st.Size)
	if err != nil || parts == nil || size > mostStored {
		return false, nil // the usual way reports an error, if there still is one
	}
	var index bytes.Buffer
	fmt.Fprintf(&index, "%d\n", len(parts))
	for _, p := range parts {
		fmt.Fprintf(&index, "%d\n%d\n", p.at, p.size)
	}
	index.Write(make([]byte, (tarBlock-index.Len()%tarBlock)%tarBlock))
	stored := int64(index.Len()) + size
	if err := errors.Join(ex.tar.Flush(), ex.extended(map[string]string{
		"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": name, "GNU.sparse.realsize": strconv.FormatInt(st.Size, 10),
		"mtime": fmt.Sprintf("%d.%09d", st.Mtim.Sec, st.Mtim.Nsec),
	})); err != nil {
		return false, errors.Join(errOutput, err)
	}
	if err := ex.header(&tar.Header{Typeflag: tar.TypeReg, Name: "GNUSparseFile.0/file", Size: stored, Format: tar.FormatUSTAR}, st); err != nil {
		return false, err
	}
	if _, err := ex.tar.Write(index.Bytes()); err != nil {
		return false, errors.Join(errOutput, err)
	}
	for _, p := range parts {
		body := io.MultiReader(&contextReader{ctx: ex.ctx, r: io.NewSectionReader(f, p.at, p.size)}, zeros{})
		if _, err := io.CopyN(ex.tar, body, p.size); err != nil {
			return false, errors.Join(errOutput, err)
		}
	}
	ex.Files++
	ex.Bytes += size
	return true, nil
}

type part struct{ at, size int64 }

// partsOf returns the parts of a file that aren't holes and, at its end, an empty one; nil if there are
// too many. bytes is their size.
func partsOf(f *os.File, size int64) (parts []part, bytes int64, err error) {
	for at := int64(0); ; {
		from, to, err := holes.Data(int(f.Fd()), at, size)
		if err != nil {
			return nil, 0, err
		}
		if from == size {
			return append(parts, part{size, 0}), bytes, nil
		}
		if len(parts) == mostParts {
			return nil, 0, nil
		}
		parts, bytes, at = append(parts, part{from, to - from}), bytes+to-from, to
	}
}

// extended writes a header of PAX records for the next entry, which package tar can't with records of
// GNU's.
func (ex *exporting) extended(records map[string]string) error {
	var body bytes.Buffer
	for key, value := range records {
		rest := " " + key + "=" + value + "\n"
		n := len(rest) + 1
		for n != len(strconv.Itoa(n))+len(rest) {
			n = len(strconv.Itoa(n)) + len(rest)
		}
		body.WriteString(strconv.Itoa(n) + rest)
	}
	var block [tarBlock]byte
	copy(block[:], "GNUSparseFile.0/extended")
	for _, field := range []struct {
		at, width int
		value     int64
	}{{100, 8, 0o644}, {108, 8, 0}, {116, 8, 0}, {124, 12, int64(body.Len())}, {136, 12, 0}} {
		copy(block[field.at:], fmt.Sprintf("%0*o", field.width-1, field.value))
	}
	block[156] = 'x'
	copy(block[257:], "ustar\x0000")
	copy(block[148:], "        ") // counted as blanks
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	body.Write(make([]byte, (tarBlock-body.Len()%tarBlock)%tarBlock))
	_, err := ex.out.Write(append(block[:], body.Bytes()...))
	return err
}

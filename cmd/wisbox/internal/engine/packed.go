// Package engine has the program behind the one that people start. That one, the front, is small and starts in a
// fraction of the time; it does the commonest commands itself and continues as the engine for everything else. The
// engine is packed into the front's file, so that wisbox stays one file, and is unpacked once for each user.
//
//	front's file   [ELF of the front][engine, gzip][pages][trailer]
//	trailer        [magic, 16 bytes][packed size, u64][size, u64][size of the pages, u64][SHA-256 of the engine], big endian
package engine

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

const magic = "wisbox engine 1\n"

type trailer struct {
	Magic               [len(magic)]byte
	Packed, Size, Pages uint64
	Sum                 [sha256.Size]byte
}

// Append appends a packed engine, and what it has written of its [Pages], to the front's file.
func Append(front io.Writer, engine, pages []byte) error {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(engine); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	t := trailer{Packed: uint64(packed.Len()), Size: uint64(len(engine)), Pages: uint64(len(pages)), Sum: sha256.Sum256(engine)}
	copy(t.Magic[:], magic)
	if _, err := packed.Write(pages); err != nil {
		return err
	}
	if _, err := packed.WriteTo(front); err != nil {
		return err
	}
	return binary.Write(front, binary.BigEndian, t)
}

// Packed is the engine within a front's file.
type Packed struct {
	file *os.File
	at   int64 // where it begins
	trailer
}

var errNone = errors.New("this program has no engine behind it: it was built without `make build`")

// Open finds the engine in a front's file.
func Open(file *os.File) (*Packed, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	p := &Packed{file: file}
	end := st.Size() - int64(binary.Size(p.trailer))
	if end < 0 {
		return nil, errNone
	}
	if err := binary.Read(io.NewSectionReader(file, end, st.Size()-end), binary.BigEndian, &p.trailer); err != nil {
		return nil, err
	}
	if string(p.Magic[:]) != magic || p.Packed > uint64(end) || p.Pages > uint64(end)-p.Packed {
		return nil, errNone
	}
	p.at = end - int64(p.Packed) - int64(p.Pages)
	return p, nil
}

// name is that of the engine's directory: another one for each build.
func (p *Packed) name() string { return hex.EncodeToString(p.Sum[:len(p.Sum)/2]) }

// isName reports whether a directory may be an engine's.
func isName(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == len(Packed{}.Sum)/2
}

// unpack writes the engine to w and checks it.
func (p *Packed) unpack(w io.Writer) error {
	z, err := gzip.NewReader(io.NewSectionReader(p.file, p.at, int64(p.Packed)))
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(z, int64(p.Size)+1))
	if err == nil && (n != int64(p.Size) || !bytes.Equal(sum.Sum(nil), p.Sum[:])) {
		err = fmt.Errorf("the engine in this program's file is damaged: %d of %d bytes, or other ones; install wisbox again", n, p.Size)
	}
	return err
}

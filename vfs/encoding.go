package vfs

import (
	"encoding/json"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

// encoding is the encoding of content in arguments and answers. Agents use several names for the
// same encoding.
type encoding string

const (
	utf8Text   encoding = "utf-8"
	base64Text encoding = "base64"
	latin1     encoding = "latin-1"
	binary     encoding = "binary" // bytes, which JSON can hold only as base64
)

var encodingNames = map[string]encoding{
	"utf8": utf8Text, "utf_8": utf8Text, "ascii": utf8Text, "us-ascii": utf8Text, "text": utf8Text,
	"latin1": latin1, "latin_1": latin1, "iso-8859-1": latin1, "iso8859-1": latin1, "bytes": binary, "raw": binary,
}

// UnmarshalJSON also accepts the other names.
func (e *encoding) UnmarshalJSON(raw []byte) error {
	var name string
	if err := json.Unmarshal(raw, &name); err != nil {
		return err
	}
	*e = encoding(strings.ToLower(name))
	if known, ok := encodingNames[string(*e)]; ok {
		*e = known
	}
	return nil
}

// latin1Reader converts Latin-1, in which each byte is a character, to UTF-8.
type latin1Reader struct{ r io.Reader }

func (l latin1Reader) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, io.ErrShortBuffer
	}
	half := p[len(p)/2:]
	n, err := l.r.Read(half[:len(p)/2])
	out := 0
	for _, c := range half[:n] { // writes stay behind reads
		if c < 0x80 {
			p[out] = c
			out++
			continue
		}
		p[out], p[out+1] = 0xc0|c>>6, 0x80|c&0x3f
		out += 2
	}
	return out, err
}

// writtenAs returns the encoding in which the present content of a file was written.
func (v *versions) writtenAs(path string, st *unix.Stat_t) encoding {
	if v.latin1(path, st) {
		return latin1
	}
	return utf8Text
}

func fromLatin1(data []byte) string {
	text := make([]rune, len(data))
	for i, c := range data {
		text[i] = rune(c)
	}
	return string(text)
}

func toLatin1(content string) ([]byte, error) {
	out := make([]byte, 0, len(content))
	for _, r := range content {
		if r > 0xff {
			return nil, tool.Errorf(tool.Invalid, "%q can't be encoded as latin-1; write the file with encoding utf-8", r)
		}
		out = append(out, byte(r))
	}
	return out, nil
}

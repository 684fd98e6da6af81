package engine

import (
	"bytes"
	"io"
)

// Pages are texts of the engine that a front can show itself, by their names: "help exec", or "complete".
//
//	pages   [NUL][name][LF][text] for each, then NUL
type Pages struct{ text bytes.Buffer }

// Add adds a page. Neither string has a NUL, nor the name a line break.
func (p *Pages) Add(name, text string) { p.text.WriteString("\x00" + name + "\n" + text) }

// WriteTo implements io.WriterTo.
func (p *Pages) WriteTo(w io.Writer) (int64, error) {
	p.text.WriteByte(0)
	return p.text.WriteTo(w)
}

// Page returns a page of the engine in a front's file.
func (p *Packed) Page(name string) (text []byte, ok bool) {
	all := make([]byte, p.Pages)
	if _, err := p.file.ReadAt(all, p.at+int64(p.Packed)); err != nil {
		return nil, false
	}
	_, rest, ok := bytes.Cut(all, []byte("\x00"+name+"\n"))
	text, _, ended := bytes.Cut(rest, []byte{0})
	return text, ok && ended
}

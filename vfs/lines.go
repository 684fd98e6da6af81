package vfs

import (
	"bytes"
	"context"
	"unsafe"

	"github.com/wisbox/wisbox/internal/oneline"
)

// lineHit is a line of a text that matches: text[start:end], without its
// newline; the match begins at match.
type lineHit struct{ start, end, match int }

// lineFinder finds the matching lines of one text after the other. It is for one goroutine.
type lineFinder struct {
	p     *linePattern
	lines *oneline.Finder // of a pattern without a literal
	next  []int           // where each needed literal occurs next; -1 means nowhere
	rare  []int           // the byte of each by which it is searched
	real  bool            // rare was computed from the text, not from common frequencies
	cuts  *cuts
}

// find calls hit for each matching line of text[from:], which must be whole lines, until hit
// returns false or ctx ends.
func (f *lineFinder) find(ctx context.Context, text []byte, from int, hit func(lineHit) bool) error {
	if f.p.need != nil {
		return f.byLiteral(ctx, text, from, hit)
	}
	for from < len(text) {
		if err := ctx.Err(); err != nil {
			return err
		}
		end := pieceEnd(text, from, f.p.piece)
		if !f.inPiece(text, from, end, hit) {
			return nil
		}
		from = end
	}
	return nil
}

// pieceEnd returns the end of whole lines of about size bytes, at least one line.
func pieceEnd(text []byte, from, size int) int {
	if len(text)-from <= size {
		return len(text)
	}
	if i := bytes.LastIndexByte(text[from:from+size], '\n'); i >= 0 {
		return from + i + 1
	}
	return lineEnd(text, from+size, 1)
}

// lineEnd returns the end of the line that contains at, plus past for its newline.
func lineEnd(text []byte, at, past int) int {
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + past
	}
	return len(text)
}

func (f *lineFinder) byLiteral(ctx context.Context, text []byte, from int, hit func(lineHit) bool) error {
	f.reset(text)
	for looks := 0; from < len(text); looks++ {
		if looks%256 == 255 && ctx.Err() != nil {
			return ctx.Err()
		}
		at := f.nearest(text, from)
		if at < 0 {
			return nil
		}
		h := lineHit{start: from, end: lineEnd(text, at, 0), match: at}
		if i := bytes.LastIndexByte(text[from:at], '\n'); i >= 0 {
			h.start = from + i + 1
		}
		if (f.p.exact || f.verify(text, &h)) && !hit(h) {
			return nil
		}
		from = h.end + 1
	}
	return nil
}

func (f *lineFinder) reset(text []byte) {
	f.next = f.next[:0]
	for range f.p.need {
		f.next = append(f.next, 0)
	}
	if !f.real {
		f.sample(text)
	}
}

const (
	sampleLeast = 4 << 10
	sampleMost  = 64 << 10
)

// sample counts bytes in the first long text, to learn which bytes are rare.
func (f *lineFinder) sample(text []byte) {
	var counts [256]int
	f.real = len(text) >= sampleLeast
	if f.real {
		for _, c := range text[:min(len(text), sampleMost)] {
			counts[c]++
		}
	}
	f.rare = f.rare[:0]
	for _, l := range f.p.need {
		at := l.rare
		if f.real {
			at = l.rarestIn(&counts)
		}
		f.rare = append(f.rare, at)
	}
}

// nearest returns the offset of the first needed literal, or -1. It searches for each literal only
// once, since it remembers matches further ahead.
func (f *lineFinder) nearest(text []byte, from int) int {
	best := -1
	for i := range f.p.need {
		if f.next[i] >= 0 && (f.next[i] < from || f.next[i] == 0) {
			f.next[i] = f.p.need[i].index(text, from, f.rare[i])
		}
		if at := f.next[i]; at >= 0 && (best < 0 || at < best) {
			best = at
		}
	}
	return best
}

// verify matches the pattern against one line.
func (f *lineFinder) verify(text []byte, h *lineHit) bool {
	line := text[h.start:h.end]
	if len(line) > f.p.piece {
		line = line[:f.p.piece]
		f.cuts.add(lineCut)
	}
	loc := f.p.std.FindIndex(line)
	if loc == nil {
		return false
	}
	h.match = h.start + loc[0]
	return true
}

// inPiece searches text[from:end] for a pattern without a literal.
func (f *lineFinder) inPiece(text []byte, from, end int, hit func(lineHit) bool) bool {
	if end-from > f.p.piece { // one long line
		h := lineHit{start: from, end: lineEnd(text[:end], from, 0)}
		return !f.verify(text, &h) || hit(h)
	}
	if f.lines == nil {
		f.lines = oneline.NewFinder(f.p.std, f.p.program)
	}
	if text[end-1] == '\n' { // it ends the last line
		end--
	}
	piece := unsafe.String(&text[0], end) // text doesn't change
	for from <= end {
		start, to := f.lines.Line(piece[from:end])
		if start < 0 {
			break
		}
		h := lineHit{start: from + start, end: from + to}
		h.match = h.start + f.p.std.FindIndex(text[h.start:h.end])[0]
		if !hit(h) {
			return false
		}
		from = h.end + 1
	}
	return true
}

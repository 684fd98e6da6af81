package lisp

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// head keeps the beginning of a stream, up to the maximum of any text, and counts the characters of the rest.
type head struct {
	kept   []byte
	missed int64
}

// Write implements io.Writer; it never fails.
func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), utf8.UTFMax*maxOutput-len(h.kept))
	h.kept = append(h.kept, p[:n]...)
	for _, b := range p[n:] {
		if utf8.RuneStart(b) {
			h.missed++
		}
	}
	return len(p), nil
}

// remove removes matches from the kept text.
func (h *head) remove(noise *regexp.Regexp) {
	if len(h.kept) > 0 {
		h.kept = noise.ReplaceAll(h.kept, nil)
	}
}

// excerpt returns the first limit characters as valid UTF-8.
func (h *head) excerpt(limit int) excerpt {
	text := strings.ToValidUTF8(string(h.kept), "\uFFFD")
	cut := len(text)
	for i := range text {
		if limit == 0 {
			cut = i
			break
		}
		limit--
	}
	return excerpt{text[:cut], h.missed + int64(utf8.RuneCountInString(text[cut:]))}
}

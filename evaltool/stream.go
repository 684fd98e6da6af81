package evaltool

import (
	"strings"
	"unicode/utf8"
)

// StreamChars is how many characters of each stream a result holds.
const StreamChars = 4096

// StreamBytes is how much of a stream decides its text: one byte more than
// StreamChars of the longest characters, so that what is cut is known to be.
const StreamBytes = utf8.UTFMax*StreamChars + 1

const cutMark = "..."

// Stream is a writer that keeps what a result may show of a program's output
// and forgets the rest. It never fails and never blocks. The zero value is
// ready; it is for one goroutine at a time.
type Stream struct {
	kept []byte
}

// Write implements io.Writer.
func (s *Stream) Write(p []byte) (int, error) {
	room := StreamBytes - len(s.kept)
	s.kept = append(s.kept, p[:min(room, len(p))]...)
	return len(p), nil
}

// Text is the stream as valid UTF-8 of at most StreamChars characters, the last
// three of them dots where something is missing.
func (s *Stream) Text() string { return Clip(string(s.kept), StreamChars) }

// TextWith is Text with a note of wisbox at the end, which is kept whole where
// the two together are too long.
func (s *Stream) TextWith(note string) string {
	if note == "" {
		return s.Text()
	}
	said := strings.ToValidUTF8(string(s.kept), "\uFFFD")
	if said != "" && !strings.HasSuffix(said, "\n") {
		said += "\n"
	}
	if utf8.RuneCountInString(said)+utf8.RuneCountInString(note) > StreamChars {
		said = Clip(said, max(0, StreamChars-utf8.RuneCountInString(note)-1)) + "\n"
	}
	return Clip(said+note, StreamChars)
}

// Clip shortens text to at most limit characters, the last three of them dots
// where it was longer, and makes it valid UTF-8.
func Clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit || utf8.RuneCountInString(text) <= limit {
		return text
	}
	if limit < len(cutMark) {
		return ""
	}
	return string([]rune(text)[:limit-len(cutMark)]) + cutMark
}

package evaltool

import (
	"io"
	"strings"
	"unicode/utf8"
)

// StreamChars is the default maximum number of characters of each stream in a result.
const StreamChars = 4096

// StreamBytes returns the number of bytes of a stream that determine a text of so many characters: one byte more than
// the longest characters take, to detect a cut.
func StreamBytes(chars int) int64 { return int64(utf8.UTFMax*chars + 1) }

const cutMark = "..."

// Stream is a writer that keeps the part of a program's output that a result may show, and discards the rest. It never
// fails, and blocks only for its follower. The zero value is ready to use, by one goroutine at a time.
type Stream struct {
	// Max is the maximum number of characters, default StreamChars.
	Max int

	kept []byte
	to   io.Writer
}

// Follow passes on to w everything kept so far, and everything written from now on.
func (s *Stream) Follow(w io.Writer) {
	s.to = w
	if len(s.kept) > 0 {
		_, _ = w.Write(s.kept)
	}
}

// Write implements io.Writer.
func (s *Stream) Write(p []byte) (int, error) {
	room := int(StreamBytes(s.max())) - len(s.kept)
	s.kept = append(s.kept, p[:min(room, len(p))]...)
	if s.to != nil {
		_, _ = s.to.Write(p)
	}
	return len(p), nil
}

func (s *Stream) max() int {
	if s.Max <= 0 {
		return StreamChars
	}
	return s.Max
}

// Text returns the stream as valid UTF-8 of at most Max characters, the last three of them dots if something is
// missing.
func (s *Stream) Text() string { return Clip(string(s.kept), s.max()) }

// TextWith is like Text with a note of wisbox at the end. If both together are too long it cuts only the text.
func (s *Stream) TextWith(note string) string {
	if note == "" {
		return s.Text()
	}
	said := strings.ToValidUTF8(string(s.kept), "\uFFFD")
	if said != "" && !strings.HasSuffix(said, "\n") {
		said += "\n"
	}
	if utf8.RuneCountInString(said)+utf8.RuneCountInString(note) > s.max() {
		said = Clip(said, max(0, s.max()-utf8.RuneCountInString(note)-1)) + "\n"
	}
	return Clip(said+note, s.max())
}

// Clip shortens text to at most limit characters, the last three of them dots if it was longer, and makes it valid
// UTF-8.
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

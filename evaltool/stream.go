package evaltool

import (
	"io"
	"strings"
	"unicode/utf8"
)

// StreamChars is how many characters of each stream a result holds, where the session
// asks for no more.
const StreamChars = 4096

// StreamBytes is how much of a stream decides its text of so many characters: one byte
// more than the longest characters take, so that what is cut is known to be.
func StreamBytes(chars int) int64 { return int64(utf8.UTFMax*chars + 1) }

const cutMark = "..."

// Stream is a writer that keeps what a result may show of a program's output
// and forgets the rest. It never fails, and blocks only for who follows it. The zero
// value is ready; it is for one goroutine at a time.
type Stream struct {
	// Max is how many characters are kept, default StreamChars.
	Max int

	kept []byte
	to   io.Writer
}

// Follow passes on to w all that was kept, and from now on all that is written.
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

// Text is the stream as valid UTF-8 of at most Max characters, the last three of them
// dots where something is missing.
func (s *Stream) Text() string { return Clip(string(s.kept), s.max()) }

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
	if utf8.RuneCountInString(said)+utf8.RuneCountInString(note) > s.max() {
		said = Clip(said, max(0, s.max()-utf8.RuneCountInString(note)-1)) + "\n"
	}
	return Clip(said+note, s.max())
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

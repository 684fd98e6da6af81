package capture

import (
	"fmt"
	"io"
	"slices"

	"github.com/wisbox/wisbox/sandbox"
)

// Sizes of the public contract, in bytes of one stream.
const (
	DefaultKeep  = 32 << 10
	DefaultSpill = 8 << 20
)

// Options are the options of a Stream. Nil and zero fields take the defaults.
type Options struct {
	// Keep is the maximum number of bytes of the text, head and tail together; default DefaultKeep.
	Keep int
	// Spill is the number of first bytes that go to the file; default DefaultSpill.
	Spill int64
	// Open creates the file, on the first byte beyond Keep. If Open is nil, nothing is spilled. If
	// Open or a write fails, only the file ends.
	Open func() (io.WriteCloser, error)
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Keep == 0 {
		d.Keep = DefaultKeep
	}
	if d.Spill == 0 {
		d.Spill = DefaultSpill
	}
	return d
}

// Source returns the bound that the sandbox must apply to streams with these options.
func (o *Options) Source() *sandbox.Capture {
	d := o.withDefaults()
	forward := int64(d.Keep)
	if d.Open != nil {
		forward = max(forward, d.Spill)
	}
	return &sandbox.Capture{Forward: forward, Tail: d.Keep / 2}
}

// Stream receives one output stream. It is an io.Writer that never fails. One goroutine may use it
// at a time.
type Stream struct {
	opts  Options
	total int64
	head  []byte // up to Keep bytes; once cut, the first half of them
	tail  []byte // once cut, the newest bytes beyond the head
	over  bool
	file  io.WriteCloser
	spilt int64
}

// NewStream returns an empty Stream.
func NewStream(opts *Options) *Stream { return &Stream{opts: opts.withDefaults()} }

// Write implements io.Writer.
func (s *Stream) Write(p []byte) (int, error) {
	n := len(p)
	s.total += int64(n)
	if !s.over {
		fits := min(n, s.opts.Keep-len(s.head))
		s.head = append(s.head, p[:fits]...)
		if p = p[fits:]; len(p) == 0 {
			return n, nil
		}
		s.overflow()
	}
	s.spill(p)
	s.push(p)
	return n, nil
}

// overflow turns the buffer into head and tail and starts the file with both.
func (s *Stream) overflow() {
	s.over = true
	s.open()
	half := min(s.half(), len(s.head))
	s.tail = append(make([]byte, 0, 2*s.half()), s.head[half:]...)
	s.head = s.head[:half]
}

func (s *Stream) half() int { return s.opts.Keep / 2 }

func (s *Stream) open() {
	if s.opts.Open == nil {
		return
	}
	if file, err := s.opts.Open(); err == nil {
		s.file = file
		s.spill(s.head)
	}
}

func (s *Stream) spill(p []byte) {
	if s.file == nil {
		return
	}
	p = p[:min(int64(len(p)), s.opts.Spill-s.spilt)]
	n, err := s.file.Write(p)
	s.spilt += int64(n)
	if err != nil {
		s.closeFile()
	}
}

func (s *Stream) closeFile() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// push keeps the last half of Keep, moving bytes only once in a while.
func (s *Stream) push(p []byte) {
	p = p[max(0, len(p)-s.half()):]
	if len(s.tail)+len(p) > cap(s.tail) {
		s.tail = append(s.tail[:0], s.tail[max(0, len(s.tail)-s.half()):]...)
	}
	s.tail = append(s.tail, p...)
}

// Kept is the part of a stream that was kept.
type Kept struct {
	Text    string // valid UTF-8
	Total   int64  // bytes that the program wrote
	Dropped int64  // the bytes that Text lacks
	Spilled int64  // the first bytes, which are in the file
}

// Cut reports whether the text lacks anything.
func (s *Stream) Cut(src sandbox.Stream) bool { return max(s.total, src.Bytes) > int64(s.opts.Keep) }

// SpillAll also writes a stream that isn't cut into its file, for readers who want both streams of
// a program in files.
func (s *Stream) SpillAll() {
	if !s.over && s.spilt == 0 {
		s.open()
	}
}

// Finish ends the stream and its file. src has the sandbox's count, and its tail if it cut the
// stream; it is the zero value if the sandbox reported nothing.
func (s *Stream) Finish(src sandbox.Stream) Kept {
	if s.Cut(src) && !s.over {
		s.overflow()
	}
	s.closeFile()
	k := Kept{Total: max(s.total, src.Bytes), Spilled: s.spilt}
	if !s.over {
		k.Text = Text(s.head)
		return k
	}
	head, tail := s.head, s.lastBytes(k.Total-s.total, src.Tail)
	head, tail = head[:WholePrefix(head)], tail[brokenPrefix(tail):]
	k.Dropped = k.Total - int64(len(head)+len(tail))
	k.Text = join(Text(head), k.Dropped, Text(tail))
	return k
}

// lastBytes completes our tail with the sandbox's: the last unseen bytes reached only the sandbox.
func (s *Stream) lastBytes(unseen int64, tail []byte) []byte {
	if int64(len(tail)) >= unseen {
		tail = append(slices.Clip(s.tail), tail[int64(len(tail))-unseen:]...)
	}
	return tail[max(0, len(tail)-s.half()):]
}

func join(head string, missing int64, tail string) string {
	newline := ""
	if head != "" && head[len(head)-1] != '\n' {
		newline = "\n"
	}
	return fmt.Sprintf("%s%s[... %d bytes are missing here ...]\n%s", head, newline, missing, tail)
}

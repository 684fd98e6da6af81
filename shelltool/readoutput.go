package shelltool

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/capture"
	"github.com/wisbox/wisbox/tool"
)

var readOutputSpec = tool.Spec{
	Name: "read_output", Title: "Read the whole output of a program",
	Description: "Read a stream of an earlier shell_execute whose result was cut, from a byte offset. " +
		"The first 8 MiB of each stream are kept, for the newest 64 outputs.",
	ReadOnly: true, Idempotent: true,
}

// pageBytes is the default and maximum size of an answer.
const pageBytes = 32 << 10

// ReadOutputParams are the parameters of read_output.
type ReadOutputParams struct {
	OutputID string `json:"output_id" jsonschema:"the output_id of a shell_execute result"`
	Stream   string `json:"stream,omitempty" default:"stdout" enum:"stdout|stderr" jsonschema:"which of the two to read"`
	Offset   int64  `json:"offset,omitempty" default:"0" min:"0" jsonschema:"the first byte to read"`
	Limit    int    `json:"limit,omitempty" default:"32768" min:"1" jsonschema:"bytes to read, at most 32768; more is lowered"`
}

// ReadOutputResult is the result of read_output. Offsets and sizes are bytes.
type ReadOutputResult struct {
	OutputID   string   `json:"output_id"`
	Stream     string   `json:"stream"`
	Offset     int64    `json:"offset"`
	Content    string   `json:"content"`
	NextOffset int64    `json:"next_offset" jsonschema:"the offset to continue with"`
	KeptBytes  int64    `json:"kept_bytes" jsonschema:"the first bytes of the stream, which can be read"`
	TotalBytes int64    `json:"total_bytes" jsonschema:"all that the program wrote"`
	Truncated  bool     `json:"truncated" jsonschema:"there is more to read"`
	Notices    []string `json:"notices,omitempty"`
}

// ReadOutput returns a part of an output that was cut in a result. Zero fields of p get the defaults
// of the parameters.
func (s *Shell) ReadOutput(_ context.Context, p ReadOutputParams) (*ReadOutputResult, error) {
	notices, err := p.normalise()
	if err != nil {
		return nil, err
	}
	info, ok := s.outputs.info(p.OutputID)
	if !ok {
		return nil, tool.Errorf(tool.NotFound, "output not found; only results that were cut have an output_id, and the newest %d are kept", maxOutputs).In("output_id")
	}
	// A few bytes more, so that a small limit still returns a whole character.
	data, kept, err := s.outputs.read(p.OutputID, p.Stream, p.Offset, p.Limit+utf8.UTFMax)
	if err != nil {
		return nil, tool.Errorf(tool.Internal, "the kept output can't be read").Because(err)
	}
	data = page(data, p.Limit)
	r := &ReadOutputResult{
		OutputID: p.OutputID, Stream: p.Stream, Offset: p.Offset, Content: capture.Text(data),
		NextOffset: p.Offset + int64(len(data)), KeptBytes: kept, TotalBytes: info.total(p.Stream), Notices: notices,
	}
	r.Truncated = r.NextOffset < r.KeptBytes
	if r.KeptBytes < r.TotalBytes {
		r.Notices = append(r.Notices, fmt.Sprintf("the stream had %d bytes, of which the first %d were kept", r.TotalBytes, r.KeptBytes))
	}
	return r, nil
}

// normalise checks parameters of the typed API and sets the defaults.
func (p *ReadOutputParams) normalise() (notices []string, err error) {
	if p.Stream == "" {
		p.Stream = streamOut
	}
	switch {
	case p.Stream != streamOut && p.Stream != streamErr:
		return nil, invalid("stream", "stream must be stdout or stderr")
	case p.Offset < 0:
		return nil, invalid("offset", "offset is %d; it must be at least 0", p.Offset)
	case p.Limit < 0:
		return nil, invalid("limit", "limit is %d; it must be at least 1", p.Limit)
	case p.Limit == 0:
		p.Limit = pageBytes
	case p.Limit > pageBytes:
		p.Limit = pageBytes
		notices = []string{fmt.Sprintf("limit was lowered to %d bytes, the maximum of one answer", pageBytes)}
	}
	return notices, nil
}

// page cuts data to limit bytes without splitting a character, but to at least one character.
func page(data []byte, limit int) []byte {
	if len(data) <= limit {
		return data
	}
	if n := capture.WholePrefix(data[:limit]); n > 0 {
		return data[:n]
	}
	_, n := utf8.DecodeRune(data)
	return data[:n]
}

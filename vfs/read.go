package vfs

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxLines    = 2_000
	maxText     = 256 << 10 // bytes of text in one answer
	maxScan     = 256 << 20 // bytes of a file whose lines are counted
	maxRaw      = 48_000    // bytes of one base64 answer
	maxLineShow = 2_000     // characters of a line in a rendering
)

type readParams struct {
	FilePath string   `json:"file_path" alias:"path" jsonschema:"file to read, relative to the workspace"`
	Offset   int64    `json:"offset,omitempty" default:"0" min:"0" jsonschema:"first line to return, from 0; with base64 the first byte"`
	Limit    *int64   `json:"limit,omitempty" min:"1" jsonschema:"lines to return (default and at most 2000); with base64 bytes (default and at most 48000)"`
	Encoding encoding `json:"encoding,omitempty" enum:"utf-8|latin-1|base64|binary" jsonschema:"of the file's text (default: latin-1 if it was written so, else utf-8); base64 or binary for bytes that are not text"`
}

// Reading is the answer of read_file.
type Reading struct {
	Path       string   `json:"path"`
	Content    string   `json:"content" jsonschema:"the exact text of the lines, or base64"`
	Encoding   encoding `json:"encoding" jsonschema:"of content's bytes: utf-8, latin-1 (given as text here), or base64"`
	Offset     int64    `json:"offset"`
	Limit      int64    `json:"limit" jsonschema:"lines (base64: bytes) that were returned"`
	TotalLines *int64   `json:"total_lines,omitempty" jsonschema:"of the whole file; not with base64"`
	SizeBytes  int64    `json:"size_bytes"`
	Version    int64    `json:"version"`
	CreatedAt  string   `json:"created_at" jsonschema:"when the file was first seen; stays when it is changed"`
	UpdatedAt  string   `json:"updated_at"`
	Truncated  bool     `json:"truncated" jsonschema:"the file continues after the returned part"`
	Notice     string   `json:"notice,omitempty" jsonschema:"how the encoding was handled"`
}

func (f *FS) readTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "read_file", Title: "Read a file", ReadOnly: true, Idempotent: true,
		Description: "Read lines of a UTF-8 text file, at most 2,000 lines or 256 KiB per call; continue with offset. " +
			"Other bytes need encoding base64, where offset and limit count bytes.",
	}, f.read)
}

func (f *FS) read(ctx context.Context, p readParams) (*Reading, error) {
	file, err := f.reach(ctx, p.FilePath, "file_path", f.opts.Paths.parseFile, f.tree.Open)
	if err != nil {
		return nil, err
	}
	defer file.close()
	out := &Reading{Path: f.opts.Paths.Display(file.rel), Encoding: p.Encoding, Offset: p.Offset, SizeBytes: file.Stat.Size, UpdatedAt: timestamp(modified(&file.Stat))}
	if out.Encoding == "" {
		out.Encoding = f.versions.writtenAs(file.Path, &file.Stat)
	}
	if err := out.fill(ctx, file.Handle, p.Limit); err != nil {
		return nil, in(fail(err, file.rel), "file_path")
	}
	seen := f.versions.saw(clientOf(ctx), file.Path, &file.Stat)
	out.Version, out.CreatedAt = seen.version, timestamp(seen.createdAt())
	return out, nil
}

func (r *Reading) fill(ctx context.Context, h *beneath.Handle, limit *int64) error {
	if r.Encoding == binary {
		r.Encoding, r.Notice = base64Text, "binary content is given as base64"
	}
	if r.Encoding == base64Text {
		return r.fillRaw(h, atMost(limit, maxRaw))
	}
	if h.Stat.Size > maxScan {
		return tooLargeToScan(h.Stat.Size)
	}
	s := scanner{first: r.Offset, want: atMost(limit, maxLines)}
	var text io.Reader = h
	if r.Encoding == latin1 {
		text = latin1Reader{h}
	}
	if err := s.scan(ctx, text); err != nil {
		return err
	}
	r.Content, r.Limit, r.Truncated = s.result()
	r.TotalLines = &s.lines
	return nil
}

func (r *Reading) fillRaw(h *beneath.Handle, limit int64) error {
	if r.Offset >= h.Stat.Size {
		return nil
	}
	data := make([]byte, limit)
	n, err := h.ReadAt(data, r.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	r.Content, r.Limit = base64.StdEncoding.EncodeToString(data[:n]), int64(n)
	r.Truncated = r.Offset+int64(n) < h.Stat.Size
	return nil
}

func atMost(limit *int64, most int64) int64 {
	if limit == nil {
		return most
	}
	return min(*limit, most)
}

func tooLargeToScan(size int64) error {
	return tool.Errorf(tool.TooLarge, "the file has %d bytes; the maximum for text is %d; use base64 with offset and limit, grep, or a program", size, maxScan)
}

// Text returns the lines with numbers, and cuts long ones.
func (r *Reading) Text() string {
	if r.Encoding == base64Text {
		return fmt.Sprintf("%s: bytes %d to %d of %d as base64\n%s\n", r.Path, r.Offset, r.Offset+r.Limit, r.SizeBytes, r.Content)
	}
	if r.Content == "" {
		return fmt.Sprintf("(%s: no lines from offset %d; the file has %d)\n", r.Path, r.Offset, *r.TotalLines)
	}
	var b strings.Builder
	number := r.Offset
	for line := range strings.Lines(r.Content) {
		number++
		fmt.Fprintf(&b, "%4d | %s\n", number, cutLine(strings.TrimSuffix(line, "\n")))
	}
	if r.Truncated {
		fmt.Fprintf(&b, "(lines %d to %d of %d; read on with offset %d)\n", r.Offset+1, number, *r.TotalLines, number)
	}
	return b.String()
}

// cutLine shortens a line for people and models to read.
func cutLine(line string) string {
	short, cut := firstChars(line, maxLineShow)
	if cut {
		return short + fmt.Sprintf("… (%d characters more)", utf8.RuneCountInString(line[len(short):]))
	}
	return line
}

// firstChars returns at most the first n characters of s, and whether there are more.
func firstChars(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for i := range s {
		if n == 0 {
			return s[:i], true
		}
		n--
	}
	return s, false
}

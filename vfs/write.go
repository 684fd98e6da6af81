package vfs

import (
	"context"
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

type writeParams struct {
	FilePath string   `json:"file_path" alias:"path" jsonschema:"file to write, relative to the workspace; missing directories are created"`
	Content  string   `json:"content" jsonschema:"at most 48,000 characters, or bytes with base64"`
	Mode     string   `json:"mode,omitempty" default:"create" enum:"create|overwrite|append" jsonschema:"create a new file, or replace or extend an existing one"`
	Encoding encoding `json:"encoding,omitempty" enum:"utf-8|latin-1|base64|binary" jsonschema:"of the file's bytes (default utf-8; append: that of the file): utf-8 and latin-1 take content as text, base64 and binary as base64"`
}

// WriteResult is the answer of write_file.
type WriteResult struct {
	Path      string `json:"path"`
	Mode      string `json:"mode"`
	SizeBytes int64  `json:"size_bytes" jsonschema:"of the whole file"`
	Version   int64  `json:"version"`
	Created   bool   `json:"created"`
	Notice    string `json:"notice,omitempty" jsonschema:"what of the old file the new one lacks, such as its other names (hard links)"`

	sum string
}

// Changes returns the change for the audit log.
func (r *WriteResult) Changes() []tool.Change { return []tool.Change{{Path: r.Path, SHA256: r.sum}} }

func (f *FS) writeTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "write_file", Title: "Write a file", Destructive: true, Effect: tool.FileEffect, NeedsRoom: true,
		Description: "Create a file, or overwrite or append to an existing one, all or nothing. Overwrite replaces the file by a new one; append extends the file itself. " +
			"Mode create (the default) fails with exists if the path is taken; overwrite and append fail with not_found if there is no file.",
	}, f.write)
}

func (f *FS) write(ctx context.Context, p writeParams) (*WriteResult, error) {
	rel, err := f.opts.Paths.parseFile(p.FilePath)
	if err != nil {
		return nil, in(err, "file_path")
	}
	if p.Encoding == "" {
		p.Encoding = utf8Text
		if p.Mode == string(Append) {
			p.Encoding = f.encodingOf(ctx, p.FilePath)
		}
	}
	content, err := f.decode(p.Content, p.Encoding)
	if err != nil {
		return nil, in(err, "content")
	}
	done, err := f.apply(ctx, []string{rel}, []Write{{Content: content, Mode: WriteMode(p.Mode), latin1: p.Encoding == latin1}})
	if err != nil {
		return nil, in(err, "file_path")
	}
	w := done[0]
	return &WriteResult{Path: w.Path, Mode: p.Mode, SizeBytes: w.SizeBytes, Version: w.Version, Created: w.Created, Notice: w.Notice, sum: w.SHA256}, nil
}

// encodingOf returns the encoding that a file was written with. For a file that can't be read it is
// UTF-8: the write itself reports the error.
func (f *FS) encodingOf(ctx context.Context, path string) encoding {
	file, err := f.reach(ctx, path, "file_path", f.opts.Paths.parseFile, f.tree.Open)
	if err != nil {
		return utf8Text
	}
	defer file.close()
	return f.versions.writtenAs(file.Path, &file.Stat)
}

func (f *FS) decode(content string, as encoding) ([]byte, error) {
	most := f.opts.Limits.WriteChars
	if as == utf8Text || as == latin1 {
		if err := f.checkLength("content", content); err != nil || as == utf8Text {
			return []byte(content), err
		}
		return toLatin1(content)
	}
	if len(content) > base64.StdEncoding.EncodedLen(most)+64 { // refuse it before decoding
		return nil, tool.Errorf(tool.TooLarge, "content has more than %d bytes; write it in parts with mode append", most)
	}
	data, err := base64.StdEncoding.DecodeString(content)
	if err != nil {
		return nil, tool.Errorf(tool.Invalid, "content is not standard base64, which encoding %s takes", as)
	}
	if len(data) > most {
		return nil, tool.Errorf(tool.TooLarge, "content has %d bytes; the maximum per call is %d; write it in parts with mode append", len(data), most)
	}
	return data, nil
}

func (f *FS) checkLength(field, text string) error {
	most := f.opts.Limits.WriteChars
	if len(text) <= most {
		return nil
	}
	if n := utf8.RuneCountInString(text); n > most {
		return tool.Errorf(tool.TooLarge, "%s has %d characters; the maximum per call is %d; make the change in parts", field, n, most).In(field)
	}
	return nil
}

// Text returns the result in one line.
func (r *WriteResult) Text() string {
	did := map[string]string{"create": "created", "overwrite": "replaced", "append": "extended"}[r.Mode]
	return fmt.Sprintf("%s %s: %d bytes, version %d\n%s", did, r.Path, r.SizeBytes, r.Version, noticeLine(r.Notice))
}

func noticeLine(notice string) string {
	if notice == "" {
		return ""
	}
	return "(" + notice + ")\n"
}

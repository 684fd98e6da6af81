package evaltool

import (
	"context"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// takeReads reads the files that the call names, in full.
func (e *Evaluator) takeReads(ctx context.Context, c *call, reads []Read) error {
	paths, err := c.readPaths(reads)
	if err != nil {
		return err
	}
	left := int64(MaxReadBytes)
	for i, path := range paths {
		field := indexed("reads", i) + ".path"
		data, info, err := e.opts.Files.ReadWhole(ctx, path, max(left, 1))
		if err != nil {
			return about(err, path, field)
		}
		if !utf8.Valid(data) {
			return tool.Errorf(tool.NotText, "reads: %s is not UTF-8 text; open it in the code instead, with open(path, \"rb\")", path).In(field)
		}
		left -= int64(len(data))
		c.request.Reads = append(c.request.Reads, File{Path: path, Text: string(data)})
		c.reads = append(c.reads, ReadDone{Path: path, SizeBytes: int64(len(data)), Version: info.Version})
	}
	return nil
}

// readPaths cleans the paths and refuses ambiguous ones.
func (c *call) readPaths(reads []Read) ([]string, error) {
	var paths []string
	for i, r := range reads {
		field := indexed("reads", i) + ".path"
		path, err := filePath(c.paths, r.Path, field)
		if err != nil {
			return nil, err
		}
		if slices.Contains(paths, path) {
			return nil, tool.Errorf(tool.Invalid, "reads: %s is read twice; list it only once", path).In(field)
		}
		if slices.ContainsFunc(c.writes, func(w write) bool { return w.path == path }) {
			return nil, tool.Errorf(tool.Invalid, "reads: %s is also in writes; one call reads a file or writes it", path).In(field)
		}
		if _, taken := c.request.Globals[path]; taken || path == "reads" {
			return nil, tool.Errorf(tool.Invalid, "reads: %s is also the name of a global, and a read file becomes one; rename the file or the global", path).In(field)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// checkCreates checks before the code runs that the files to create don't exist.
func (e *Evaluator) checkCreates(ctx context.Context, c *call) error {
	for i, w := range c.writes {
		if w.mode != "create" {
			continue
		}
		field := indexed("writes", i) + ".path"
		_, err := e.opts.Files.Stat(ctx, w.path)
		switch tool.KindOf(err) {
		case "":
			return tool.Errorf(tool.Exists, "writes: %s exists, and its mode is create; use overwrite or append. Nothing was run", w.path).In(field)
		case tool.NotFound:
		default:
			return about(err, w.path, field)
		}
	}
	return nil
}

// apply makes the writes that the call and its code requested, all or none.
func (e *Evaluator) apply(ctx context.Context, c *call, resp Response) ([]WriteDone, error) {
	writes, err := c.rendered(resp)
	if err != nil {
		return nil, err
	}
	for _, q := range resp.Writes {
		w, err := e.queued(ctx, q)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(writes, func(other vfs.Write) bool { return other.Path == w.Path }) {
			return nil, tool.Errorf(tool.Invalid, "writes: %s is written twice, by writes and by write_text", w.Path).In("writes")
		}
		writes = append(writes, w)
	}
	if len(writes) == 0 {
		return []WriteDone{}, nil
	}
	done, err := e.opts.Files.Apply(ctx, writes)
	if err != nil {
		known := tool.AsError(err)
		return nil, tool.Errorf(known.Kind, "%s", known.Message).In("writes").Because(err)
	}
	return writesDone(writes, done), nil
}

// Characters of written content that a result shows.
const (
	shownContent  = StreamChars
	shownContents = 32 << 10 // of all files together
)

func writesDone(writes []vfs.Write, done []vfs.Written) []WriteDone {
	out, left := make([]WriteDone, len(done)), shownContents
	for i, d := range done {
		shown := Clip(string(writes[i].Content), min(left, shownContent))
		left -= utf8.RuneCountInString(shown)
		out[i] = WriteDone{Path: d.Path, Mode: string(writes[i].Mode), SizeBytes: d.SizeBytes, Version: d.Version, Content: shown, sum: d.SHA256}
	}
	return out
}

const maxFault = 300 // characters of an exception in a message

// rendered fills the templates with the texts of their fields.
func (c *call) rendered(resp Response) ([]vfs.Write, error) {
	var writes []vfs.Write
	for i, w := range c.writes {
		field := indexed("writes", i) + ".content"
		text, err := w.content.render(resp.Fields, MaxWriteChars)
		var missing missingField
		switch {
		case errors.As(err, &missing) && resp.Faults[string(missing)] != "":
			return nil, tool.Errorf(tool.Invalid, "writes: the content of %s has {%s}, which fails: %s", w.path, string(missing), Clip(resp.Faults[string(missing)], maxFault)).In(field)
		case errors.As(err, &missing):
			return nil, tool.Errorf(tool.Invalid, "writes: the content of %s has {%s}, but the code did not set a global of that name", w.path, string(missing)).In(field)
		case err != nil:
			return nil, tool.Errorf(tool.TooLarge, "writes: %s would get more than %d characters", w.path, MaxWriteChars).In(field)
		}
		writes = append(writes, vfs.Write{Path: w.path, Content: []byte(text), Mode: vfs.WriteMode(w.mode)})
	}
	return writes, nil
}

// queued returns the write for a write_text of the code. It is checked like a parameter, since it
// comes from the sandbox. Unlike the tool's modes, overwrite and append create a missing file, like
// open() of Python.
func (e *Evaluator) queued(ctx context.Context, q Queued) (vfs.Write, error) {
	path, err := filePath(e.opts.Paths, q.Path, "write_text")
	if err != nil {
		return vfs.Write{}, err
	}
	if n := utf8.RuneCountInString(q.Content); n > MaxWriteChars {
		return vfs.Write{}, tool.Errorf(tool.TooLarge, "write_text: %s would get %d characters; the maximum is %d", path, n, MaxWriteChars).In("write_text")
	}
	mode := q.Mode
	if mode != "create" {
		if _, err := e.opts.Files.Stat(ctx, path); tool.KindOf(err) == tool.NotFound {
			mode = "create"
		}
	}
	return vfs.Write{Path: path, Content: []byte(q.Content), Mode: vfs.WriteMode(mode)}, nil
}

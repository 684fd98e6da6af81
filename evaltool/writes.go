package evaltool

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// write is one entry of the parameter writes.
type write struct {
	path    string
	mode    string
	content template
}

func (c *call) takeWrites(p Params) error {
	if len(p.Writes) > MaxFiles || len(p.Reads) > MaxFiles {
		return tool.Errorf(tool.Invalid, "one call reads and writes at most %d files each", MaxFiles).In(tooMany(p))
	}
	for i, w := range p.Writes {
		taken, err := c.takeWrite(w, indexed("writes", i))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(c.writes, func(other write) bool { return other.path == taken.path }) {
			return tool.Errorf(tool.Invalid, "writes: %s is written twice; use only one entry for it", taken.path).In(indexed("writes", i) + ".path")
		}
		c.writes = append(c.writes, taken)
		for _, field := range taken.content.fields() {
			if !slices.Contains(c.request.Fields, field) {
				c.request.Fields = append(c.request.Fields, field)
			}
		}
	}
	return nil
}

func tooMany(p Params) string {
	if len(p.Writes) > MaxFiles {
		return "writes"
	}
	return "reads"
}

func indexed(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func (c *call) takeWrite(w Write, field string) (write, error) {
	path, err := filePath(c.paths, w.Path, field+".path")
	if err != nil {
		return write{}, err
	}
	mode := orDefault(w.Mode, "create")
	if !slices.Contains([]string{"create", "overwrite", "append"}, mode) {
		return write{}, tool.Errorf(tool.Invalid, "writes: the mode of %s is %q; it must be one of create, overwrite, append", path, Clip(mode, maxPathFold)).In(field + ".mode")
	}
	if n := utf8.RuneCountInString(w.Content); n > MaxWriteChars {
		return write{}, tool.Errorf(tool.TooLarge, "writes: the content of %s has %d characters; the maximum is %d", path, n, MaxWriteChars).In(field + ".content")
	}
	content, err := parseTemplate(w.Content)
	if err != nil {
		return write{}, tool.Errorf(tool.Invalid, "writes: the content of %s: %s", path, err).In(field + ".content")
	}
	return write{path: path, mode: mode, content: content}, nil
}

// filePath returns the clean path of a file, and refuses the workspace itself.
func filePath(paths vfs.Grammar, path, field string) (string, error) {
	clean, err := paths.Parse(path)
	if err != nil {
		return "", about(err, path, field)
	}
	if clean == "" {
		return "", tool.Errorf(tool.Invalid, "%s is the workspace itself; give a file in it", field).In(field)
	}
	return clean, nil
}

// about adds the file and field to err.
func about(err error, path, field string) error {
	known := tool.AsError(err)
	message := known.Message
	if name := Clip(path, maxPathFold); !strings.Contains(message, name) {
		message = strconv.Quote(name) + ": " + message
	}
	return tool.Errorf(known.Kind, "%s", message).In(field).Because(err)
}

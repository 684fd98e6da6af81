package evaltool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// discarded lists the writes that the call and its code requested, if none of them is made. Values
// from the sandbox are checked like parameters.
func (c *call) discarded(resp Response) []Discarded {
	var out []Discarded
	for _, w := range c.writes {
		d := Discarded{Path: w.path, Mode: w.mode}
		if text, err := w.content.render(resp.Fields, MaxWriteChars); err == nil {
			d.SizeBytes = sizeOf(text)
		}
		out = append(out, d)
	}
	for _, q := range resp.Writes {
		path, err := filePath(c.paths, q.Path, "write_text")
		if err != nil || slices.ContainsFunc(out, func(other Discarded) bool { return other.Path == path }) {
			continue
		}
		out = append(out, Discarded{Path: path, Mode: q.Mode, SizeBytes: sizeOf(q.Content)})
	}
	return out
}

func sizeOf(text string) *int64 {
	n := int64(len(text))
	return &n
}

func (d Discarded) String() string {
	if d.SizeBytes == nil {
		return fmt.Sprintf("%s (%s)", d.Path, d.Mode)
	}
	return fmt.Sprintf("%s (%s, %d bytes)", d.Path, d.Mode, *d.SizeBytes)
}

const maxListed = 8 // discarded writes or globals that a message names

// listed returns the end of a message that nothing was written.
func listed(lost []Discarded) string {
	if len(lost) == 0 {
		return ""
	}
	var names []string
	for _, d := range lost[:min(len(lost), maxListed)] {
		names = append(names, d.String())
	}
	return "; discarded: " + firstOf(names, len(lost))
}

// firstOf lists names, of which there are all.
func firstOf(names []string, all int) string {
	names = names[:min(len(names), maxListed)]
	if more := all - len(names); more > 0 {
		names = append(slices.Clone(names), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// nothingWritten adds the list of lost writes to err, which prevented the writes of successful code.
func nothingWritten(err error, lost []Discarded) error {
	known := tool.AsError(err)
	return tool.Errorf(known.Kind, "%s; nothing was written%s", known.Message, listed(lost)).In(known.Field).Because(err)
}

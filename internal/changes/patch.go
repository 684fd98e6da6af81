package changes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's name of a blob
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/snapshot"
)

// maxText is the maximum size of a file, in bytes, that is compared line by line; a larger file is
// binary in a patch.
const maxText = 4 << 20

// noBlob is git's name for a missing file.
const noBlob = "0000000000000000000000000000000000000000"

// Patch writes the changes in the form of git diff --binary --full-index --find-renames=100%, so
// that git apply turns the first state into the second, and counts their lines.
func (s *Set) Patch(b *budget.Budget, w io.Writer) error {
	p := &patcher{set: s, budget: b, ctx: b.Context(), out: bufio.NewWriter(w)}
	for i := range s.all {
		if err := p.change(&s.all[i]); err != nil {
			return err
		}
	}
	return p.out.Flush()
}

type patcher struct {
	set    *Set
	budget *budget.Budget
	ctx    context.Context
	out    *bufio.Writer
}

func (p *patcher) change(c *Change) error {
	if c.old == nil || c.new == nil || c.old.Link == c.new.Link {
		return p.section(c)
	}
	gone := Change{Path: c.Path, Status: Removed, OldMode: c.OldMode, old: c.old}
	come := Change{Path: c.Path, Status: Added, Mode: c.Mode, new: c.new}
	if err := p.section(&gone); err != nil {
		return err
	}
	if err := p.section(&come); err != nil {
		return err
	}
	c.AddedLines, c.RemovedLines, c.Binary = come.AddedLines, gone.RemovedLines, gone.Binary || come.Binary
	return nil
}

// section writes one file's part of a patch.
func (p *patcher) section(c *Change) error {
	from := c.Path
	if c.From != "" {
		from = c.From
	}
	fmt.Fprintf(p.out, "diff --git %s %s\n", quoted("a/"+from), quoted("b/"+c.Path))
	switch {
	case c.old == nil:
		fmt.Fprintf(p.out, "new file mode %s\n", c.Mode)
	case c.new == nil:
		fmt.Fprintf(p.out, "deleted file mode %s\n", c.OldMode)
	case c.OldMode != c.Mode:
		fmt.Fprintf(p.out, "old mode %s\nnew mode %s\n", c.OldMode, c.Mode)
	}
	if c.From != "" {
		fmt.Fprintf(p.out, "similarity index 100%%\nrename from %s\nrename to %s\n", quoted(c.From), quoted(c.Path))
	}
	if c.old != nil && c.new != nil && c.old.Same(c.new) {
		return p.budget.Check()
	}
	return p.content(c)
}

func (p *patcher) content(c *Change) error {
	was, err := p.blob(c.old)
	if err != nil {
		return err
	}
	is, err := p.blob(c.new)
	if err != nil {
		return err
	}
	mode := ""
	if c.OldMode == c.Mode {
		mode = " " + c.Mode
	}
	fmt.Fprintf(p.out, "index %s..%s%s\n", was, is, mode)
	old, now, text, free, err := p.texts(c)
	if err != nil {
		return err
	}
	defer free()
	if text {
		return p.hunks(c, old, now)
	}
	c.Binary = true
	fmt.Fprint(p.out, "GIT binary patch\n")
	if err := p.literal(c.new); err != nil {
		return err
	}
	return p.literal(c.old)
}

// texts returns both contents if they are to be compared line by line.
func (p *patcher) texts(c *Change) (old, now string, text bool, free func(), err error) {
	const copies = 4 // held at the same time: the content, its lines, their differences
	held := 0
	free = func() { p.budget.Release(held) }
	for i, e := range []*snapshot.Entry{c.old, c.new} {
		if e == nil {
			continue
		}
		if e.Size > maxText {
			return "", "", false, free, nil
		}
		n := copies * int(e.Size)
		held += n
		if err = p.budget.Hold(n); err != nil {
			return "", "", false, free, err
		}
		var b strings.Builder
		if err = p.read(e, &b); err != nil {
			return "", "", false, free, err
		}
		if i == 0 {
			old = b.String()
		} else {
			now = b.String()
		}
	}
	return old, now, isText(old) && isText(now), free, nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

const context3 = 3 // lines around a change

func (p *patcher) hunks(c *Change, old, now string) error {
	if old == now { // an empty file that is added or removed
		return nil
	}
	unified, err := udiff.ToUnified("a", "b", old, udiff.Lines(old, now), context3)
	if err != nil {
		return err
	}
	a, b := quoted("a/"+c.Path), quoted("b/"+c.Path)
	if c.old == nil {
		a = "/dev/null"
	}
	if c.new == nil {
		b = "/dev/null"
	}
	fmt.Fprintf(p.out, "--- %s\n+++ %s\n", a, b)
	hunks := strings.TrimPrefix(unified, "--- a\n+++ b\n")
	for line := range strings.Lines(hunks) {
		switch line[0] {
		case '+':
			c.AddedLines++
		case '-':
			c.RemovedLines++
		}
	}
	_, err = p.out.WriteString(hunks)
	return err
}

// read copies an entry's content; for a link, its text.
func (p *patcher) read(e *snapshot.Entry, w io.Writer) error {
	return copyContent(p.ctx, p.budget, p.set.between, e, w)
}

func copyContent(ctx context.Context, b *budget.Budget, from *snapshot.Between, e *snapshot.Entry, w io.Writer) error {
	if e == nil {
		return nil
	}
	if e.Link {
		_, err := io.WriteString(w, e.Target)
		return err
	}
	r, err := from.Open(ctx, e)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(charged{w, b}, r)
	return err
}

// charged charges a budget for written bytes.
type charged struct {
	io.Writer
	budget *budget.Budget
}

// Write implements io.Writer.
func (c charged) Write(p []byte) (int, error) {
	if err := c.budget.Out(len(p)); err != nil {
		return 0, err
	}
	if err := c.budget.Check(); err != nil {
		return 0, err
	}
	return c.Writer.Write(p)
}

// blob returns git's name for an entry's content.
func (p *patcher) blob(e *snapshot.Entry) (string, error) {
	if e == nil {
		return noBlob, nil
	}
	sum := sha1.New() //nolint:gosec // git's name of a blob
	fmt.Fprintf(sum, "blob %d\x00", e.Size)
	err := p.read(e, sum)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// quoted returns a name as git writes it in a patch: in quotes if it has special bytes.
func quoted(name string) string {
	plain := true
	var b bytes.Buffer
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
			plain = false
		case c <= ' ' || c > '~':
			fmt.Fprintf(&b, "\\%03o", c)
			plain = false
		default:
			b.WriteByte(c)
		}
	}
	if plain {
		return name
	}
	return `"` + b.String() + `"`
}

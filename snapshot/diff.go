package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/sys"
)

const (
	diffEntries = 2_000     // of each list
	diffFile    = 256 << 10 // bytes of a file whose text is compared
	diffText    = 32 << 10  // bytes of one text diff
	diffTexts   = 256 << 10 // bytes of all text diffs
	diffLine    = 500       // characters of a line
	diffSize    = 1 << 20   // bytes of all paths, links' texts and text diffs
)

var diffTime = patience.For(5 * time.Second)

// Change is one entry that differs between two states.
type Change struct {
	Path      string `json:"path"` // made printable
	Kind      string `json:"kind" jsonschema:"file, directory, symlink or other, as it is afterwards (of a removed entry: as it was)"`
	OldKind   string `json:"old_kind,omitempty" jsonschema:"where the kind has changed"`
	Size      *int64 `json:"size_bytes,omitempty"`
	OldSize   *int64 `json:"old_size_bytes,omitempty"`
	Mode      string `json:"mode,omitempty" jsonschema:"octal, where it has changed"`
	OldMode   string `json:"old_mode,omitempty"`
	Target    string `json:"target,omitempty" jsonschema:"of a link"`
	OldTarget string `json:"old_target,omitempty"`
	Attrs     bool   `json:"attributes_changed,omitempty" jsonschema:"of the extended attributes (user.*)"`
	Diff      string `json:"diff,omitempty" jsonschema:"unified, of text up to 256 KiB"`
}

// Diff holds the differences between two states. It ignores modification times.
type Diff struct {
	From      string   `json:"from"`
	To        string   `json:"to,omitempty" jsonschema:"absent: the workspace as it is"`
	Added     []Change `json:"added"`
	Changed   []Change `json:"changed"`
	Removed   []Change `json:"removed"`
	Truncated bool     `json:"truncated" jsonschema:"more differs than is listed"`
}

// Diff compares a snapshot with another one, or with the current workspace if to is empty.
func (s *Store) Diff(ctx context.Context, from, to string) (*Diff, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	b := s.budget(ctx)
	defer b.Close()
	d := &differ{store: s, budget: b, left: diffSize, began: time.Now(), out: &Diff{From: from, To: to, Added: []Change{}, Changed: []Change{}, Removed: []Change{}}}
	old, err := s.state(b, from, "from")
	if err != nil {
		return nil, storeError(err)
	}
	now, err := s.state(b, to, "to")
	if err != nil {
		return nil, storeError(err)
	}
	d.live = to == ""
	if old.hash != now.hash {
		err = d.compare(newPlace(int(s.top.Fd())), old.dir, now.dir)
	}
	return d.out, storeError(err)
}

// state returns a snapshot's tree, or the workspace's if id is empty.
func (s *Store) state(b *budget.Budget, id, field string) (*entry, error) {
	if id == "" && field == "to" {
		return s.look(b)
	}
	r, err := s.readNamed(id, field)
	if err != nil {
		return nil, err
	}
	return s.load(b, r)
}

type differ struct {
	store  *Store
	budget *budget.Budget
	out    *Diff
	live   bool // the second state is the workspace
	left   int  // bytes that the list may still take
	texts  int  // bytes of diffs so far
	began  time.Time
}

func (d *differ) compare(at *place, old, now *dir) error {
	return pairs(old, now, func(a, b *entry) error {
		switch {
		case a == nil:
			d.add(&d.out.Added, at, nil, b)
		case b == nil:
			d.add(&d.out.Removed, at, a, nil)
		case !sameContent(a, b) || !sameMode(a, b):
			d.add(&d.out.Changed, at, a, b)
		}
		return errors.Join(d.budget.Step(1), d.inside(at, a, b))
	})
}

func (d *differ) inside(at *place, a, b *entry) error {
	old, now := inside(a), inside(b)
	if old == nil && now == nil || a != nil && b != nil && sameTree(a, b) {
		return nil
	}
	below := at.below(either(a, b).name)
	defer below.release()
	return d.compare(below, old, now)
}

func (d *differ) add(list *[]Change, at *place, a, b *entry) {
	if len(*list) == diffEntries || d.left <= 0 {
		d.out.Truncated = true
		return
	}
	c := Change{}
	for _, e := range []*entry{a, b} {
		if e != nil {
			c.Path, c.Kind = at.clipped(e.name), e.kind.String()
		}
	}
	if a != nil {
		c.OldSize, c.OldTarget = sizeOf(a), shownTarget(a)
	}
	if b != nil {
		c.Size, c.Target = sizeOf(b), shownTarget(b)
	}
	if a != nil && b != nil {
		c.between(a, b)
		c.Diff = d.text(at, a, b, c.Path)
	}
	d.left -= len(c.Path) + len(c.Target) + len(c.OldTarget) + len(c.Diff)
	*list = append(*list, c)
}

func (c *Change) between(a, b *entry) {
	if a.kind != b.kind {
		c.OldKind = a.kind.String()
	} else if !sameMode(a, b) {
		c.Attrs = a.attrs() != b.attrs()
		if a.mode != b.mode {
			c.Mode, c.OldMode = fmt.Sprintf("%04o", b.mode), fmt.Sprintf("%04o", a.mode)
		}
	}
}

func sizeOf(e *entry) *int64 {
	if e.kind != file {
		return nil
	}
	return &e.size
}

func shownTarget(e *entry) string {
	if e.kind != symlink {
		return ""
	}
	text := shown(e.target)
	if short := clip.To(text, diffLine); len(short) < len(text) {
		return short + "…"
	}
	return text
}

// text returns the unified diff of two versions of a text file, or "" if there is none to show.
func (d *differ) text(at *place, a, b *entry, path string) string {
	if a.kind != file || b.kind != file || sameContent(a, b) || max(a.size, b.size) > diffFile ||
		d.texts > diffTexts || time.Since(d.began) > diffTime {
		return ""
	}
	old, err := d.stored(a)
	if err != nil || !isText(old) {
		return ""
	}
	now, err := d.current(at, b)
	if err != nil || !isText(now) {
		return ""
	}
	diff := shorten(udiff.Unified("a/"+path, "b/"+path, old, now))
	d.texts += len(diff)
	return diff
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func (d *differ) stored(e *entry) (string, error) {
	pieces, free, err := d.store.objects.pieces(d.budget, e)
	if err != nil {
		return "", err
	}
	defer free()
	all := make([]byte, e.size)
	for _, p := range pieces {
		b, err := d.store.objects.get(p.hash)
		if err != nil {
			return "", err
		}
		copy(all[p.at:], b)
	}
	return string(all), nil
}

// current reads the second version, from the store or from the workspace.
func (d *differ) current(at *place, e *entry) (string, error) {
	if !d.live {
		return d.stored(e)
	}
	dir, err := at.open(sys.Place)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	fd, err := beneath.OpenAt(dir, e.name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", beneath.ErrNotRegular
	}
	buf := make([]byte, diffFile)
	n, err := readAt(fd, buf, 0)
	return string(buf[:n]), err
}

func shorten(diff string) string {
	var b strings.Builder
	for line := range strings.Lines(diff) {
		if b.Len() > diffText {
			b.WriteString("(the rest of the diff is not shown)\n")
			break
		}
		if r := []rune(line); len(r) > diffLine {
			line = string(r[:diffLine]) + "…\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

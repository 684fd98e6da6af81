package changes

import (
	"io"
	"os"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/snapshot"
)

// Merged is a file that both the host and the session changed after it was mounted.
type Merged struct {
	Path string `json:"path"`
	// Conflicts counts the places where both sides changed the same or adjacent lines: the file has
	// both versions, between markers.
	Conflicts int `json:"conflicts,omitempty"`
}

const maxMerged = 1 << 20 // bytes of a file

// The markers of a conflict, each on its own line.
const (
	markHost    = "<<<<<<< host\n"
	markBetween = "=======\n"
	markSession = ">>>>>>> session\n"
)

// merge3 merges two texts derived from base, line by line. It takes a change of one side. If both
// sides changed a part in different ways, it puts both between markers.
func merge3(base, host, session string) (merged string, conflicts int) {
	var out strings.Builder
	ours, theirs := udiff.Lines(base, host), udiff.Lines(base, session)
	at := 0
	for len(ours)+len(theirs) > 0 {
		from, to, i, j := region(ours, theirs)
		a, b := changed(base, from, to, ours[:i]), changed(base, from, to, theirs[:j])
		out.WriteString(base[at:from])
		switch {
		case j == 0, a == b:
			out.WriteString(a)
		case i == 0:
			out.WriteString(b)
		default:
			conflicts++
			out.WriteString(markHost + lines(a) + markBetween + lines(b) + markSession)
		}
		ours, theirs, at = ours[i:], theirs[j:], to
	}
	return out.String() + base[at:], conflicts
}

// region returns the first changed part of the base, from the first edit to the end of all edits
// that touch it, and the number of each side's edits in it.
func region(ours, theirs []udiff.Edit) (from, to, i, j int) {
	switch {
	case len(theirs) == 0, len(ours) > 0 && ours[0].Start <= theirs[0].Start:
		from = ours[0].Start
	default:
		from = theirs[0].Start
	}
	to = from
	for {
		switch {
		case i < len(ours) && ours[i].Start <= to:
			to = max(to, ours[i].End)
			i++
		case j < len(theirs) && theirs[j].Start <= to:
			to = max(to, theirs[j].End)
			j++
		default:
			return from, to, i, j
		}
	}
}

// changed returns a part of the base with its edits applied.
func changed(base string, from, to int, edits []udiff.Edit) string {
	var out strings.Builder
	for _, e := range edits {
		out.WriteString(base[from:e.Start] + e.New)
		from = e.End
	}
	return out.String() + base[from:to]
}

// lines returns a text with a newline at its end.
func lines(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// The reasons why a file that both sides changed isn't merged.
const (
	notText      = "both changed it, and it is larger than 1 MiB or not UTF-8 text, so it can't be merged; take one of the two with wisbox cp"
	goneInOne    = "one of the two removed it and the other changed it; decide on the host, or in the session"
	hasMarkers   = "it has conflict markers of an earlier merge, on the host or in the session; edit them away before you merge again"
	otherKindNow = "it is a link or a directory on one side, so it can't be merged; take one of the two with wisbox cp"
)

// merge merges a file that has neither its content at the time of the mount nor the session's:
// conflict is the reason why it can't, already reports that the host has all changes of the
// session.
func (a *applier) merge(w *work, dir *os.File, name string) (conflict string, already bool, err error) {
	conflict, free, err := a.hold(w)
	if err != nil || conflict != "" {
		return conflict, false, err
	}
	defer free()
	texts, conflict, err := a.mergeable(w, dir, name)
	if err != nil || conflict != "" {
		return conflict, false, err
	}
	old, now := w.base, w.pair.New
	merged, conflicts := merge3(texts[0], texts[1], texts[2])
	if merged == texts[1] && (old == nil || old.Exec == now.Exec) {
		return "", true, nil
	}
	a.noteMerged(Merged{w.pair.Path, conflicts})
	if w.isMerged = true; a.out.DryRun {
		return "", false, nil
	}
	w.merged = merged
	return "", false, a.budget.Hold(len(merged)) // until it is written
}

// wouldMerge reports whether merge would change a file.
func (a *applier) wouldMerge(w *work, dir *os.File, name string) (bool, error) {
	conflict, free, err := a.hold(w)
	if err != nil || conflict != "" {
		return false, err
	}
	defer free()
	_, conflict, err = a.mergeable(w, dir, name)
	return conflict == "", err
}

// hold charges the memory of a merge, unless sizes and kinds already rule it out.
func (a *applier) hold(w *work) (conflict string, free func(), err error) {
	old, now := w.base, w.pair.New
	switch {
	case now == nil:
		return goneInOne, nil, nil
	case now.Link, old != nil && old.Link, w.host.Mode&unix.S_IFMT != unix.S_IFREG:
		return otherKindNow, nil, nil
	case now.Size > maxMerged, old != nil && old.Size > maxMerged, w.host.Size > maxMerged:
		return notText, nil, nil
	}
	const copies = 4 // held at the same time: the content, its lines, their differences, the result
	sizes := w.host.Size + now.Size
	for _, e := range []*snapshot.Entry{old, w.pair.other()} {
		if e != nil {
			sizes += e.Size
		}
	}
	held := copies * int(sizes)
	return "", func() { a.budget.Release(held) }, a.budget.Hold(held)
}

// mergeable reads the three texts: conflict is the reason why they can't be merged.
func (a *applier) mergeable(w *work, dir *os.File, name string) (texts [3]string, conflict string, err error) {
	if texts, err = a.texts(w, dir, name); err != nil {
		return texts, "", err
	}
	if other := w.pair.other(); other != nil { // the host's file comes from the one that it resembles more
		text, err := a.text(other)
		if err != nil {
			return texts, "", err
		}
		if isText(text) && isText(texts[1]) && distance(text, texts[1]) < distance(texts[0], texts[1]) {
			w.base, texts[0] = other, text
		}
	}
	for _, text := range texts {
		if !isText(text) {
			return texts, notText, nil
		}
	}
	if isMarked(texts[1]) || isMarked(texts[2]) {
		return texts, hasMarkers, nil
	}
	return texts, "", nil
}

// isMarked reports whether a text has conflict markers, ours or git's: a merge could nest them.
func isMarked(text string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "<<<<<<< ") || strings.HasPrefix(line, ">>>>>>> ") {
			return true
		}
	}
	return false
}

// other returns a file that an apply wrote, as another ancestor than the mounted file; nil if there is
// none that can be merged.
func (p *pair) other() *snapshot.Entry {
	if !p.brought || p.Old == nil || p.was == nil || p.was.Link || p.was.Size > maxMerged {
		return nil
	}
	return p.was
}

// distance returns the size of the differences between two texts.
func distance(from, to string) (n int) {
	for _, e := range udiff.Lines(from, to) {
		n += e.End - e.Start + len(e.New)
	}
	return n
}

func (a *applier) text(e *snapshot.Entry) (string, error) {
	var b strings.Builder
	err := copyContent(a.ctx, a.budget, a.set.between, e, &b)
	return b.String(), err
}

// texts returns the ancestor, the host's content, and the session's.
func (a *applier) texts(w *work, dir *os.File, name string) (texts [3]string, err error) {
	for i, e := range []*snapshot.Entry{0: w.base, 2: w.pair.New} {
		if texts[i], err = a.text(e); err != nil {
			return texts, err
		}
	}
	fd, err := beneath.OpenAt(int(dir.Fd()), name, unix.O_RDONLY)
	if err != nil {
		return texts, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return texts, err
	}
	if st.Ino != w.host.Ino || st.Dev != w.host.Dev {
		return texts, errRaced(w.pair.Path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, w.host.Size+1))
	if err == nil && int64(len(raw)) != w.host.Size {
		err = errRaced(w.pair.Path)
	}
	texts[1] = string(raw)
	return texts, err
}

func (a *applier) noteMerged(m Merged) {
	if m.Conflicts > 0 {
		a.out.Marked++
	}
	if a.named += len(m.Path); len(a.out.Merged) < maxObstacles && a.named < maxNames {
		a.out.Merged = append(a.out.Merged, m)
	}
}

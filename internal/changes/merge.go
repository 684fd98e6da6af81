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

// Merged is a file that was changed on the host and in the session since it was mounted.
type Merged struct {
	Path string `json:"path"`
	// Conflicts counts the places where both changed the same lines, or neighbours: both
	// stand there, between markers.
	Conflicts int `json:"conflicts,omitempty"`
}

const maxMerged = 1 << 20 // bytes of a file

// The markers of a conflict, each on a line of its own.
const (
	markHost    = "<<<<<<< host\n"
	markBetween = "=======\n"
	markSession = ">>>>>>> session\n"
)

// merge3 merges two texts that were both made of base, line by line. What only one side changed
// is that side's. Where both did, and not in the same way, both stand between markers.
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

// region is the first part of the base that is changed, from the first edit to the end of all that touch
// it, and how many edits of each side lie in it.
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

// changed is a part of the base with the edits that lie in it.
func changed(base string, from, to int, edits []udiff.Edit) string {
	var out strings.Builder
	for _, e := range edits {
		out.WriteString(base[from:e.Start] + e.New)
		from = e.End
	}
	return out.String() + base[from:to]
}

// lines is a text whose last line ends.
func lines(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// The reasons why a file that both changed isn't merged.
const (
	notText      = "both changed it, and it is larger than 1 MiB or not UTF-8 text, so it can't be merged; take one of the two with wisbox cp"
	goneInOne    = "one of the two removed it and the other changed it; decide on the host, or in the session"
	hasMarkers   = "it has conflict markers of an earlier merge, on the host or in the session; edit them away before you merge again"
	otherKindNow = "it is a link or a directory on one side, so it can't be merged; take one of the two with wisbox cp"
)

// merge merges a file that is neither what was mounted nor what the session has: conflict says
// why that can't be, already that the host has all that the session changed.
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
	old, now := w.pair.Old, w.pair.New
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

// wouldMerge reports whether merge does something with a file.
func (a *applier) wouldMerge(w *work, dir *os.File, name string) (bool, error) {
	conflict, free, err := a.hold(w)
	if err != nil || conflict != "" {
		return false, err
	}
	defer free()
	_, conflict, err = a.mergeable(w, dir, name)
	return conflict == "", err
}

// hold charges the memory that a merge takes, unless its sizes and kinds speak against it.
func (a *applier) hold(w *work) (conflict string, free func(), err error) {
	old, now := w.pair.Old, w.pair.New
	switch {
	case now == nil:
		return goneInOne, nil, nil
	case now.Link, old != nil && old.Link, w.host.Mode&unix.S_IFMT != unix.S_IFREG:
		return otherKindNow, nil, nil
	case now.Size > maxMerged, old != nil && old.Size > maxMerged, w.host.Size > maxMerged:
		return notText, nil, nil
	}
	const copies = 4 // that are held meanwhile: the content, its lines, their differences, what comes out
	sizes := w.host.Size + now.Size
	if old != nil {
		sizes += old.Size
	}
	held := copies * int(sizes)
	return "", func() { a.budget.Release(held) }, a.budget.Hold(held)
}

// mergeable reads the three texts: conflict says why they can't be merged.
func (a *applier) mergeable(w *work, dir *os.File, name string) (texts [3]string, conflict string, err error) {
	if texts, err = a.texts(w, dir, name); err != nil {
		return texts, "", err
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

// isMarked reports whether a text has conflict markers, ours or git's: a merge of it could nest them.
func isMarked(text string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "<<<<<<< ") || strings.HasPrefix(line, ">>>>>>> ") {
			return true
		}
	}
	return false
}

// texts are what was mounted, what the host has and what the session has.
func (a *applier) texts(w *work, dir *os.File, name string) (texts [3]string, err error) {
	for i, e := range []*snapshot.Entry{0: w.pair.Old, 2: w.pair.New} {
		var b strings.Builder
		if err := copyContent(a.ctx, a.budget, a.set.between, e, &b); err != nil {
			return texts, err
		}
		texts[i] = b.String()
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

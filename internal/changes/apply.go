package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// Applied reports the result of an apply, or of a dry run.
type Applied struct {
	DryRun  bool     `json:"dry_run,omitempty"`
	Changes []Change `json:"changes"` // of the host's folders, the first 10,000; a rename is a removal and an addition
	More    int64    `json:"more_changes,omitempty"`
	// Already counts files of the host that already have the session's content.
	Already int64 `json:"already,omitempty"`
	// LeftOut are changes that are never written. Conflicts are obstacles to writing anything: if
	// there is one, nothing was written. At most 1,000 each.
	LeftOut   []Obstacle `json:"left_out,omitempty"`
	Conflicts []Obstacle `json:"conflicts,omitempty"`
	// Merged are files that the host changed too, the first 1,000. Marked counts all files that got
	// markers because both sides changed the same lines.
	Merged []Merged `json:"merged,omitempty"`
	Marked int64    `json:"marked,omitempty"`
	Hidden

	brought []string
}

// Brought returns the paths of the workspace whose state the host's folders have now: those that
// were written, and those that it had already.
func (a *Applied) Brought() []string { return a.brought }

// Obstacle is a path of the workspace whose change can't be written, and the reason.
type Obstacle struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

const maxObstacles = 1_000

func (a *applier) note(list *[]Obstacle, path, reason string) {
	if a.named += len(path); len(*list) == 0 || len(*list) < maxObstacles && a.named < maxNames {
		*list = append(*list, Obstacle{path, reason})
	}
}

// ApplyOptions are the options of [Set.Apply].
type ApplyOptions struct {
	// DryRun only looks for conflicts.
	DryRun bool
	// ThreeWay merges text files that the host changed too, see [Merged].
	ThreeWay bool
}

// Apply writes the changes to the folders that the mounts were copied from. If a file of the host
// has neither its content at the time of the mount, nor what an earlier Apply wrote, nor the session's,
// that is a conflict, and Apply writes nothing. It first prepares all content beside the files; after a failure, even between the
// renames that follow, it restores everything. If the process is killed between the renames, the
// replaced files are in a directory .wisbox-apply-… of the folder.
func (s *Set) Apply(b *budget.Budget, homes []*hostmount.Home, opts ApplyOptions) (*Applied, error) {
	a := &applier{set: s, threeWay: opts.ThreeWay, budget: b, ctx: b.Context(), homes: homes, freed: map[spot]bool{}, bare: map[spot]bool{}, stages: map[*hostmount.Home]*stage{}}
	a.out = &Applied{DryRun: opts.DryRun, Changes: []Change{}, Hidden: s.diff.Hidden}
	for _, p := range s.pairs {
		if err := a.look(p); err != nil {
			return nil, hostError(err)
		}
	}
	if opts.DryRun || a.conflicts > 0 || len(a.todo) == 0 {
		return a.out, nil
	}
	if err := a.write(); err != nil {
		return nil, hostError(err)
	}
	return a.out, nil
}

// spot is a path of a folder of the host.
type spot struct {
	home *hostmount.Home
	rel  string
}

// work is one change to make.
type work struct {
	spot
	pair pair
	base *snapshot.Entry // what the host's entry is: one of the pair's old states; nil if it is neither
	host unix.Stat_t     // the host's entry; Mode is 0 if there is none
	name string          // in the stage

	isMerged bool
	merged   string // written instead of the session's content
}

type applier struct {
	set    *Set
	budget *budget.Budget
	ctx    context.Context
	homes  []*hostmount.Home
	out    *Applied
	// threeWay merges files that the host changed too.
	threeWay bool
	todo     []*work
	named    int // bytes of the listed paths
	// conflicts counts all, listed or not.
	conflicts int
	freed     map[spot]bool // entries removed before
	bare      map[spot]bool // directories of the host, true if git takes them for repositories
	listed    listing       // the last listed directory
	stages    map[*hostmount.Home]*stage
}

// look decides how to make one change.
func (a *applier) look(p pair) error {
	at, why := a.place(p)
	if why != "" {
		a.note(&a.out.LeftOut, p.Path, why)
		return nil
	}
	w := &work{spot: at, pair: p, base: p.last()}
	conflict, already, err := a.compare(w)
	switch {
	case err != nil:
		return err
	case conflict != "":
		a.conflicts++
		a.note(&a.out.Conflicts, p.Path, conflict)
	case already:
		a.out.Already++
		a.out.brought = append(a.out.brought, p.Path)
	default:
		a.add(w)
	}
	return nil
}

func (a *applier) add(w *work) {
	if w.pair.New == nil {
		a.freed[w.spot] = true
	}
	a.todo = append(a.todo, w)
	a.out.brought = append(a.out.brought, w.pair.Path)
	if a.named += len(w.pair.Path); len(a.out.Changes) == maxListed || a.named > maxNames {
		a.out.More++
		return
	}
	a.out.Changes = append(a.out.Changes, changeOf(w.pair.Path, w.base, w.pair.New))
}

// place finds the host's path for a change; why is the reason if there is none.
func (a *applier) place(p pair) (at spot, why string) {
	found := false
	var known bool // known to the host
	for _, h := range a.homes {
		rel, ok := h.Find(p.Path)
		if !ok {
			continue
		}
		has := p.Old != nil && hasEntry(h, rel)
		if better := !found || has && !known || has == known && h.Depth() >= at.home.Depth(); better {
			at, found, known = spot{h, rel}, true, has
		}
	}
	if !found {
		return at, "no mount covers it; take it with wisbox cp"
	}
	if reason := at.home.LeavesOut(at.rel); reason != "" {
		return at, "the mount leaves it out: " + reason.Text()
	}
	if reason := leftout.File(at.rel); reason != "" {
		return at, "it " + reason
	}
	if a.inRepository(at) {
		return at, "it " + leftout.InRepository
	}
	if p.New != nil && p.New.Link && !staysInside(at.rel, p.New.Target) {
		return at, "it is a link that may lead out of the folder"
	}
	return at, ""
}

// inRepository reports whether a directory of the host above a file has the one that makes it a git repository.
func (a *applier) inRepository(at spot) bool {
	for dir := path.Dir(at.rel); ; dir = path.Dir(dir) {
		of := spot{at.home, dir}
		is, known := a.bare[of]
		if !known {
			st, ok := entryOf(at.home, path.Join(dir, leftout.RepositoryFile))
			is = ok && st.Mode&unix.S_IFMT != unix.S_IFDIR
			a.bare[of] = is
		}
		if is || dir == "." {
			return is
		}
	}
}

// staysInside reports whether a link can only lead below the folder, whatever the directories on
// its way are: it goes up only at its beginning, and not higher than the folder.
func staysInside(rel, target string) bool {
	if target == "" || path.IsAbs(target) || leftout.VersionControl(target) {
		return false
	}
	up, down := 0, false
	for name := range strings.SplitSeq(target, "/") {
		switch {
		case name == "..":
			if up++; down {
				return false
			}
		case name != "" && name != ".":
			down = true
		}
	}
	return up <= strings.Count(rel, "/")
}

func hasEntry(h *hostmount.Home, rel string) bool {
	_, ok := entryOf(h, rel)
	return ok
}

func entryOf(h *hostmount.Home, rel string) (st unix.Stat_t, ok bool) {
	dir, name, err := openParent(h, rel)
	if err != nil {
		return st, false
	}
	defer dir.Close()
	return st, unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// openParent opens the directory of a path of the folder without following links.
func openParent(h *hostmount.Home, rel string) (dir *os.File, name string, err error) {
	at, name := path.Split(rel)
	fd, err := beneath.OpenBelow(int(h.Dir().Fd()), strings.TrimSuffix(at, "/"), sys.Place|unix.O_DIRECTORY)
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), at), name, nil
}

// The reasons of conflicts, each with a remedy.
const (
	changedThere = "it was changed on the host since it was mounted; keep the host's with wisbox cp into the session, or take the session's with wisbox cp"
	mergeThere   = "it was changed on the host since it was mounted; keep the host's with wisbox cp into the session, or merge the two: wisbox apply SESSION --3way"
	removedThere = "it was removed on the host since it was mounted; put it back there, or remove it in the session"
	addedThere   = "the host has something else of that name since; rename one of the two"
	// otherSpelling occurs on file systems that fold names.
	otherSpelling = "the host has that name in other letters, which is the same one to its file system; rename one of the two"
	linkThere     = "the host has a link, a file or another disk on the way to it; change it on the host itself"
)

// compare looks at the host's entry: conflict is the reason why the change can't be made; already
// reports that nothing is to do.
func (a *applier) compare(w *work) (conflict string, already bool, err error) {
	dir, name, err := openParent(w.home, w.rel)
	switch {
	case errors.Is(err, unix.ENOENT):
		return a.compareNothing(w)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EXDEV):
		if a.freesAbove(w.spot) {
			return a.compareNothing(w)
		}
		if w.pair.New == nil && a.set.replacedAbove(w.pair.Path) { // there as in the session, or that is the conflict
			return "", true, nil
		}
		return linkThere, false, nil
	case err != nil:
		return "", false, err
	}
	defer dir.Close()
	err = unix.Fstatat(int(dir.Fd()), name, &w.host, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return a.compareNothing(w)
	}
	if err != nil {
		return "", false, err
	}
	if folds {
		if spelled, err := a.spelled(w.spot, dir, name); err != nil || !spelled {
			return otherSpelling, false, err
		}
	}
	return a.compareEntry(w, dir, name)
}

// freesAbove reports whether the obstacle is removed before.
func (a *applier) freesAbove(at spot) bool {
	for dir := path.Dir(at.rel); dir != "."; dir = path.Dir(dir) {
		if a.freed[spot{at.home, dir}] {
			return true
		}
	}
	return false
}

func (a *applier) compareNothing(w *work) (conflict string, already bool, err error) {
	w.host = unix.Stat_t{}
	switch {
	case w.pair.New == nil:
		return "", true, nil
	case w.pair.Old != nil && !(w.pair.brought && w.pair.was == nil):
		return removedThere, false, nil
	}
	w.base = nil
	return "", false, nil
}

func (a *applier) compareEntry(w *work, dir *os.File, name string) (conflict string, already bool, err error) {
	p := &w.pair
	if w.host.Mode&unix.S_IFMT == unix.S_IFDIR {
		switch {
		case p.last() == nil && a.set.goes(p.Path):
			w.host = unix.Stat_t{} // by then it is removed
			return "", false, nil
		case p.New == nil && (p.last() == nil || a.set.newDirs[p.Path]): // a directory there too, maybe an empty one
			return "", true, nil
		}
		return addedThere, false, nil
	}
	same, err := a.same(p.New, w, dir, name)
	if last := p.last(); err != nil || same && (hostExec(&w.host) == p.New.Exec || last != nil && last.Exec == p.New.Exec) {
		return "", err == nil, err
	}
	for _, w.base = range []*snapshot.Entry{p.last(), p.Old} {
		if same, err := a.same(w.base, w, dir, name); err != nil || same {
			return "", false, err
		}
	}
	if w.base = p.Old; w.base == nil {
		w.base = p.last()
	}
	switch {
	case a.threeWay:
		return a.merge(w, dir, name)
	case w.base == nil:
		return addedThere, false, nil
	case a.conflicts >= maxObstacles: // nobody reads more reasons
		return changedThere, false, nil
	}
	if would, err := a.wouldMerge(w, dir, name); err != nil || would {
		return mergeThere, false, err
	}
	return changedThere, false, nil
}

func hostExec(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o100 != 0
}

// goes reports whether the session has removed a directory.
func (s *Set) goes(dir string) bool { return slices.Contains(s.goneDirs, dir) }

// replacedAbove reports whether a directory of a path became a file or a link in the session.
func (s *Set) replacedAbove(path string) bool {
	for dir := parentOf(path); dir != ""; dir = parentOf(dir) {
		if s.newFiles[dir] {
			return true
		}
	}
	return false
}

// same reports whether the host's file or link equals an entry of a snapshot.
func (a *applier) same(e *snapshot.Entry, w *work, dir *os.File, name string) (bool, error) {
	kind := w.host.Mode & unix.S_IFMT
	switch {
	case e == nil:
		return false, nil
	case e.Link:
		if kind != unix.S_IFLNK {
			return false, nil
		}
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
		return string(buf[:max(n, 0)]) == e.Target, err
	case kind != unix.S_IFREG || w.host.Size != e.Size:
		return false, nil
	case e.Size == 0:
		return true, nil
	}
	fd, err := beneath.OpenAt(int(dir.Fd()), name, unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	compared := &comparing{f: f}
	err = copyContent(a.ctx, a.budget, a.set.between, e, compared)
	if errors.Is(err, errDiffers) {
		return false, nil
	}
	return err == nil, err
}

var errDiffers = errors.New("the contents differ")

// comparing compares written bytes with a file's content.
type comparing struct {
	f   *os.File
	buf []byte
}

// Write implements io.Writer.
func (c *comparing) Write(p []byte) (int, error) {
	if len(c.buf) < len(p) {
		c.buf = make([]byte, len(p))
	}
	if _, err := io.ReadFull(c.f, c.buf[:len(p)]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errDiffers
		}
		return 0, err
	}
	if !bytes.Equal(p, c.buf[:len(p)]) {
		return 0, errDiffers
	}
	return len(p), nil
}

// hostError describes an error of the host in words.
func hostError(err error) error {
	var te *tool.Error
	switch {
	case errors.As(err, &te):
		return te
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return tool.Errorf(tool.Permission, "the host's folder can't be read or written by the user that runs wisbox; nothing was changed there").Because(err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return tool.Errorf(tool.NoSpace, "the host's folder has no room for the changes; nothing was changed there").Because(err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return tool.Errorf(tool.Unsupported, "the file system of the host's folder can't exchange files by name; nothing was changed there; use wisbox diff --patch and git apply").Because(err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return tool.AsError(err)
	}
	return tool.Errorf(tool.Unavailable, "the host's folder can't be read or written; nothing was changed there").Because(err)
}

// errRaced returns the error for a path that the host changed during an apply.
func errRaced(path string) error {
	return tool.Errorf(tool.Conflict, "%s was changed on the host during the apply; nothing was changed there; try again", fmt.Sprintf("%q", path))
}

func renameat(from int, old string, to int, name string, flags uint) error {
	_, err := retry.Interrupted(func() (int, error) { return 0, sys.Rename(from, old, to, name, flags) })
	return err
}

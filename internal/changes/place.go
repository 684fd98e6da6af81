package changes

import (
	"crypto/rand"
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// stage is a directory in a folder of the host. It has the new files until they are moved to their
// places, and the replaced ones until everything is done.
type stage struct {
	top  *os.File // the folder
	name string
	dir  *os.File
	next int
	own  *unix.Stat_t // the owner of new files; nil for this process's user
}

// write makes all changes, or none.
func (a *applier) write() (err error) {
	defer func() {
		for _, s := range a.stages {
			s.discard()
		}
	}()
	for _, w := range a.todo {
		if err := a.ready(w); err != nil {
			return err
		}
	}
	m := &moving{applier: a}
	if err := m.all(); err != nil {
		m.back()
		return err
	}
	return nil
}

func (a *applier) stage(h *hostmount.Home) (*stage, error) {
	if s := a.stages[h]; s != nil {
		return s, nil
	}
	s, err := newStage(h.Dir())
	if err == nil {
		a.stages[h] = s
	}
	return s, err
}

func newStage(top *os.File) (*stage, error) {
	if err := refuseOther(top); err != nil {
		return nil, err
	}
	s := &stage{top: top, name: leftout.ApplyDir + strings.ToLower(rand.Text())}
	if err := unix.Mkdirat(int(top.Fd()), s.name, 0o700); err != nil {
		return nil, err
	}
	fd, err := beneath.OpenAt(int(top.Fd()), s.name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	s.dir = os.NewFile(uintptr(fd), s.name)
	if err := claim(fd); err != nil {
		return nil, errors.Join(err, s.dir.Close(), unix.Unlinkat(int(top.Fd()), s.name, unix.AT_REMOVEDIR))
	}
	if os.Geteuid() == 0 {
		s.own = &unix.Stat_t{}
		err = unix.Fstat(int(top.Fd()), s.own)
	}
	return s, err
}

// preparing is a file in a stage that has nothing but new files yet. Without it, the stage may have the only copy of a
// replaced file.
const preparing = "preparing"

// claim locks a new stage and marks it as one that prepares.
func claim(stage int) error {
	// On a file system without locks, nobody else can take it either.
	if unix.Flock(stage, unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		return tool.Errorf(tool.Busy, "another apply began in the host's folder at the same time; try again")
	}
	fd, err := unix.Openat(stage, preparing, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// refuseOther refuses a folder where another apply runs, or was killed after it had begun to replace files. It removes
// what one left that was killed before.
func refuseOther(top *os.File) error {
	fd, err := unix.Openat(int(top.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var others []string
	err = beneath.ReadDir(fd, func(e beneath.Entry) bool {
		if strings.HasPrefix(e.Name, leftout.ApplyDir) && isStage(fd, e.Name) {
			others = append(others, strings.Clone(e.Name))
		}
		return true
	})
	for _, other := range others {
		if err := removeAbandoned(top, other); err != nil {
			return err
		}
	}
	return err
}

func removeAbandoned(top *os.File, name string) error {
	fd, err := beneath.OpenAt(int(top.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil // gone since
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return tool.Errorf(tool.Busy, "another apply works in the host's folder; wait until it has ended, then try again")
	}
	if unix.Faccessat(fd, preparing, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return tool.Errorf(tool.Busy, "an apply was killed in the host's folder while it replaced files; check the files in %q of that folder, remove that directory, then try again", name)
	}
	_, err = beneath.RemoveAll(top, name)
	return err
}

// isStage reports whether an entry of a folder can be a stage, and not a file that came home with a
// patch or a copy.
func isStage(folder int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(folder, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode == unix.S_IFDIR|0o700 && int(st.Uid) == os.Geteuid()
}

func (s *stage) discard() {
	_ = s.dir.Close()
	_, _ = beneath.RemoveAll(s.top, s.name)
}

func (s *stage) fresh() string {
	s.next++
	return strconv.Itoa(s.next)
}

// adopt gives a new entry the owner of the folder, or of the replaced file.
func (s *stage) adopt(name string, was *unix.Stat_t) error {
	if s.own == nil {
		return nil
	}
	if was.Mode == 0 {
		was = s.own
	}
	return unix.Fchownat(int(s.dir.Fd()), name, int(was.Uid), int(was.Gid), unix.AT_SYMLINK_NOFOLLOW)
}

// ready creates the new file or link of a change in the stage.
func (a *applier) ready(w *work) error {
	s, err := a.stage(w.home)
	if err != nil {
		return err
	}
	e := w.pair.New
	w.name = s.fresh()
	switch {
	case e == nil:
		return nil
	case e.Link:
		if err := unix.Symlinkat(e.Target, int(s.dir.Fd()), w.name); err != nil {
			return err
		}
		return s.adopt(w.name, &w.host)
	}
	return a.readyFile(s, w, e)
}

func (a *applier) readyFile(s *stage, w *work, e *snapshot.Entry) error {
	mode := uint32(0o666)
	if e.Exec {
		mode = 0o777
	}
	fd, err := unix.Openat(int(s.dir.Fd()), w.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), w.name)
	if w.isMerged {
		_, err = f.WriteString(w.merged)
		a.budget.Release(len(w.merged))
		w.merged = ""
	} else {
		err = copyContent(a.ctx, a.budget, a.set.between, e, f)
	}
	if err == nil {
		err = s.adopt(w.name, &w.host)
	}
	if err == nil && w.host.Mode&unix.S_IFMT == unix.S_IFREG {
		err = unix.Fchmod(fd, modeBeside(&w.host, w.base, w.pair.New))
	}
	return errors.Join(err, f.Close())
}

// modeBeside returns the mode of the replaced file, with the session's choice of executable or not.
func modeBeside(host *unix.Stat_t, old, now *snapshot.Entry) uint32 {
	mode := uint32(host.Mode) & 0o777
	switch {
	case old == nil || old.Exec == now.Exec:
		return mode
	case now.Exec:
		return mode | mode&0o444>>2
	}
	return mode &^ 0o111
}

// moving makes the changes by renames and can undo them.
type moving struct {
	*applier
	undo []func()
}

func (m *moving) back() {
	for _, undo := range slices.Backward(m.undo) {
		undo()
	}
}

func (m *moving) all() error {
	for _, s := range m.stages {
		if err := unix.Unlinkat(int(s.dir.Fd()), preparing, 0); err != nil {
			return err
		}
	}
	for _, w := range m.todo {
		if w.pair.New == nil {
			if err := m.takeAway(w); err != nil {
				return err
			}
		}
	}
	for _, dir := range slices.Backward(m.set.goneDirs) {
		m.removeDir(dir)
	}
	for _, w := range m.todo {
		if w.pair.New == nil {
			continue
		}
		if err := m.bring(w); err != nil {
			return err
		}
	}
	return nil
}

// takeAway moves an entry that the session removed into the stage.
func (m *moving) takeAway(w *work) error {
	return m.at(w, func(s *stage, dir int, name string) error {
		if err := renameat(dir, name, int(s.dir.Fd()), w.name, sys.NoReplace); err != nil {
			return err
		}
		m.undo = append(m.undo, func() {
			_ = m.at(w, func(s *stage, dir int, name string) error {
				return renameat(int(s.dir.Fd()), w.name, dir, name, sys.NoReplace)
			})
		})
		return m.unraced(s, w)
	})
}

// bring moves a new entry to its place.
func (m *moving) bring(w *work) error {
	if err := m.makeParents(w); err != nil {
		return err
	}
	return m.at(w, func(s *stage, dir int, name string) error {
		flags := uint(sys.Exchange)
		if w.host.Mode == 0 {
			flags = sys.NoReplace
		}
		err := renameat(int(s.dir.Fd()), w.name, dir, name, flags)
		if errors.Is(err, unix.EEXIST) && m.set.goes(w.pair.Path) {
			return tool.Errorf(tool.Conflict, "the directory %q became a file in the session, and on the host it has more files than were mounted; nothing was changed there; move them away first", w.pair.Path)
		}
		if err != nil {
			return err
		}
		m.undo = append(m.undo, func() {
			_ = m.at(w, func(s *stage, dir int, name string) error {
				return renameat(dir, name, int(s.dir.Fd()), w.name, flags)
			})
		})
		if w.host.Mode == 0 {
			return nil
		}
		return m.unraced(s, w)
	})
}

// at calls do with the directory of a change, opened without following links.
func (m *moving) at(w *work, do func(s *stage, dir int, name string) error) error {
	dir, name, err := openParent(w.home, w.rel)
	if err == nil {
		defer dir.Close()
		err = do(m.stages[w.home], int(dir.Fd()), name)
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTEMPTY):
		return errRaced(w.pair.Path)
	}
	return err
}

// unraced checks that the entry now in the stage is the one that was compared.
func (m *moving) unraced(s *stage, w *work) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(s.dir.Fd()), w.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Ino != w.host.Ino || st.Size != w.host.Size || st.Mtim != w.host.Mtim || st.Mode != w.host.Mode {
		return errRaced(w.pair.Path)
	}
	return nil
}

// removeDir removes a directory that the session removed, if it is empty.
func (m *moving) removeDir(workspace string) {
	for _, h := range m.homes {
		rel, ok := h.Find(workspace)
		if !ok || rel == "" || m.stages[h] == nil || h.LeavesOut(rel) != "" {
			continue
		}
		dir, name, err := openParent(h, rel)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		err = unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR) == nil {
			m.undo = append(m.undo, func() { remakeDir(h, rel, &st) })
		}
		_ = dir.Close()
	}
}

func remakeDir(h *hostmount.Home, rel string, was *unix.Stat_t) {
	dir, name, err := openParent(h, rel)
	if err != nil {
		return
	}
	defer dir.Close()
	if unix.Mkdirat(int(dir.Fd()), name, 0o700) != nil {
		return
	}
	fd, err := beneath.OpenAt(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = unix.Fchown(fd, int(was.Uid), int(was.Gid))
	_ = unix.Fchmod(fd, uint32(was.Mode)&0o7777)
}

// makeParents makes the directories that a new file needs.
func (m *moving) makeParents(w *work) error {
	names := strings.Split(path.Dir(w.rel), "/")
	for i := range names {
		rel := strings.Join(names[:i+1], "/")
		if rel == "." {
			return nil
		}
		made, err := m.makeDir(w.home, rel)
		if err != nil {
			return err
		}
		if made {
			m.undo = append(m.undo, func() {
				if dir, name, err := openParent(w.home, rel); err == nil {
					_ = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
					_ = dir.Close()
				}
			})
		}
	}
	return nil
}

func (m *moving) makeDir(h *hostmount.Home, rel string) (made bool, err error) {
	dir, name, err := openParent(h, rel)
	if err != nil {
		return false, errRaced(rel)
	}
	defer dir.Close()
	err = unix.Mkdirat(int(dir.Fd()), name, 0o777)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if own := m.stages[h].own; err == nil && own != nil {
		err = unix.Fchownat(int(dir.Fd()), name, int(own.Uid), int(own.Gid), unix.AT_SYMLINK_NOFOLLOW)
	}
	return err == nil, err
}

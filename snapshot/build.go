package snapshot

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

// build stages a directory that the workspace lacks, with everything in it. One rename moves it
// into place. It creates each file in its final directory, which takes half as long as creating
// and moving it.
type build struct {
	*dirWalk
	stage *stage
	top   string // the directory's path in the workspace
}

// tree begins to build a directory. The directory gets its mode and time once it is in place,
// since a directory without the right to write can't be moved.
func (st *stage) tree(walk *dirWalk, w wanted) error {
	name := st.store.staging.Name()
	if err := st.folder(st.dir, name); err != nil {
		return err
	}
	st.ready(w.entry, name)
	b := &build{dirWalk: walk, stage: st, top: w.at.path(w.entry.name)}
	b.push(&dirWork{at: newPlace(st.dir).below(name), want: w.entry, finished: true}, b.dir)
	return nil
}

// dir creates the entries of one directory. If there are many files, it splits them into
// several jobs.
func (b *build) dir(w *dirWork, buf []byte) error {
	fd, err := w.at.open(unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if w.want.attrs() != (Hash{}) {
		if err := b.stage.setUserAttributes(fd, w.want); err != nil {
			return err
		}
	}
	var files, folders []*entry
	for i := range w.want.dir.entries {
		switch e := &w.want.dir.entries[i]; e.kind {
		case file:
			files = append(files, e)
		case symlink:
			err = b.stage.link(fd, e.name, e)
		case folder:
			err = b.stage.folder(fd, e.name)
			folders = append(folders, e)
		}
		if err != nil {
			return err
		}
	}
	for len(files) > fileBatch {
		b.pushFiles(w, files[:fileBatch])
		files = files[fileBatch:]
	}
	if err := b.files(w, files, fd, buf); err != nil {
		return err
	}
	w.left.Add(int32(len(folders)))
	for _, e := range folders {
		b.push(&dirWork{up: w, at: w.at.below(e.name), want: e}, b.dir)
	}
	return b.done(w)
}

func (b *build) pushFiles(w *dirWork, files []*entry) {
	w.left.Add(1)
	b.pool.push(job{drop: func() {}, do: func(buf []byte) error {
		fd, err := w.at.open(sys.Place)
		if err != nil {
			return err
		}
		return errors.Join(b.files(w, files, fd, buf), unix.Close(fd), b.done(w))
	}})
}

// files creates some files of the directory that is open as dir.
func (b *build) files(w *dirWork, files []*entry, dir int, buf []byte) error {
	if len(files) == 0 {
		return nil
	}
	twin := b.stage.twin.open(b.path(w.at))
	defer closeIf(twin)
	for _, e := range files {
		if err := b.file(dir, twin, e, buf); err != nil {
			return at(err, clipPath(shown(b.path(w.at.child(e.name)))))
		}
	}
	return nil
}

func (b *build) file(dir, twin int, e *entry, buf []byte) error {
	if g := b.stage.groups[e]; g != nil {
		return b.stage.join(b.pool.ctx, g, dir, e.name, e, buf)
	}
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, e.name, flags, e.mode&0o777)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return b.stage.make(b.pool.ctx, fd, twin, e, buf)
}

// path returns the final path of a place in the staging directory.
func (b *build) path(staged *place) string {
	names := strings.Split(staged.path(""), "/")
	return strings.Join(slices.Concat([]string{b.top}, names[1:]), "/")
}

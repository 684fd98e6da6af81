package files

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/filewire"
)

// stagePrefix begins the names of the directories in which several files are staged.
const stagePrefix = filewire.TempPrefix + "several-"

// staged is a file that waits in a stage for its place.
type staged struct {
	stage *stage
	path  string
	isNew bool // its path had no file
}

func (s *staged) name(n int) string { return strconv.Itoa(n) }
func (s *staged) was(n int) string  { return strconv.Itoa(n) + "-was" } // the name in the stage of the file that was there

// stage is a directory on one file system, which its process locks.
type stage struct {
	parent *os.File
	name   string
	dir    *os.File
}

// stager writes several files, or none: it stages them, and puts all in place when the last one is whole.
type stager struct {
	*worker
	stages map[uint64]*stage // by file system
	files  []staged
	made   []string // directories
	held   int
}

func (w *worker) writeSeveral() error {
	s := &stager{worker: w, stages: map[uint64]*stage{}}
	err := s.receive()
	if err == nil {
		err = s.swap()
	}
	s.clear()
	if err != nil {
		for _, dir := range slices.Backward(s.made) {
			_ = unix.Rmdir(dir)
		}
	}
	return err
}

// receive stages all files of the content, which are blocks with their length before them: a path, content, an empty block;
// and an empty path in the end.
func (s *stager) receive() error {
	in := bufio.NewReader(&body{w: s.worker})
	for {
		block, err := blockOf(in, filewire.MaxPath)
		switch {
		case err != nil:
			return err
		case len(block) == 0:
			_, err := io.Copy(io.Discard, in)
			return err
		case block[0] != '/':
			return unix.EINVAL
		}
		name := string(block)
		if s.held += len(name) + nameCost; s.held > maxHeld {
			return errLimited
		}
		if err := s.one(name, in); err != nil {
			return atFile(name, err)
		}
	}
}

// atFile adds a file's path to an error, unless the path can't be one.
func atFile(name string, err error) error {
	name = path.Clean(name)[1:]
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > unix.NAME_MAX {
			return err
		}
	}
	return at(name, err)
}

// body is the content as a reader.
type body struct {
	w    *worker
	rest []byte
}

func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if !b.w.body {
			return 0, io.EOF
		}
		data, err := b.w.content()
		if err != nil {
			return 0, err
		}
		b.rest = data
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func blockOf(in *bufio.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, incomplete(err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if uint64(size) > uint64(limit) {
		return nil, unix.ENAMETOOLONG
	}
	block := make([]byte, size)
	_, err := io.ReadFull(in, block)
	return block, incomplete(err)
}

func incomplete(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return unix.EINVAL
	}
	return err
}

// one stages one file.
func (s *stager) one(to string, in *bufio.Reader) error {
	if s.ask.Parents {
		dir, _ := split(to)
		if err := s.mkdirAll(dir); err != nil {
			return err
		}
	}
	to, err := follow(to)
	if err != nil {
		return err
	}
	dir, base, err := openParent(to, false)
	if errors.Is(err, unix.EBUSY) {
		return unix.EISDIR
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	mode, _, err := target(dir, base, s.ask.Mode, s.ask.Exclusive)
	if err != nil {
		return err
	}
	at, err := s.stageFor(dir)
	if err != nil {
		return err
	}
	file := staged{stage: at, path: to}
	f, err := open(fd(at.dir), file.name(len(s.files)), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	s.files = append(s.files, file)
	if err := fillBlocks(f, in); err != nil {
		return err
	}
	return errors.Join(s.setAttributes(f), unix.Fchmod(fd(f), mode))
}

func fillBlocks(f *os.File, in *bufio.Reader) error {
	for {
		block, err := blockOf(in, filewire.Chunk)
		if err != nil || len(block) == 0 {
			return err
		}
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
}

// mkdirAll remembers the directories that it makes.
func (s *stager) mkdirAll(at string) error {
	var missing []string
	for up := at; ; {
		var st unix.Stat_t
		if unix.Stat(up, &st) != unix.ENOENT {
			break
		}
		missing = append(missing, up)
		dir, base := split(up)
		if base == "" {
			break
		}
		up = dir
	}
	err := mkdirAll(at)
	slices.Reverse(missing)
	s.made = append(s.made, missing...)
	return err
}

// stageFor returns the stage on a directory's file system. It is beside the first file there. One that a killed process has
// left is used again.
func (s *stager) stageFor(dir *os.File) (*stage, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd(dir), &st); err != nil {
		return nil, err
	}
	device := uint64(st.Dev) //nolint:unconvert // another type on other processors
	if at := s.stages[device]; at != nil {
		return at, nil
	}
	parent, err := open(fd(dir), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	var why error = unix.EBUSY
	for n := range maxTemps {
		at := &stage{parent: parent, name: stagePrefix + strconv.Itoa(n)}
		if why = unix.Mkdirat(fd(parent), at.name, 0o700); why != nil && why != unix.EEXIST {
			break
		}
		if at.lock() {
			s.stages[device] = at
			return at, nil
		}
		why = unix.EBUSY
	}
	parent.Close()
	return nil, why
}

// lock makes the stage this process's own, and empty.
func (a *stage) lock() bool {
	dir, err := open(fd(a.parent), a.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	var is, named unix.Stat_t
	a.dir = dir
	if unix.Flock(fd(dir), unix.LOCK_EX|unix.LOCK_NB) == nil &&
		unix.Fstat(fd(dir), &is) == nil && int(is.Uid) == os.Geteuid() &&
		unix.Fstatat(fd(a.parent), a.name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		is.Dev == named.Dev && is.Ino == named.Ino && a.empty() == nil {
		return true
	}
	dir.Close()
	return false
}

func (a *stage) empty() error {
	if _, err := a.dir.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := &remover{top: fd(a.dir), left: maxStaged}
	return r.empty(a.dir, 1)
}

// maxStaged bounds the steps of a stage's removal.
const maxStaged = 10_000_000

// clear removes the stages, with the old files or what wasn't put in place.
func (s *stager) clear() {
	for _, at := range s.stages {
		_ = at.empty()
		_ = unlink(fd(at.parent), at.name)
		at.dir.Close()
		at.parent.Close()
	}
}

// swap puts all files in place. If one can't be, it puts the old ones back.
func (s *stager) swap() error {
	for n := range s.files {
		if err := s.files[n].place(n, s.ask.Exclusive); err != nil {
			for done := n - 1; done >= 0; done-- {
				s.files[done].putBack(done)
			}
			return atFile(s.files[n].path, err)
		}
	}
	return nil
}

// place keeps the old file in the stage, and puts the new one in its place. It moves the new one beside its place first: a
// watch reports a rename from such a name as a written file.
func (s *staged) place(n int, exclusive bool) error {
	dir, base, err := openParent(s.path, false)
	if err != nil {
		return err
	}
	defer dir.Close()
	beside := fmt.Sprintf("%s%d-%d", stagePrefix, os.Getpid(), n)
	if err := unix.Renameat2(fd(s.stage.dir), s.name(n), fd(dir), beside, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	if err = s.moveIn(n, dir, beside, base, exclusive); err != nil {
		_ = unix.Unlinkat(fd(dir), beside, 0)
	}
	return err
}

func (s *staged) moveIn(n int, dir *os.File, beside, base string, exclusive bool) (err error) {
	for range maxTemps {
		_, s.isNew, err = target(dir, base, 0, exclusive)
		if err != nil {
			return err
		}
		if !s.isNew {
			return s.replace(n, dir, beside, base)
		}
		err = unix.Renameat2(fd(dir), beside, fd(dir), base, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) { // it is there now
			return err
		}
	}
	return err
}

func (s *staged) replace(n int, dir *os.File, beside, base string) error {
	stage := fd(s.stage.dir)
	if err := unix.Linkat(fd(dir), base, stage, s.was(n), 0); err != nil { // such as another user's file
		if err := unix.Renameat(fd(dir), base, stage, s.was(n)); err != nil {
			return err
		}
	}
	err := unix.Renameat(fd(dir), beside, fd(dir), base)
	if err != nil {
		_ = unix.Renameat(stage, s.was(n), fd(dir), base)
	}
	return err
}

func (s *staged) putBack(n int) {
	dir, base, err := openParent(s.path, false)
	if err != nil {
		return
	}
	defer dir.Close()
	if s.isNew {
		_ = unix.Unlinkat(fd(dir), base, 0)
	} else {
		_ = unix.Renameat(fd(s.stage.dir), s.was(n), fd(dir), base)
	}
}

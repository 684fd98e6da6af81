package plumbing

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox/internal/scratch"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool"
)

// objects are new objects, in a directory of their own among the repository's. Until [objects.moveIn] the repository has none
// of them, and git's gc removes the directory too, if this process is killed and no other branch is made.
type objects struct {
	*scratch.Dir
	r *Repo
}

const objectsPrefix = "tmp_objdir-wisbox-" // git's gc knows it by its beginning

func (r *Repo) newObjects() (*objects, error) {
	o := &objects{r: r}
	err := r.asUser(func() (err error) {
		o.Dir, err = scratch.Below(filepath.Join(r.common, "objects"), objectsPrefix)
		return err
	})
	if err != nil {
		return nil, repositoryError(err)
	}
	return o, nil
}

// asUser calls do with the rights of git's user, who may replace any directory of the repository by a link.
func (r *Repo) asUser(do func() error) error {
	if r.runAs == nil {
		return do()
	}
	return sys.As(int(r.runAs.Uid), int(r.runAs.Gid), do)
}

// Close removes what wasn't moved.
func (o *objects) Close() error { return o.r.asUser(o.Dir.Close) }

// command has git write here, and find the repository's objects too.
func (o *objects) command(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, "GIT_OBJECT_DIRECTORY="+o.Path, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quote(filepath.Join(o.r.common, "objects")))
	return cmd
}

// moveIn moves the objects to the repository's: packs before their indexes, by which git finds them.
func (o *objects) moveIn() error {
	if err := o.r.asUser(o.move); err != nil {
		return repositoryError(err)
	}
	return nil
}

func (o *objects) move() error {
	var files []string
	err := fs.WalkDir(o.Parent().FS(), o.Name, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files = append(files, strings.TrimPrefix(name, o.Name+"/"))
		}
		return err
	})
	if err != nil {
		return err
	}
	isIndex := func(name string) int {
		if path.Ext(name) == ".idx" {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(isIndex(a), isIndex(b)) })
	for _, name := range files {
		if err := o.moveFile(name); err != nil {
			return err
		}
	}
	return nil
}

func (o *objects) moveFile(name string) error {
	if err := o.Parent().Mkdir(path.Dir(name), dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return o.Parent().Rename(path.Join(o.Name, name), name)
}

// isFull reports whether git says that it found no room.
func isFull(says []byte) bool {
	return bytes.Contains(says, []byte("No space left on device")) || bytes.Contains(says, []byte("Out of diskspace")) || bytes.Contains(says, []byte("Disk quota exceeded"))
}

func errFull(cause error) error {
	return tool.Errorf(tool.NoSpace, "the repository's file system has no room for the branch; nothing was changed there; free some space and try again").Because(cause)
}

func repositoryError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errFull(err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return tool.Errorf(tool.Permission, "the repository can't be written by this user; nothing was changed there").Because(err)
	}
	return tool.Errorf(tool.Unavailable, "the repository can't be written; nothing was changed there").Because(err)
}

package hostmount

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxDepth   = 512
	maxPath    = 3_900
	maxEntries = 40_000 // of a report
)

// item is a file, link or directory to copy.
type item struct {
	src   string // below the source's tree
	dst   string // in the workspace
	dir   bool
	size  int64
	mode  uint32 // permission bits
	mtime unix.Timespec
	link  string // the text of a link
	text  string // the content, if it isn't the source's
	plan  *plan
	ino   uint64 // of a file with several names, or 0
	first *item  // the first name of that file, of which this becomes another one; may be nil

	dropped bool // it could not be copied after all
}

// plan lists the entries of one mount to copy.
type plan struct {
	mount  Mount
	at     string // the mount's name in errors: mounts[0]
	src    *source
	filter filter
	budget *budget
	all    bool    // the report also lists copied entries
	census *census // set for a walk that only counts

	items  []*item
	firsts map[uint64]*item // the first names of files with several ones
	report MountReport

	roots []*allowed // while it is made
	// refused, if set, replaces the filter. A path that is refused without a reason isn't reported.
	refused func(rel string, dir bool) (Reason, bool)
	parts   []*plan // the git folders of directories in the source
}

// budget counts the bytes and entries of all mounts.
type budget struct {
	bytes, files       int64
	maxBytes, maxFiles int64

	progress func(files, bytes int64) // may be nil
}

// place is a directory of the source to walk.
type place struct {
	src, dst, rel string
	real          string // its path with links resolved
	depth         int
	up            *place
}

// walk makes the plan. If there are include globs, it drops directories without an included file.
func (p *plan) walk(ctx context.Context) error {
	dst, err := p.destination()
	if err != nil {
		return err
	}
	p.report.MountPath, p.report.Skipped = dst, map[Reason]int64{}
	if p.src.file != "" {
		return p.look(p.src.tree.Dir(), &place{dst: parent(dst)}, p.src.file, path.Base(dst))
	}
	err = p.walkFrom(ctx, &place{dst: dst})
	p.dropEmpty()
	return err
}

func (p *plan) walkFrom(ctx context.Context, top *place) error {
	pending := []*place{top}
	for len(pending) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := pending[len(pending)-1]
		below, err := p.directory(ctx, at)
		if err != nil {
			return err
		}
		pending = append(pending[:len(pending)-1], below...)
	}
	return nil
}

// destination returns the source's destination: the directory for a directory's content, or a file's new path.
func (p *plan) destination() (string, error) {
	if p.mount.MountPath == "" {
		dst, err := mountPath(p.src.rel, p.at)
		if p.src.rel == "." {
			dst, err = "", nil
		}
		return dst, err
	}
	dst, err := mountPath(p.mount.MountPath, p.at)
	if err == nil && p.src.file != "" && (dst == "" || strings.HasSuffix(p.mount.MountPath, "/")) {
		dst = join(dst, p.src.file)
	}
	return dst, err
}

// directory plans the entries of a directory and returns the directories in it.
func (p *plan) directory(ctx context.Context, at *place) ([]*place, error) {
	dir, err := p.src.tree.OpenDir(at.src)
	if err == nil && at.real != dir.Path {
		err = errors.Join(beneath.ErrChanged, dir.Close())
	}
	if err != nil {
		if at.up == nil {
			return nil, tool.AsError(sourceError(err, mountSource)).In(p.at + ".host_path")
		}
		p.skip(at.dst, reasonOf(err))
		return nil, nil
	}
	defer dir.Close()
	var names []string
	err = beneath.ReadDir(int(dir.Fd()), func(e beneath.Entry) bool {
		names = append(names, strings.Clone(e.Name))
		return true
	})
	if err != nil {
		p.skip(at.dst, Unreadable)
		return nil, nil
	}
	if at.up != nil {
		if err := p.addDir(at, &dir.Stat); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return p.names(ctx, dir, at, names)
}

func (p *plan) names(ctx context.Context, dir *beneath.Handle, at *place, names []string) ([]*place, error) {
	var below []*place
	for _, name := range names {
		next, err := p.name(ctx, dir, at, name)
		if err != nil {
			return nil, err
		}
		if next != nil {
			below = append(below, next)
		}
	}
	return below, nil
}

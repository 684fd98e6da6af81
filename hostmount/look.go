package hostmount

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

// name plans one name of a directory, and returns a directory to walk.
func (p *plan) name(ctx context.Context, dir *beneath.Handle, at *place, name string) (*place, error) {
	var st unix.Stat_t
	rel, dst := join(at.rel, name), join(at.dst, name)
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		p.skip(dst, reasonOf(err))
		return nil, nil
	}
	real := join(at.real, name)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if !p.mount.FollowSymlinks {
			return nil, p.addLink(dir, rel, dst, name, &st)
		}
		why := p.follow(at, name, &st, &real)
		if why != "" {
			p.skip(dst, why)
			return nil, nil
		}
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if p.refuse(rel, dst, isDir) {
		return nil, nil
	}
	if name == gitName && st.Mode&unix.S_IFMT == unix.S_IFREG {
		if handled, err := p.gitFile(ctx, dir, at, dst, &st); handled || err != nil {
			return nil, err
		}
	}
	if !isDir && p.borrows(rel) {
		p.skip(dst, GitBorrowed)
		return nil, nil
	}
	if !isDir {
		return nil, p.addFile(join(at.src, name), dst, &st)
	}
	next := &place{src: join(at.src, name), dst: dst, rel: rel, real: real, depth: at.depth + 1, up: at}
	if next.depth > maxDepth || len(next.src) > maxPath {
		p.skip(dst, TooDeep)
		return nil, nil
	}
	return next, nil
}

// refuse reports whether a path of the source is not copied, and records the reason if there is one.
func (p *plan) refuse(rel, dst string, dir bool) bool {
	why := p.filter.refuses(rel, dir)
	no := why != ""
	if p.refused != nil {
		why, no = p.refused(rel, dir)
	}
	if why != "" {
		p.skip(dst, why)
	}
	return no
}

// follow examines a link's target, which must be in the source and not a parent directory.
func (p *plan) follow(at *place, name string, st *unix.Stat_t, real *string) Reason {
	h, err := p.src.tree.OpenDir(join(at.src, name))
	if errors.Is(err, unix.ENOTDIR) {
		h, err = p.src.tree.Open(join(at.src, name))
	}
	if err != nil {
		return linkReason(err)
	}
	defer h.Close()
	*st, *real = h.Stat, h.Path
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return ""
	}
	for up := at; up != nil; up = up.up {
		if up.real == h.Path {
			return LinkBroken
		}
	}
	return ""
}

// addLink plans a link to copy unchanged: it must not lead out of the source.
func (p *plan) addLink(dir *beneath.Handle, rel, dst, name string, st *unix.Stat_t) error {
	if p.refuse(rel, dst, false) {
		return nil
	}
	text, err := dir.Entry(name).Readlink()
	switch {
	case err != nil:
		p.skip(dst, reasonOf(err))
		return nil
	case path.IsAbs(text):
		p.skip(dst, Link)
		return nil
	case !filepath.IsLocal(path.Join(path.Dir(rel), text)):
		p.skip(dst, LinkOutside)
		return nil
	}
	return p.add(&item{dst: dst, link: text, mtime: st.Mtim, plan: p})
}

// linkReason returns the reason why a link is not followed.
func linkReason(err error) Reason {
	switch {
	case errors.Is(err, beneath.ErrEscape), errors.Is(err, unix.EXDEV):
		return LinkOutside
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), beneath.Leased(err):
		return Unreadable
	case errors.Is(err, beneath.ErrNotRegular), errors.Is(err, unix.ENXIO):
		return Special
	}
	return LinkBroken
}

// look plans a source that is a single file.
func (p *plan) look(dir *os.File, at *place, name, as string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, 0); err != nil {
		return tool.AsError(sourceError(err, mountSource)).In(p.at + ".host_path")
	}
	dst := join(at.dst, as)
	if why := p.filter.refuses(name, false); why != "" {
		p.skip(dst, why)
		return nil
	}
	return p.addFile(name, dst, &st)
}

func (p *plan) addFile(src, dst string, st *unix.Stat_t) error {
	if why := p.refuses(st); why != "" {
		p.skip(dst, why)
		return nil
	}
	it := &item{src: src, dst: dst, size: st.Size, mode: uint32(st.Mode) & 0o777, mtime: st.Mtim, plan: p}
	if st.Nlink > 1 {
		it.ino = st.Ino
		if it.first = p.firsts[it.ino]; it.first == nil {
			p.firsts[it.ino] = it
		}
	}
	return p.add(it)
}

// refuses returns the reason why a file of that type or owner is not copied.
func (p *plan) refuses(st *unix.Stat_t) Reason {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return Special
	case uint64(st.Dev) != p.src.tree.Dev():
		return OtherDisk
	case st.Nlink > 1 && st.Uid != p.src.owner:
		return HardLink
	}
	return ""
}

func (p *plan) addDir(at *place, st *unix.Stat_t) error {
	return p.add(&item{src: at.src, dst: at.dst, dir: true, mode: uint32(st.Mode) & 0o777, mtime: st.Mtim, plan: p})
}

func (p *plan) add(it *item) error {
	if p.census != nil {
		return p.census.add(strings.TrimPrefix(strings.TrimPrefix(it.dst, p.report.MountPath), "/"), it)
	}
	p.items = append(p.items, it)
	p.budget.files++
	if p.budget.files > p.budget.maxFiles {
		return tool.Errorf(tool.Limit, "the mounts have more than %d files and directories, the session's limit; raise it (--inodes), or exclude some", p.budget.maxFiles).In(p.at)
	}
	if p.budget.progress != nil {
		p.budget.progress(p.budget.files, p.budget.bytes)
	}
	if it.first != nil { // its content is charged
		return nil
	}
	return p.charge(it.size)
}

// charge charges n bytes to the budgets.
func (p *plan) charge(n int64) error {
	p.budget.bytes += n
	p.report.Bytes += n
	if err := p.within(); err != nil {
		return err
	}
	if p.budget.bytes > p.budget.maxBytes {
		return tool.Errorf(tool.TooLarge, "the mounts have more than %s, the limit of the session's disk; raise it (--disk), or exclude files", units.BytesSize(float64(p.budget.maxBytes))).In(p.at)
	}
	return nil
}

// within checks the mount's own budget.
func (p *plan) within() error {
	all := p.report.Bytes
	for _, part := range p.parts {
		all += part.report.Bytes
	}
	if limit := p.mount.MaxBytes; limit > 0 && all > limit {
		return tool.Errorf(tool.TooLarge, "the mount has more than %s, its max-bytes; raise it, or exclude files", units.BytesSize(float64(limit))).In(p.at + ".max_bytes")
	}
	return nil
}

func (p *plan) skip(dst string, why Reason) {
	p.report.Skipped[why]++
	p.list(Entry{Path: dst, Kind: "other", Skipped: why})
}

func (p *plan) list(e Entry) {
	if len(p.report.Entries) >= maxEntries {
		p.report.Truncated = true
		return
	}
	p.report.Entries = append(p.report.Entries, e)
}

// dropEmpty drops directories without files if there are include globs, which don't request them.
func (p *plan) dropEmpty() {
	if len(p.filter.include) == 0 {
		return
	}
	needed := map[string]bool{}
	for _, it := range p.items {
		for dir := parent(it.dst); !it.dir && dir != "" && !needed[dir]; dir = parent(dir) {
			needed[dir] = true
		}
	}
	kept := p.items[:0]
	for _, it := range p.items {
		if !it.dir || needed[it.dst] {
			kept = append(kept, it)
		} else {
			p.budget.files--
		}
	}
	p.items = kept
}

// reasonOf returns the reason why a file could not be opened or read.
func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, beneath.ErrEscape), errors.Is(err, unix.EXDEV):
		return OtherDisk
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EIO), beneath.Leased(err):
		return Unreadable
	case errors.Is(err, unix.ENAMETOOLONG):
		return TooDeep
	}
	return Changed
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func parent(p string) string {
	i := strings.LastIndexByte(p, '/')
	return p[:max(i, 0)]
}

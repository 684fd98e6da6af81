package hostmount

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

// move is one rename into the workspace.
type move struct {
	dir      string // in both trees; "" is the top
	name     string
	replaced bool // the replaced file is in the stage now
}

// placing moves a stage into the workspace and can undo that.
type placing struct {
	stage, dest *os.Root
	moves       []move
}

// moveIn moves everything into the workspace, as entire subtrees if the workspace doesn't have the name. If anything
// fails it undoes all moves.
func moveIn(ctx context.Context, stage, dest *os.Root) error {
	p := &placing{stage: stage, dest: dest}
	err := p.dir(ctx, "")
	if err != nil {
		p.back()
	}
	return writeError(err)
}

func (p *placing) dir(ctx context.Context, dir string) error {
	from, to, err := p.open(dir)
	if err != nil {
		return err
	}
	names, err := from.Readdirnames(-1)
	var below []string
	for _, name := range names {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			break
		}
		var merge bool
		if merge, err = p.name(from, to, dir, name); merge {
			below = append(below, join(dir, name))
		}
	}
	err = errors.Join(err, from.Close(), to.Close())
	for _, next := range below {
		if err != nil {
			break
		}
		err = p.dir(ctx, next)
	}
	return err
}

// open opens a directory in both trees, in the workspace without leaving it.
func (p *placing) open(dir string) (from, to *os.File, err error) {
	if from, err = p.stage.Open(join(".", dir)); err != nil {
		return nil, nil, err
	}
	if to, err = p.dest.OpenFile(join(".", dir), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0); err != nil {
		return nil, nil, errors.Join(err, from.Close())
	}
	return from, to, nil
}

// name moves one name; merge reports that both are directories.
func (p *placing) name(from, to *os.File, dir, name string) (merge bool, err error) {
	err = rename(from, to, name, sys.NoReplace)
	if err == nil {
		p.moves = append(p.moves, move{dir: dir, name: name})
		return false, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return false, err
	}
	ours, there, err := kinds(from, to, name)
	switch {
	case err != nil:
		return false, err
	case ours == unix.S_IFDIR && there == unix.S_IFDIR:
		return true, nil
	case ours == unix.S_IFDIR:
		return false, inTheWay("mounts", "a file of the workspace", "a directory")
	case there == unix.S_IFDIR:
		return false, inTheWay("mounts", "a directory of the workspace", "a file")
	}
	if err := rename(from, to, name, sys.Exchange); err != nil {
		return false, err
	}
	p.moves = append(p.moves, move{dir: dir, name: name, replaced: true})
	return false, nil
}

func kinds(from, to *os.File, name string) (ours, there uint32, err error) {
	var a, b unix.Stat_t
	err = errors.Join(
		unix.Fstatat(int(from.Fd()), name, &a, unix.AT_SYMLINK_NOFOLLOW),
		unix.Fstatat(int(to.Fd()), name, &b, unix.AT_SYMLINK_NOFOLLOW),
	)
	return uint32(a.Mode) & unix.S_IFMT, uint32(b.Mode) & unix.S_IFMT, err
}

func rename(from, to *os.File, name string, flags uint) error {
	return sys.Rename(int(from.Fd()), name, int(to.Fd()), name, flags)
}

// back undoes the moves, the last first.
func (p *placing) back() {
	for _, m := range slices.Backward(p.moves) {
		from, to, err := p.open(m.dir)
		if err != nil {
			continue
		}
		flags := uint(sys.NoReplace)
		if m.replaced {
			flags = sys.Exchange
		}
		_ = rename(to, from, m.name, flags)
		_ = from.Close()
		_ = to.Close()
	}
}

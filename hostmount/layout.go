package hostmount

import (
	"slices"

	"github.com/wisbox/wisbox/tool"
)

// layout is the combined tree of all mounts.
type layout struct {
	dirs  map[string]*item // path to the directory that determines its mode; nil if none does
	files map[string]*item
}

// layOut merges the plans in order.
func layOut(plans []*plan) (*layout, error) {
	l := &layout{dirs: map[string]*item{}, files: map[string]*item{}}
	for _, p := range plans {
		if err := l.addPlan(p); err != nil {
			return nil, err
		}
	}
	for _, it := range l.files {
		if it.first == nil || l.files[it.first.dst] == it.first && it.first.text == "" {
			continue
		}
		it.first = nil // a later mount replaces it, or its copy has another content
		if err := it.plan.charge(it.size); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *layout) addPlan(p *plan) error {
	for _, it := range p.items {
		if err := l.add(it); err != nil {
			return err
		}
	}
	for _, part := range p.parts {
		if err := l.addPlan(part); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) add(it *item) error {
	for dir := parent(it.dst); dir != ""; dir = parent(dir) {
		if _, ok := l.files[dir]; ok {
			return inTheWay(it.plan.at, "a file of an earlier mount", "a directory")
		}
		if _, ok := l.dirs[dir]; ok {
			break // and so are its parents
		}
		l.dirs[dir] = nil
	}
	_, isFile := l.files[it.dst]
	_, isDir := l.dirs[it.dst]
	switch {
	case it.dir && isFile:
		return inTheWay(it.plan.at, "a file of an earlier mount", "a directory")
	case !it.dir && isDir:
		return inTheWay(it.plan.at, "a directory of an earlier mount", "a file")
	case it.dir:
		l.dirs[it.dst] = it
	default:
		l.files[it.dst] = it
	}
	return nil
}

func inTheWay(at, there, wanted string) error {
	return tool.Errorf(tool.Exists, "%s is in the place of %s of the mount; use another mount_path", there, wanted).In(at + ".mount_path")
}

// sortedDirs returns the directories, parents first.
func (l *layout) sortedDirs() []string {
	dirs := make([]string, 0, len(l.dirs))
	for dir := range l.dirs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

// batches groups the files by directory, at most 64 in each, so that a worker opens a directory once for many files.
func (l *layout) batches() [][]*item {
	byDir := map[string][]*item{}
	for dst, it := range l.files {
		if it.first != nil { // it is linked afterwards
			continue
		}
		byDir[parent(dst)] = append(byDir[parent(dst)], it)
	}
	var batches [][]*item
	for _, items := range byDir {
		batches = slices.AppendSeq(batches, slices.Chunk(items, 64))
	}
	return batches
}

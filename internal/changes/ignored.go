package changes

import (
	"bytes"
	"errors"
	"io"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/gitignore"
	"github.com/wisbox/wisbox/snapshot"
)

// ignorer finds the changes that .gitignore files ignore, which are those of a tree: the mounted
// ones, so that programs can't hide a change by writing such a file.
type ignorer struct {
	budget *budget.Budget
	tree   *snapshot.Tree // may be nil
	dirs   map[string]*ignoreDir

	ignored map[string]map[string]bool // paths that rules ignore, by the repository's top
	old     map[string]bool            // of these, the ones that were mounted
}

// ignoreDir is a directory with the rules that apply in it.
type ignoreDir struct {
	path    string
	up      *ignoreDir // nil for the top of a repository
	top     string
	rules   []*gitignore.Rules // the ones that count more come first
	ignored bool               // with everything in it
}

func newIgnorer(b *budget.Budget, tree *snapshot.Tree) *ignorer {
	return &ignorer{budget: b, tree: tree, dirs: map[string]*ignoreDir{}, ignored: map[string]map[string]bool{}, old: map[string]bool{}}
}

// look notes a path that the rules ignore.
func (g *ignorer) look(p pair, all bool) error {
	if g.tree == nil || all {
		return nil
	}
	dir, err := g.dir(parentOf(p.Path))
	if err != nil {
		return err
	}
	ignored, err := dir.ignored, error(nil)
	if !ignored {
		ignored, err = g.match(dir, p.Path, false)
	}
	if ignored {
		const memory = 64
		if err := g.budget.Hold(memory + len(p.Path)); err != nil {
			return err
		}
		if g.ignored[dir.top] == nil {
			g.ignored[dir.top] = map[string]bool{}
		}
		g.ignored[dir.top][p.Path] = true
		if p.Old != nil {
			g.old[p.Path] = true
		}
	}
	return err
}

// leaveOut removes the ignored paths from a set, except for those that git tracks. If the index
// doesn't say what it tracks, it may be all that was mounted.
func (g *ignorer) leaveOut(s *Set) error {
	for top, paths := range g.ignored {
		index, err := g.read(in(top, ".git/index"), maxIndex)
		if err != nil {
			return err
		}
		known := gitignore.ReadIndex(index, func(path []byte) { delete(paths, in(top, string(path))) }) == nil
		g.budget.Release(len(index))
		for path := range paths {
			if !known && g.old[path] {
				delete(paths, path)
			}
		}
	}
	kept := s.pairs[:0]
	for _, p := range s.pairs {
		if dir := g.dirs[parentOf(p.Path)]; dir != nil && g.ignored[dir.top][p.Path] {
			s.diff.Ignored++
			continue
		}
		kept = append(kept, p)
	}
	s.pairs = kept
	return nil
}

func in(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// dir returns a directory, which the new state may have and the tree not.
func (g *ignorer) dir(path string) (*ignoreDir, error) {
	if d := g.dirs[path]; d != nil {
		return d, nil
	}
	const memory = 256
	if err := errors.Join(g.budget.Hold(memory+len(path)), g.budget.Check()); err != nil {
		return nil, err
	}
	d := &ignoreDir{path: path}
	if path != "" {
		up, err := g.dir(parentOf(path))
		if err != nil {
			return nil, err
		}
		if d.up, d.top, d.ignored = up, up.top, up.ignored; !d.ignored {
			if d.ignored, err = g.match(up, path, true); err != nil {
				return nil, err
			}
		}
	}
	names := []string{".gitignore"}
	_, isTop := g.tree.Find(in(path, ".git"))
	switch {
	case isTop: // the rules above belong to another repository
		d.up, d.top, d.ignored = nil, path, false
		names = append(names, ".git/info/exclude")
	case d.up != nil && d.up.ignored: // there may be thousands in node_modules
		g.dirs[path] = d.up
		return d.up, nil
	}
	for _, name := range names {
		text, err := g.read(in(path, name), gitignore.MaxFile)
		if err != nil {
			return nil, err
		}
		if len(text) > 0 { // stays charged, for its rules
			rules := gitignore.Parse(string(text))
			if err := g.budget.Hold(rules.Memory()); err != nil {
				return nil, err
			}
			d.rules = append(d.rules, rules)
		}
	}
	g.dirs[path] = d
	return d, nil
}

// match reports whether the rules of a directory and those above it ignore a path in it.
func (g *ignorer) match(d *ignoreDir, path string, isDir bool) (bool, error) {
	for ; d != nil; d = d.up {
		rel := path
		if d.path != "" {
			rel = path[len(d.path)+1:]
		}
		for _, rules := range d.rules {
			if err := g.budget.Step(rules.Len()); err != nil {
				return false, err
			}
			if ignored, known := rules.Match(rel, isDir); known {
				return ignored, nil
			}
		}
	}
	return false, nil
}

const maxIndex = 16 << 20 // bytes

// read returns a file of the tree, and charges its memory; nil if it isn't a file of at most that
// many bytes.
func (g *ignorer) read(path string, most int64) ([]byte, error) {
	e, _ := g.tree.Find(path)
	if e == nil || e.Link || e.Size > most {
		return nil, nil
	}
	if err := g.budget.Hold(int(e.Size)); err != nil {
		return nil, err
	}
	r, err := g.tree.Open(g.budget.Context(), e)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = io.Copy(&out, r)
	return out.Bytes(), errors.Join(err, r.Close())
}

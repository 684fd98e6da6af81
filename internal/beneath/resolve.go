package beneath

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxLinks = 40    // like the kernel's own MAXSYMLINKS
	maxSteps = 1_000 // path elements in one resolution, including those of links
	maxTries = 16    // restarts after the tree changes during a resolution
)

// resolution walks a path element by element and replaces each link by its text. It works on names
// only and holds nothing open. Its result is then opened without following links, so a wrong result
// can't lead outside.
type resolution struct {
	tree  *Tree
	done  []string // elements known not to be links
	todo  []string
	own   int // elements of todo that come from the caller's path, not from a link
	links int
}

// resolve returns the true path of rel. If part of it doesn't exist, missing has the elements of
// rel to create below path; a missing element that only a link's text names is ENOENT.
func (t *Tree) resolve(rel string) (path string, missing []string, err error) {
	r := &resolution{tree: t, todo: split(rel)}
	r.own = len(r.todo)
	for steps := 0; len(r.todo) > 0; steps++ {
		if steps == maxSteps {
			return "", nil, unix.ELOOP
		}
		gone, err := r.step()
		if err != nil {
			return "", nil, err
		}
		if gone {
			return r.dangling()
		}
	}
	return strings.Join(r.done, "/"), nil, nil
}

func (r *resolution) dangling() (string, []string, error) {
	if len(r.todo) > r.own {
		return "", nil, unix.ENOENT
	}
	return strings.Join(r.done, "/"), r.todo, nil
}

// step takes the next element; gone reports that it doesn't exist.
func (r *resolution) step() (gone bool, err error) {
	name := r.todo[0]
	switch name {
	case "", ".":
		r.advance()
		return false, nil
	case "..":
		return false, r.up()
	}
	text, link, err := r.tree.readlink(join(strings.Join(r.done, "/"), name))
	switch {
	case errors.Is(err, unix.ENOENT):
		return true, nil
	case err != nil:
		return false, err
	case link:
		return false, r.follow(text)
	}
	r.advance()
	r.done = append(r.done, name)
	return false, nil
}

func (r *resolution) advance() {
	r.todo = r.todo[1:]
	r.own = min(r.own, len(r.todo))
}

func (r *resolution) up() error {
	if len(r.done) == 0 {
		return ErrEscape
	}
	r.done = r.done[:len(r.done)-1]
	r.advance()
	return nil
}

func (r *resolution) follow(text string) error {
	if r.links++; r.links > maxLinks {
		return unix.ELOOP
	}
	if strings.HasPrefix(text, "/") {
		inside, ok := r.tree.inside(text)
		if !ok {
			return ErrEscape
		}
		text, r.done = inside, nil
	}
	r.advance()
	r.todo = slices.Concat(split(text), r.todo)
	return nil
}

// inside returns the path within the tree for an absolute link's text.
func (t *Tree) inside(text string) (string, bool) {
	if t.mount == "" {
		return "", false
	}
	rest, ok := strings.CutPrefix(text, t.mount)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimLeft(rest, "/"), true
}

func split(rel string) []string {
	if rel == "" {
		return nil
	}
	return strings.Split(rel, "/")
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

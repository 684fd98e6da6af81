package beneath

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxLinks = 40    // as the kernel's own MAXSYMLINKS
	maxSteps = 1_000 // path elements looked at in one resolution, those of links included
	maxTries = 16    // new starts when the tree changes under a resolution
)

// resolution walks a path element by element and takes each link's text in its
// place. It works on names only and holds nothing open: whatever it finds is
// opened without following links afterwards, so a wrong answer can't leave.
type resolution struct {
	tree  *Tree
	done  []string // elements that are known to be no links
	todo  []string
	own   int // how many of todo stand in the caller's path and not in a link
	links int
}

// resolve gives the true path of rel. Of what does not exist, missing holds the
// elements of rel that are still to be made below path; a missing element that
// only a link's text names is ENOENT.
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

// step takes the next element; gone says that it does not exist.
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

// inside is the path within the tree that an absolute link's text means.
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

package snapshot

import "strings"

// pairs visits the names of two sorted directories together, with nil for an entry that one of
// them lacks.
func pairs(a, b *dir, visit func(a, b *entry) error) error {
	var as, bs []entry
	if a != nil {
		as = a.entries
	}
	if b != nil {
		bs = b.entries
	}
	for len(as) > 0 || len(bs) > 0 {
		order := 0
		switch {
		case len(as) == 0:
			order = 1
		case len(bs) == 0:
			order = -1
		default:
			order = strings.Compare(as[0].name, bs[0].name)
		}
		var x, y *entry
		if order <= 0 {
			x, as = &as[0], as[1:]
		}
		if order >= 0 {
			y, bs = &bs[0], bs[1:]
		}
		if err := visit(x, y); err != nil {
			return err
		}
	}
	return nil
}

// sameContent compares everything except mode and time. Two directories always count as the
// same, whatever their entries.
func sameContent(a, b *entry) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case file:
		return a.size == b.size && a.hash == b.hash && a.list == b.list
	case symlink:
		return a.target == b.target
	}
	return true
}

// sameTree reports whether everything below two directories is the same.
func sameTree(a, b *entry) bool { return a.kind == folder && b.kind == folder && a.hash == b.hash }

// sameMode compares modes and attributes. It leaves out links, which have none, and entries that are
// never stored.
func sameMode(a, b *entry) bool {
	return a.mode == b.mode && a.attrs() == b.attrs() || a.kind == symlink || a.kind == special
}

// missing reports whether an entry is nothing that a snapshot could restore.
func missing(e *entry) bool { return e == nil || e.kind == special }

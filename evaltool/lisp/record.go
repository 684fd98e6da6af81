package lisp

import "slices"

// Definition is a top-level definition as its source, with the package that it
// was read in.
type Definition struct {
	Operator string `json:"operator"` // DEFUN
	Name     string `json:"name"`
	Package  string `json:"package"`
	Source   string `json:"source"`
}

func (d Definition) same(other Definition) bool {
	return d.Operator == other.Operator && d.Name == other.Name && d.Package == other.Package
}

// record is the definitions of a session, the newest of each name, at most
// maxDefinitions bytes: what goes beyond that is not recorded.
type record struct {
	defs  []Definition
	bytes int
}

func (r *record) list() []Definition { return slices.Clone(r.defs) }

func (r *record) add(defs []Definition) {
	for _, d := range defs {
		if i := slices.IndexFunc(r.defs, d.same); i >= 0 {
			r.bytes -= r.defs[i].size()
			r.defs = slices.Delete(r.defs, i, i+1)
		}
		if r.bytes+d.size() <= maxDefinitions {
			r.defs = append(r.defs, d)
			r.bytes += d.size()
		}
	}
}

func (d Definition) size() int { return len(d.Operator) + len(d.Name) + len(d.Package) + len(d.Source) }

package lisp

// WithCore makes l look for its saved core at path.
func (l *Lisp) WithCore(path string) *Lisp {
	l.core = path
	return l
}

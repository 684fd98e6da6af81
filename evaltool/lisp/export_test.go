package lisp

// WithDriver makes l look for its compiled driver at path.
func (l *Lisp) WithDriver(path string) *Lisp {
	l.driver = path
	return l
}

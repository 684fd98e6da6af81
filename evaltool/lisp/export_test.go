package lisp

import "time"

// WithCore sets the path of the saved core.
func (l *Lisp) WithCore(path string) *Lisp {
	l.core = path
	return l
}

// SetTimeout is configure-limits with fractions of a second.
func (l *Lisp) SetTimeout(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits.timeout = d
}

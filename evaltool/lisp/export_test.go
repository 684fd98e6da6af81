package lisp

import "time"

// WithCore makes l look for its saved core at path.
func (l *Lisp) WithCore(path string) *Lisp {
	l.core = path
	return l
}

// SetTimeout is configure-limits with parts of a second.
func (l *Lisp) SetTimeout(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits.timeout = d
}

package lisp_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool/lisp"
)

// recorded returns a session that begins with the definitions of file and records its own there.
func recorded(t *testing.T, file string) *session {
	return newSessionWith(t, lisp.Options{Record: file})
}

func copyFile(t *testing.T, from string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "lisp.json")
	require.NoError(t, os.WriteFile(to, data, 0o600))
	return to
}

func TestSessionsAreApartAndACopiedRecordMakesAClone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lisp.json")
	a := recorded(t, file)
	a.eval(t, "(defun f () 1) (defun f () 2) (defmacro m () '(f)) (defpackage :p (:use :cl)) (defvar *v* 1)")
	a.call(t, "evaluate-lisp", args{"code": "(defun in-p () (cl-user::f))", "package": "p"})
	a.eval(t, "(let ((n 0)) (defun count-up () (incf n))) (setf *v* 2)")
	a.eval(t, "(defgeneric g (x)) (defmethod g ((x integer)) :integer) (defmethod g ((x string)) :string)")
	a.eval(t, "(declaim (special *a*)) (declaim (special *b*)) (defun gone ()) (fmakunbound 'gone) (defstruct (point (:conc-name p-)) x) (defun (setf f) (v) v)")
	a.eval(t, "(defun before-the-error () 7) (error \"the definitions before it stay\")")
	b := newSession(t)
	assert.Equal(t, "=> NIL", b.eval(t, "(fboundp 'f)"))

	copied := copyFile(t, file)
	c := recorded(t, copied)
	text := c.eval(t, "(values (let ((*a* 1) (*b* 2)) (+ (symbol-value (quote *a*)) (symbol-value (quote *b*)) (m) -3)) (p::in-p) *v* (count-up) (g 1) (g \"\") (fboundp 'gone) (p-x (make-point :x 3)) (setf (f) 4) (before-the-error))")
	assert.Regexp(t, "^=> 2\n=> 2\n=> 1\n=> 1\n=> :INTEGER\n=> :STRING\n=> NIL\n=> 3\n=> 4\n=> 7\n; Note: .* 16 recorded definitions were made again", text)
	c.alive(t)
	d := recorded(t, copyFile(t, copied))
	assert.Contains(t, d.eval(t, "(m)"), "=> 2", "a clone of the clone")
}

func TestARecordThatFailsIsSaidAndTheRestIsMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lisp.json")
	a := recorded(t, file)
	a.eval(t, "(defun before ()) (setf *n* 5) (defvar *m* (1+ *n*)) (defun after () :there)")
	text := recorded(t, copyFile(t, file)).eval(t, "(after)")
	assert.Regexp(t, `(?s)^=> :THERE\n; Note: this recorded definition could not be made again: \*M\*\n; Note: .* 2 recorded`, text)
	broken := filepath.Join(t.TempDir(), "lisp.json")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	recorded(t, broken).alive(t)
}

// TestARecordTakesNoLongerThanAnEvaluation: an archive's record is untrusted.
func TestARecordTakesNoLongerThanAnEvaluation(t *testing.T) {
	var defs []map[string]string
	for i := range 41 {
		defs = append(defs, map[string]string{"operator": "DEFUN", "name": fmt.Sprint("F", i), "package": "COMMON-LISP-USER", "source": "(loop)"})
	}
	raw, err := json.Marshal(defs)
	require.NoError(t, err)
	endless := filepath.Join(t.TempDir(), "lisp.json")
	require.NoError(t, os.WriteFile(endless, raw, 0o600))
	s := recorded(t, endless)
	s.call(t, "configure-limits", args{"timeout": 1})
	assert.Contains(t, s.eval(t, "(+ 1 2)"), "; Note: 40 more recorded definitions were not made again")
	s.alive(t)
}

func TestResetAndTheEndOfLispEmptyTheRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lisp.json")
	for _, end := range []func(*session){
		func(s *session) { s.call(t, "reset-session", args{}) },
		func(s *session) { s.eval(t, "(sb-sys:os-exit 9 :abort t)") },
	} {
		s := recorded(t, file)
		s.eval(t, "(defun f ())")
		require.FileExists(t, file)
		end(s)
		require.NoFileExists(t, file)
	}
	s := recorded(t, copyFile(t, recordOf(t, "(defun f ())")))
	s.call(t, "reset-session", args{})
	assert.Equal(t, "=> NIL", s.eval(t, "(fboundp 'f)"), "a reset before the first call counts too")
}

// recordOf returns the file of a session that evaluated code.
func recordOf(t *testing.T, code string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lisp.json")
	recorded(t, file).eval(t, code)
	return file
}

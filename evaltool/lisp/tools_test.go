package lisp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/evaltool/lisp"
	"github.com/wisbox/wisbox/tool"
)

func TestLimitsAreToldSetAndChecked(t *testing.T) {
	s := newSession(t)
	assert.Equal(t, "Current limits:\n  timeout: 30 seconds\n  max-output: 100000 characters", s.call(t, "configure-limits", args{}).Text)
	for _, bad := range []args{{"timeout": -1}, {"timeout": "60"}, {"max-output": -5}, {"timeout": 5, "max-output": -1}, {"timeout": 1.5}} {
		assert.Equal(t, tool.Invalid, s.refused(t, "configure-limits", bad).Kind)
	}
	assert.Equal(t, "max-output is 2000000; it must be at most 1000000", s.refused(t, "configure-limits", args{"max-output": 2000000}).Message)
	assert.Contains(t, s.call(t, "configure-limits", args{}).Text, "timeout: 30 seconds\n  max-output: 100000")
	assert.Contains(t, s.call(t, "configure-limits", args{"timeout": 0}).Text, "WARNING")
	s.alive(t)
}

func TestCompileFormRunsNothing(t *testing.T) {
	s := newSession(t)
	compile := func(code string) *tool.Result { return s.call(t, "compile-form", args{"code": code}) }
	assert.Equal(t, "Compilation successful.\nNo warnings or notes.", compile("(+ 1 2)").Text)
	assert.Contains(t, compile(`(+ 1 "string")`).Text, "Warnings (")
	assert.Contains(t, compile("(lambda (x) 1)").Text, "[STYLE]")
	for _, code := range []string{"(defun broken", "(let ((x)) (setq 3 4))", "(go nowhere)"} {
		res := compile(code)
		assert.True(t, res.Failed, code)
		assert.Regexp(t, `(?s)^Compilation FAILED\..*Errors \(\d+\):`, res.Text, code)
	}
	for _, code := range []string{
		"(defmacro twice (x) `(* 2 ,x)) (twice 4)", "(defvar *v* 1) (list *v*)", "(defun f () (g)) (defun g () 1)",
		"(defstruct point x) (point-x (make-point :x 1))", "(defgeneric area (s)) (area 1)", "(declaim (optimize speed))",
	} {
		assert.Equal(t, "Compilation successful.\nNo warnings or notes.", compile(code).Text, "what forms define is known to those after them: "+code)
	}
	assert.Equal(t, "=> (NIL NIL NIL)", s.eval(t, "(list (macro-function 'twice) (boundp '*v*) (fboundp 'make-point))"))
	assert.NotContains(t, compile("(lambda (x) (declare (optimize speed)) (+ x 1))").Text, "#1", "notes are plain text")
	compile("(setf *ran* 1)")
	assert.Equal(t, "=> NIL", s.eval(t, "(boundp '*ran*)"))
}

func TestTimeExecution(t *testing.T) {
	s := newSession(t)
	text := s.call(t, "time-execution", args{"code": `(princ "x") (+ 1 2)`}).Text
	assert.Regexp(t, `(?s)^Timing:\n  Real time: [\d.]+ ms\n  Run time: [\d.]+ ms\n  GC time: [\d.]+ ms\n  Bytes consed: [\d,]+\n\nResult:\n3\n\nOutput:\n\[stdout\]\nx$`, text)
	assert.True(t, s.call(t, "time-execution", args{"code": "(/ 1 0)"}).Failed)
}

func TestLookingAtLisp(t *testing.T) {
	s := newSession(t)
	assert.Contains(t, s.call(t, "macroexpand-form", args{"form": "(when a b)"}).Text, "(IF A")
	assert.Contains(t, s.call(t, "macroexpand-form", args{"form": "(list (when a b))", "full": true}).Text, "(IF A")
	assert.Contains(t, s.call(t, "describe-symbol", args{"name": "cl:mapcar"}).Text, "MAPCAR")
	assert.Equal(t, tool.NotFound, s.refused(t, "describe-symbol", args{"name": "no-such-symbol"}).Kind)
	assert.Contains(t, s.call(t, "apropos-search", args{"pattern": "mapca", "type": "function"}).Text, "COMMON-LISP:MAPCAR  function")
	assert.Equal(t, "No symbol matches.", s.call(t, "apropos-search", args{"pattern": "no-such-symbol"}).Text)
	assert.Contains(t, s.call(t, "validate-syntax", args{"code": "(a) (b)"}).Text, "valid: 2 form(s)")
	assert.Equal(t, "Syntax is INVALID at line 2, column 5, after 1 form(s).\nEND-OF-FILE: end of file: the form that begins at line 2, column 3 is not closed",
		s.call(t, "validate-syntax", args{"code": "(a)\n  (b\n"}).Text)
	assert.Equal(t, tool.Invalid, s.refused(t, "macroexpand-form", args{"form": "(a) (b)"}).Kind)
	assert.Equal(t, tool.Invalid, s.refused(t, "macroexpand-form", args{"form": ""}).Kind)
	assert.Equal(t, "(+ 1 2)", s.call(t, "macroexpand-form", args{"form": "(+ 1 2)"}).Text, "no macro")
	assert.Equal(t, tool.NotFound, s.refused(t, "describe-symbol", args{"name": ""}).Kind)
	s.eval(t, "(defvar *unbound*) (defun none ())")
	assert.Contains(t, s.call(t, "describe-symbol", args{"name": "*unbound*"}).Text, "unbound")
	assert.Equal(t, "COMMON-LISP-USER::*UNBOUND*  variable\nCOMMON-LISP-USER::NONE  function  ()", s.call(t, "list-definitions", args{}).Text)
}

func TestResetForgetsAllThatWasDefined(t *testing.T) {
	s := newSession(t)
	assert.Equal(t, "No definitions.", s.call(t, "list-definitions", args{}).Text)
	s.eval(t, `(defun f (x) x) (defvar *v* 1) (defclass c () ()) (defpackage :p) (defmacro m () 1) (defgeneric g (x)) (defstruct st a)
		(defmethod print-object ((c c) o) (princ "mine" o)) (defun (setf f) (v) v) (define-symbol-macro sm 1) (deftype ty () 'fixnum)
		(define-compiler-macro f (x) x) (setf (get 'cl-user::pl 'a) 1) (in-package :p)`)
	text := s.call(t, "list-definitions", args{}).Text
	for _, line := range []string{"COMMON-LISP-USER::F  function  (X)", "COMMON-LISP-USER::*V*  variable", "COMMON-LISP-USER::C  class", "P  package"} {
		assert.Contains(t, text, line)
	}
	s.call(t, "reset-session", args{})
	assert.Equal(t, "No definitions.", s.call(t, "list-definitions", args{}).Text)
	assert.Equal(t, "=> (\"COMMON-LISP-USER\" NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL)", lastLine(s.eval(t, `(list (package-name *package*)
		(fboundp 'f) (boundp '*v*) (find-class 'c nil) (find-package "P") (macro-function 'm) (fboundp 'g) (find-class 'st nil) (fboundp '(setf f))
		(nth-value 1 (macroexpand 'sm)) (ignore-errors (typep 1 'ty)) (compiler-macro-function 'f) (get 'pl 'a))`)))
}

func TestTheLastErrorIsKept(t *testing.T) {
	s := newSession(t)
	assert.Contains(t, s.call(t, "describe-last-error", args{}).Text, "No error")
	assert.Contains(t, s.call(t, "get-backtrace", args{}).Text, "No error")
	s.eval(t, `(error "remember me")`)
	assert.Contains(t, s.call(t, "describe-last-error", args{}).Text, "remember me")
	assert.Contains(t, s.call(t, "get-backtrace", args{}).Text, "0: ")
}

func TestTheSourceIsLoadedWhereTheCoreIsAnotherSBCLs(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "foreign.core")
	require.NoError(t, os.WriteFile(foreign, []byte("of another SBCL"), 0o600))
	s := newSession(t)
	s.WithCore(foreign)
	assert.Equal(t, "=> 3", s.eval(t, "(+ 1 2)"))
	assert.Contains(t, s.eval(t, "(read-line sb-sys:*stdin*)"), "END-OF-FILE")
}

func TestToolsOfANilLispCanBeListed(t *testing.T) {
	var l *lisp.Lisp
	assert.Len(t, l.Tools(), 12)
}

// forms generates texts of readable objects.
func forms() *rapid.Generator[string] {
	atom := rapid.OneOf(
		rapid.Map(rapid.Int64(), func(i int64) string { return fmt.Sprint(i) }),
		rapid.Map(rapid.StringMatching(`[A-Z][A-Z0-9]{0,8}`), func(s string) string { return ":" + s }),
		rapid.Map(rapid.String(), func(s string) string {
			return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
		}),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) string { return fmt.Sprintf("%.6fd0", f) }),
		rapid.Map(rapid.Int32Range(1, 1000), func(i int32) string { return fmt.Sprintf("7/%d", i) }),
	)
	list := rapid.Map(rapid.SliceOfN(atom, 0, 6), func(items []string) string { return "(" + strings.Join(items, " ") + ")" })
	vector := rapid.Map(rapid.SliceOfN(rapid.OneOf(atom, list), 0, 6), func(items []string) string { return "#(" + strings.Join(items, " ") + ")" })
	return rapid.OneOf(atom, list, vector)
}

func TestWhatIsPrintedReadsBackEqual(t *testing.T) {
	s := newSession(t)
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.SliceOfN(forms(), 100, 100).Draw(rt, "forms") // 100 forms of 100 checks are 10,000
		e := s.evalFull(t, "(values-list '("+strings.Join(texts, "\n")+"))")
		require.Equal(rt, lisp.StatusOK, e.Status)
		require.Len(rt, e.Values, len(texts))
		again := s.evalFull(t, "(loop for a in '("+strings.Join(texts, "\n")+") for b in '("+strings.Join(e.Values, "\n")+") count (not (equalp a b)))")
		require.Equal(rt, []string{"0"}, again.Values)
	})
}

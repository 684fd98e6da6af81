package lisp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheTextHasThePartsInOrder(t *testing.T) {
	s := newSession(t)
	for _, c := range []struct{ name, code, text string }{
		{"one value", "(+ 1 2 3)", "=> 6"},
		{"several values", "(floor 7 2)", "=> 3\n=> 1"},
		{"no values", "(values)", "; No values"},
		{"empty", "", "; No values"},
		{"comment", "; only a comment", "; No values"},
		{"the last form", "1 2 3", "=> 3"},
		{"readable", `(list 'foo :ok "s" #\a 1.5 2/3)`, `=> (FOO :OK "s" #\a 1.5 2/3)`},
		{"print", "(print 1)(print 2)", "[stdout]\n1 \n2\n\n=> 2"},
		{"no newline is added", `(princ "a") 1`, "[stdout]\na\n\n=> 1"},
		{"streams", `(princ "o") (princ "e" *error-output*) (princ "t" *trace-output*) (warn "w ~a" 1) :v`,
			"[stdout]\no\n\n[stderr]\net\n\n[warnings]\nSIMPLE-WARNING: w 1\n\n=> :V"},
		{"one newline ends a section", `(format t "HELLO~%") 3`, "[stdout]\nHELLO\n\n=> 3"},
		{"blank lines at the end", `(format t "HELLO~%~%  ~%") 3`, "[stdout]\nHELLO\n\n=> 3"},
		{"blank lines at the start, not the indentation", `(format t "~%  ~%  HELLO") 3`, "[stdout]\n  HELLO\n\n=> 3"},
		{"blank lines within", `(format t "a~%~%b") 3`, "[stdout]\na\n\nb\n\n=> 3"},
		{"nothing but blanks", "(terpri) 3", "=> 3"},
		{"print in a form", "(progn (print 'hello) (+ 1 2))", "[stdout]\nHELLO\n\n=> 3"},
		{"warnings end so too", `(warn "w~%") 3`, "[warnings]\nSIMPLE-WARNING: w\n\n=> 3"},
		{"a style warning", `(define-condition s (style-warning) () (:report "mine")) (warn 's) 1`, "[warnings]\nSTYLE-WARNING: mine\n\n=> 1"},
		{"questions are not shown", `(format *query-io* "sure?") (format *debug-io* "trace") 1`, "=> 1"},
		{"an error that SIGNAL alone signals", "(signal 'error) 1",
			"[warnings]\nERROR: Condition ERROR was signalled. (it was signalled and no handler took it; the code went on)\n\n=> 1"},
		{"one that has a text", `(signal (make-condition 'simple-error :format-control "lost ~a" :format-arguments '(7)))`,
			"[warnings]\nSIMPLE-ERROR: lost 7 (it was signalled and no handler took it; the code went on)\n\n=> NIL"},
		{"one that is handled", "(handler-case (signal 'error) (error () :handled))", "=> :HANDLED"},
		{"one that a handler declines", "(handler-bind ((error (lambda (c) c))) (signal 'simple-error :format-control \"x\")) 1",
			"[warnings]\nSIMPLE-ERROR: x (it was signalled and no handler took it; the code went on)\n\n=> 1"},
		{"a condition other than an error", "(signal 'condition) 1", "=> 1"},
		{"fresh-line begins at a line's begin", `(format t "~&a~&b")`, "[stdout]\na\nb\n\n=> NIL"},
		{"circular", "(let ((x (list 1 2 3))) (setf (cdr (last x)) x) x)", "=> #1=(1 2 3 . #1#)"},
		{"shared", "(let ((x (list 1))) (list x x))", "=> (#1=(1) #1#)"},
		{"deep", "(let ((x nil)) (dotimes (i 20) (setf x (list x))) x)", "=> ((((((((((#))))))))))"},
		{"unicode", `(format t "~a" "café") (char-code (char "é" 0))`, "[stdout]\ncafé\n\n=> 233"},
		{"outside of the BMP", `(string (code-char #x1F600))`, "=> \"\U0001F600\""},
		{"quotes and backslashes", `"a\"b\\c"`, `=> "a\"b\\c"`},
		{"printer variables of the user", "(let ((*print-base* 2)) 5) (setf *print-base* 2) 5", "=> 5"},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.text, s.eval(t, c.code)) })
	}
}

func TestLongListsAreCutByThePrinter(t *testing.T) {
	s := newSession(t)
	text := s.eval(t, "(loop for i below 1000 collect i)")
	assert.Contains(t, text, "99 ...)")
	assert.NotContains(t, text, "100")
}

func TestAnErrorTellsTypeMessageAndStack(t *testing.T) {
	s := newSession(t)
	s.eval(t, "(defun inner (x) (list (/ 1 x)))")
	s.eval(t, "(defun outer (x) (list (inner x)))")
	for _, c := range []struct{ code, kind, says string }{
		{"(/ 1 0)", "DIVISION-BY-ZERO", ""},
		{"no-such-variable", "UNBOUND-VARIABLE", "NO-SUCH-VARIABLE"},
		{"(no-such-function)", "UNDEFINED-FUNCTION", "NO-SUCH-FUNCTION"},
		{`(error "oops ~a" 7)`, "SIMPLE-ERROR", "oops 7"},
		{"(define-condition mine (error) ()) (error 'mine)", "MINE", ""},
		{"(signal 'serious-condition) (error 'serious-condition)", "SERIOUS-CONDITION", ""},
		{"(outer 0)", "DIVISION-BY-ZERO", "0: (INNER 0)"},
		{"(+ 1 2", "END-OF-FILE", "the form that begins at line 1, column 1 is not closed"},
		{"(a) ; (\n\n  (b\n (c)", "END-OF-FILE", "the form that begins at line 3, column 3 is not closed"},
		{"(princ 1)\n(+ 1 2))", "READER-ERROR", "unmatched close parenthesis (at line 2, column 8)"},
		{`(print #\nosuch)`, "READER-ERROR", `unrecognized character name: "nosuch" (at line 1`},
		{`(open "/nowhere/at/all")`, "FILE-DOES-NOT-EXIST", "/nowhere/at/all"},
		{"(error \"outer: ~a\" (nth-value 1 (ignore-errors (error \"inner\"))))", "SIMPLE-ERROR", "outer: inner"},
		{"#.(+ 1 2)", "READER-ERROR", "*READ-EVAL*"},
		{"nosuchpackage:x", "PACKAGE", "NOSUCHPACKAGE"},
		{"(throw 'nowhere 1)", "CONTROL-ERROR", "NOWHERE"},
		{"(break)", "SIMPLE-CONDITION", ""},
		{"(abort)", "ABORT", ""},
		{"(read)", "END-OF-FILE", ""},
		{"(y-or-n-p)", "END-OF-FILE", ""},
		{"(read-line *debug-io*)", "END-OF-FILE", ""},
		{"(read-char *terminal-io*)", "END-OF-FILE", ""},
	} {
		res := s.call(t, "evaluate-lisp", args{"code": c.code})
		assert.True(t, res.Failed, c.code)
		assert.Regexp(t, `(?s)^(\[(?:warnings|stdout)\].*)?\[ERROR\] [A-Z-]*`+c.kind+`[A-Z-]*\n`, res.Text, c.code)
		assert.Contains(t, res.Text, c.says, c.code)
		assert.NotContains(t, res.Text, "WISBOX.DRIVER", c.code)
	}
	assert.Contains(t, s.eval(t, "(outer 0)"), join("[Backtrace]", "0: (INNER 0)", "1: (OUTER 0)"))
	s.alive(t)
}

func TestOutputAndWarningsBeforeAnErrorStay(t *testing.T) {
	s := newSession(t)
	text := s.eval(t, `(princ "before") (warn "careful") (error "x")`)
	assert.Regexp(t, `^\[stdout\]\nbefore\n\n\[warnings\]\nSIMPLE-WARNING: careful\n\n\[ERROR\] SIMPLE-ERROR\nx\n\n\[Backtrace\]\n0: `, text)
}

func TestAReaderErrorMeansThatNothingRan(t *testing.T) {
	s := newSession(t)
	assert.Contains(t, s.eval(t, "(defvar *ran* 1) (foo"), "[ERROR]")
	assert.Equal(t, "=> NIL", s.eval(t, "(boundp '*ran*)"))
}

func TestDefinitionsAndPackageStay(t *testing.T) {
	s := newSession(t)
	assert.Equal(t, "=> SQUARE", s.eval(t, "(defun square (x) (* x x))"))
	assert.Equal(t, "=> 25", s.eval(t, "(square 5)"))
	s.eval(t, "(defpackage :p (:use :cl))")
	s.eval(t, "(in-package :p)")
	assert.Equal(t, `=> "P"`, s.eval(t, "(package-name *package*)"))
	assert.Equal(t, `=> "COMMON-LISP-USER"`, s.call(t, "evaluate-lisp", args{"code": "(package-name *package*)", "package": "cl-user"}).Text)
	assert.Equal(t, `=> "P"`, s.eval(t, "(package-name *package*)"), "for one call only")
	s.call(t, "evaluate-lisp", args{"code": "(in-package :cl)", "package": "cl-user"})
	assert.Equal(t, `=> "P"`, s.eval(t, "(package-name *package*)"))
	err := s.refused(t, "evaluate-lisp", args{"code": "1", "package": "nowhere"})
	assert.Equal(t, "not_found", string(err.Kind))
	assert.Contains(t, err.Message, "nowhere")
	s.eval(t, "(in-package :cl-user)")
	s.eval(t, "(in-package :p) (defun in-p ())")
	assert.Equal(t, "=> P::IN-P\n=> :INTERNAL", s.call(t, "evaluate-lisp", args{"code": `(find-symbol "IN-P" :p)`, "package": "cl-user"}).Text, "in-package holds for the forms after it")
	assert.Equal(t, "=> Q::G", s.call(t, "evaluate-lisp", args{"code": "(defpackage :q (:use :cl)) (in-package :q) (defun g ()) (in-package :cl-user) (find-symbol \"G\" :q)"}).Text[:7],
		"in a package that the same call made too")
	s.eval(t, "(in-package :p)")
	s.eval(t, "(delete-package *package*)")
	s.alive(t)
}

func TestTimingIsShownWhenAsked(t *testing.T) {
	s := newSession(t)
	text := s.call(t, "evaluate-lisp", args{"code": "(sleep 0.01) 42", "capture-time": true}).Text
	assert.Regexp(t, `^=> 42\n; Timing: \d+ms real, \d+ms run, \d+ms GC, [\d,]+ bytes consed$`, text)
	assert.NotContains(t, s.eval(t, "42"), "Timing")
}

func TestMuffledAndCompilerWarnings(t *testing.T) {
	s := newSession(t)
	assert.Equal(t, "=> 1", s.eval(t, `(handler-bind ((warning #'muffle-warning)) (warn "x") 1)`))
	assert.Contains(t, s.eval(t, "(defun f (x) 1)"), "[warnings]\nSTYLE-WARNING: The variable X is defined but never used.\n\n=> F")
	assert.Equal(t, "=> B", s.eval(t, "(defun a () (b)) (defun b () 1)"), "one unit")
	assert.Contains(t, s.eval(t, "(defun c () (undefined-one))"), "UNDEFINED-ONE")
	assert.Equal(t, "=> 30", lastLine(s.eval(t, "(setf wb-x 10) (setf wb-y 20) (+ wb-x wb-y)")))
}

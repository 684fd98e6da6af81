package lisp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool/lisp"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// keeps checks that a session answers and still has its definitions.
func (s *session) keeps(t *testing.T, why string) {
	t.Helper()
	assert.Equal(t, "=> :KEPT", lastLine(s.eval(t, "(kept)")), why)
}

func TestATimeoutKeepsOutputWarningsAndDefinitions(t *testing.T) {
	s := newSession(t)
	s.eval(t, "(defun kept () :kept)")
	s.SetTimeout(100 * time.Millisecond)
	for _, code := range []string{
		"(loop)", "(sleep 60)", "(loop (print 1))", "(loop (cons 1 2))", "(labels ((f () (f))) (f))",
		"(handler-case (loop) (error () 1) (condition () 2))",
		"(ignore-errors (loop))", "(loop (ignore-errors (loop)))",
		"(unwind-protect (loop) (loop))",
		"(sb-sys:with-interrupts (loop))",
		"(let ((m (sb-thread:make-mutex))) (sb-thread:join-thread (sb-thread:make-thread (lambda () (loop)))))",
		`(sb-ext:run-program "/bin/sleep" '("60"))`,
		"(defmacro forever () (loop)) (forever)",
		"(read-from-string (make-string-output-stream))", // an error, not the end of Lisp
	} {
		e := s.evalFull(t, `(princ "hello") (terpri) (warn "w") `+code)
		assert.Contains(t, e.Stdout, "hello", code)
		if e.Status != lisp.StatusError {
			assert.Equal(t, lisp.StatusTimedOut, e.Status, code)
			assert.Equal(t, "w", e.Warnings[0].Message, code)
			assert.Contains(t, e.Text(), "[TIMEOUT] Evaluation exceeded 1 second(s)\n")
			assert.Contains(t, e.Text(), "configure-limits")
		}
		s.keeps(t, code)
	}
}

func TestWhatCanNotBeInterruptedIsEndedInTime(t *testing.T) {
	s := newSession(t)
	s.SetTimeout(100 * time.Millisecond)
	for _, code := range []string{
		"(sb-sys:without-interrupts (loop))",
		"(sb-sys:enable-interrupt sb-unix:sigint :ignore) (loop)",
		"(finish-output) (in-package :wisbox.driver) (defun answer (x) x)", // a package's lock doesn't apply inside it
	} {
		e := s.evalFull(t, `(princ "hello") (terpri) `+code)
		assert.Equal(t, lisp.StatusEnded, e.Status, code)
		assert.Equal(t, "hello\n", e.Stdout)
		assert.Contains(t, e.Text(), "[TIMEOUT]")
		assert.Contains(t, e.Text(), "lost")
		assert.Contains(t, s.eval(t, "(+ 1 2)"), "definitions are lost")
		s.alive(t)
	}
}

func TestSeriousConditionsAreCaught(t *testing.T) {
	s := newSession(t)
	s.limits(t, args{"max-output": 500}) // less than the runtime's output for a full heap
	s.eval(t, "(defun kept () :kept)")
	for _, c := range []struct{ code, kind string }{
		{"(labels ((f (x) (1+ (f x)))) (f 1))", "EXHAUSTED"},
		{"(make-array 10000000000)", "HEAP-EXHAUSTED"},
		{"(make-string 1000000000)", "HEAP-EXHAUSTED"},
		{"(defstruct s) (defmethod print-object ((s s) o) (list (print-object s o))) (make-s)", "EXHAUSTED"},
		{"(defclass c () ()) (defmethod print-object ((c c) o) (error \"no print\")) (make-instance 'c)", "SIMPLE-ERROR"},
		{"(define-condition bad (error) () (:report (lambda (c o) (error \"in report\")))) (error 'bad)", "BAD"},
	} {
		e := s.evalFull(t, c.code)
		require.NotNil(t, e.Error, c.code)
		assert.Contains(t, e.Error.Type, c.kind, c.code)
		assert.Empty(t, e.Notes, c.code)
		assert.Empty(t, e.Stderr, "what the runtime says of it is no output of the code: "+c.code)
		s.keeps(t, c.code)
	}
}

func TestConsingUntilTheHeapIsFull(t *testing.T) {
	s := newSessionWith(t, lisp.Options{Memory: 256 << 20})
	for _, code := range []string{
		"(let ((x nil)) (loop (push (make-array 1000) x)))",
		"(let ((x nil)) (loop (push 1 x)))",
		"(let ((x (list 1))) (loop (setf x (append x x))))",
		"(defvar *all* nil) (loop (push (make-string 100) *all*))",
	} {
		e := s.evalFull(t, code)
		require.NotNil(t, e.Error, code)
		assert.Equal(t, "HEAP-EXHAUSTED-ERROR", e.Error.Type, code+e.Stderr)
		assert.Equal(t, "=> 3", lastLine(strings.Split(s.eval(t, "(setf *all* nil) (+ 1 2)"), "\n;")[0]), code)
		s.alive(t)
	}
	assert.Equal(t, "=> :CAUGHT", s.eval(t, "(handler-case (let ((x nil)) (loop (push 1 x))) (error () :error) (storage-condition () :caught))"))
	for _, code := range []string{"(ignore-errors (let ((x nil)) (loop (push 1 x))))", "(handler-case (let ((x nil)) (loop (push 1 x))) (error () :error))"} {
		e := s.evalFull(t, code)
		require.NotNil(t, e.Error, "a full heap is not an error: "+code)
		assert.Equal(t, "HEAP-EXHAUSTED-ERROR", e.Error.Type, code)
	}
	assert.Equal(t, "=> :TIMEOUT", s.eval(t, "(handler-case (sb-ext:with-timeout 0.05 (loop)) (error () :error) (sb-ext:timeout () :timeout))"))
	assert.Equal(t, "=> 10000000", s.eval(t, "(length (make-array 10000000 :element-type '(unsigned-byte 8)))"), "what fits is not an error")
	s.eval(t, "(sb-thread:join-thread (sb-thread:make-thread (lambda () (let ((x nil)) (loop (push 1 x))))))")
	s.alive(t)
}

func TestNothingEndsTheSession(t *testing.T) {
	s := newSession(t)
	s.eval(t, "(defun kept () :kept)")
	for _, code := range []string{
		"(sb-ext:exit)", "(sb-ext:exit :code 3 :abort t)", "(sb-ext:quit)", "(exit)",
		"(sb-thread:terminate-thread sb-thread:*current-thread*)",
		"(mapc #'sb-thread:terminate-thread (sb-thread:list-all-threads))",
		"(sb-thread:abort-thread)", "(sb-thread:abort-thread :allow-exit t)",
		"(sb-thread:make-thread (lambda () (sb-ext:exit :code 1)))",
		"(sb-thread:join-thread (sb-thread:make-thread (lambda () (error \"in a thread\"))))",
		"(sb-thread:make-thread (lambda () (print :from-a-thread)))",
		"(sb-thread:make-thread (let ((main sb-thread:*current-thread*)) (lambda () (sleep 0.05) (sb-thread:terminate-thread main))))",
		"(sleep 0.1)",
		"(defun car (x) x)", "(defun wisbox.driver::answer (x) x)", "(setf wisbox.driver::*limit* 1)",
		"(setf *standard-output* nil)", "(setf *error-output* 1)", "(close *standard-output*)", "(setf *package* 7)",
		"(setf *readtable* (copy-readtable nil))",
		"(setf *print-pretty* 1 *read-base* 36)", "(setf *debugger-hook* (lambda (c h) (loop)))",
		"(setf sb-ext:*invoke-debugger-hook* nil) (error \"x\")",
		"(invoke-debugger (make-condition 'simple-error :format-control \"x\"))",
		"(sb-ext:disable-debugger) (error \"x\")",
		"(sb-ext:enable-debugger) (error \"x\")",
		`(sb-ext:run-program "/bin/sh" '("-c" "echo out; echo err >&2; cat") :output t :error t :input t)`,
		"(sb-alien:alien-funcall (sb-alien:extern-alien \"puts\" (function sb-alien:int sb-alien:c-string)) \"foreign\")",
		"(sb-alien:alien-funcall (sb-alien:extern-alien \"write\" (function sb-alien:int sb-alien:int sb-alien:c-string sb-alien:int)) 1 \"foreign\" 7)",
		"(throw 'wisbox.driver::idle nil)",
		"(go nowhere)", "(return 1)", "(declare)", "(let ((x)) (setq 3 4))", "(1 2 3)", "(funcall 1)",
		"(rename-package :cl-user :other)", "(rename-package :other :cl-user)",
		"(in-package :cl) (defun car (x) x) (defun list (&rest x) 1) (in-package :cl-user)",
		"(sb-ext:gc :full t)", "(proclaim '(optimize (safety 0) (debug 0)))",
	} {
		raw := s.eval(t, code)
		s.keeps(t, code+"\n"+raw)
	}
}

func TestOutputPastLispsStreamsIsOutput(t *testing.T) {
	s := newSession(t)
	for _, code := range []string{
		`(sb-ext:run-program "/bin/echo" '("said") :output t)`,
		`(sb-alien:alien-funcall (sb-alien:extern-alien "puts" (function sb-alien:int sb-alien:c-string)) "said")`,
		`(sb-alien:alien-funcall (sb-alien:extern-alien "write" (function sb-alien:int sb-alien:int sb-alien:c-string sb-alien:int)) 1 "said" 4)`,
		`(sb-thread:join-thread (sb-thread:make-thread (lambda () (princ "said"))))`,
	} {
		assert.Equal(t, "said", strings.TrimSpace(s.evalFull(t, code).Stdout), code)
		assert.Empty(t, s.evalFull(t, "1").Stdout, code)
	}
}

func TestADeadLispIsSaidAndStartedAgain(t *testing.T) {
	s := newSession(t)
	for _, code := range []string{
		"(sb-sys:os-exit 9 :abort t)",
		`(sb-ext:run-program "/bin/sh" (list "-c" (format nil "kill -9 ~d" (sb-unix:unix-getpid))))`,
		"(sb-unix:unix-close 3) (sb-unix:unix-close 4)",
		"(let ((s (sb-sys:make-fd-stream 4 :output t :element-type '(unsigned-byte 8)))) (dotimes (i 8) (write-byte 255 s)) (finish-output s)) (loop)",
	} {
		s.eval(t, "(defvar *here* 1)")
		e := s.evalFull(t, `(princ "begun") (terpri) `+code)
		assert.Equal(t, lisp.StatusEnded, e.Status, code)
		assert.Equal(t, "begun\n", e.Stdout, code)
		assert.Regexp(t, `(?s)^\[stdout\]\nbegun\n\n\[ERROR\] LISP-ENDED\n.*lost`, e.Text())
		assert.Regexp(t, `^=> NIL\n; Note: .*lost`, s.eval(t, "(boundp '*here*)"), code)
		s.alive(t)
	}
}

func TestOutputOverTheLimitIsCut(t *testing.T) {
	s := newSession(t)
	s.limits(t, args{"max-output": 100})
	text := s.eval(t, `(dotimes (i 1000) (princ "x")) :end`)
	assert.Equal(t, join("[stdout]", strings.Repeat("x", 100), "[output cut: 100 of 1,000 characters shown; configure-limits changes max-output]", "", "=> :END"), text)
	e := s.evalFull(t, `(make-string 5000 :initial-element #\é)`)
	assert.Contains(t, e.Values[0], "100 of 5,002")
	e = s.evalFull(t, `(sb-ext:run-program "/bin/sh" '("-c" "yes | head -c 1000000; yes é | head -c 3000 >&2") :output t :error t) 1`)
	if len(e.Stdout) > 0 {
		assert.Len(t, e.Stdout, 100)
	}
	e = s.evalFull(t, `(error (make-string 10000000 :initial-element #\x))`)
	assert.Equal(t, strings.Repeat("x", 100)+"… [9,999,900 more characters]", e.Error.Message)
	s.alive(t)
}

func TestAForkedChildIsNotHeard(t *testing.T) {
	s := newSession(t)
	s.eval(t, "(require :sb-posix)")
	e := s.evalFull(t, `(let ((pid (sb-posix:fork))) (unless (zerop pid) (sb-posix:waitpid pid 0)) (princ "one each ") (zerop pid))`)
	assert.Equal(t, []string{"NIL"}, e.Values)
	assert.Equal(t, "one each one each ", e.Stdout)
	s.alive(t)
}

func TestMoreThanAnybodyReadsIsCut(t *testing.T) {
	s := newSession(t)
	text := s.eval(t, "(values-list (loop for i below 20000 collect i))")
	assert.Contains(t, text, "=> 999\n; 19,000 more values are not shown")
	s.eval(t, `(dotimes (i 1200) (make-package (format nil "P~d" i)))`)
	assert.Len(t, s.call(t, "list-definitions", args{}).Value.(lisp.Listing).Packages, 1000)
	assert.Equal(t, lisp.StatusOK, s.evalFull(t, strings.Repeat("(defvar v)", 9000)).Status)
	for _, code := range []string{
		strings.Repeat("(", 90_000), strings.Repeat("'", 90_000) + "a", strings.Repeat("#(", 40_000), strings.Repeat("(1+ ", 10_000) + "1" + strings.Repeat(")", 10_000),
		strings.Repeat("(let () ", 10_000) + "1" + strings.Repeat(")", 10_000), strings.Repeat("\"x\" ", 20_000), strings.Repeat("a", 99_999),
	} {
		e := s.evalFull(t, code)
		assert.NotEqual(t, lisp.StatusEnded, e.Status, code[:10]+e.Stderr)
		s.alive(t)
	}
}

func TestACancelledCallKeepsDefinitions(t *testing.T) {
	s := newSession(t)
	s.eval(t, "(defun kept () :kept)")
	begun := filepath.Join(t.TempDir(), "begun")
	code := fmt.Sprintf(`(progn (with-open-file (s %q :direction :output)) (loop))`, begun)
	raw, err := json.Marshal(map[string]string{"code": code})
	require.NoError(t, err)
	res, err := s.set.Call(hosttest.OnceThere(t, begun), "evaluate-lisp", raw)
	require.NoError(t, err)
	assert.True(t, res.Failed)
	s.keeps(t, "cancelled")
}

func TestALostSandboxIsUnavailable(t *testing.T) {
	s := newSession(t)
	s.alive(t)
	s.host.Lose(boxID)
	// The first call may itself report that Lisp is gone; the next one finds no sandbox to start it in.
	if res, err := s.set.Call(context.Background(), "evaluate-lisp", json.RawMessage(`{"code":"1"}`)); err == nil {
		assert.Contains(t, res.Text, "its sandbox was lost")
	}
	err := s.refused(t, "evaluate-lisp", args{"code": "1"})
	assert.Equal(t, "unavailable", string(err.Kind))
}

func TestABrokenReadtableIsMended(t *testing.T) {
	s := newSession(t)
	s.eval(t, "(defun kept () :kept)")
	s.eval(t, `(set-macro-character #\! (lambda (s c) (declare (ignore s c)) :bang))`)
	assert.Equal(t, "=> :BANG", s.eval(t, "!"), "a sound one stays")
	s.eval(t, `(set-macro-character #\( (lambda (s c) (declare (ignore s c)) (error "x")))`)
	assert.Contains(t, s.eval(t, "(kept)"), "[ERROR]")
	s.keeps(t, "repaired")
}

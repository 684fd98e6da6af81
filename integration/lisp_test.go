package integration

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
)

// A session begins with the definitions recorded in its directory: those of its own earlier process, or of the session
// it was cloned from.
func TestRecordedLispDefinitionsAreMadeAgainInAFreshContainer(t *testing.T) {
	need(t)
	s, err := env.manager.Open(t.Context(), &wisbox.SessionOptions{Name: "lisp-record", Kept: true})
	require.NoError(t, err)
	call(t, s, "evaluate-lisp", args{"code": "(defpackage :p (:use :cl)) (defvar *v* 1) (defmacro twice (x) `(* 2 ,x)) (setf *v* 5)"})
	call(t, s, "evaluate-lisp", args{"code": "(defun f (x) (cl-user::twice x))", "package": "p"})
	require.NoError(t, s.Close(t.Context()))
	require.FileExists(t, filepath.Join(env.root, "sessions", s.ID(), "lisp.json"))
	require.NoError(t, env.backend.Remove(t.Context(), s.ID()))

	again, err := env.manager.Attach(t.Context(), "lisp-record")
	require.NoError(t, err)
	res := call(t, again, "evaluate-lisp", args{"code": "(values (p::f 21) *v*)"})
	assert.Equal(t, []any{"42", "1"}, res["values"])
	assert.Contains(t, res["notes"].([]any)[0], "4 recorded definitions were made again")
	require.NoError(t, again.Close(t.Context()))
	require.NoError(t, env.manager.Remove(t.Context(), "lisp-record"))
	requireGone(t, s)
}

// If a form breaks its own Lisp, the answer has the cause, and the session keeps its definitions. This runs the image's
// SBCL within the container's limits.
func TestLispOutlivesWhatAFormDoesToIt(t *testing.T) {
	s := open(t, nil)
	call(t, s, "evaluate-lisp", args{"code": "(defun kept () :kept)"})
	for _, c := range []struct {
		code, says string
		timeout    int
	}{
		{"(princ :begun) (loop)", `(?s)BEGUN.*\[TIMEOUT\] Evaluation exceeded \d+ second`, 1},
		{"(loop (print 1))", `\[output cut: 1,000 of [\d,]+ characters shown(?s:.*)\[TIMEOUT\]`, 1},
		{"(labels ((f (x) (1+ (f x)))) (f 1))", `\[ERROR\] [A-Z-]*STACK-EXHAUSTED`, 30},
		{"(make-array 10000000000)", `\A\[ERROR\] HEAP-EXHAUSTED-ERROR`, 30},
		{"(let ((x nil)) (loop (push (make-array 1000) x)))", `\A\[ERROR\] HEAP-EXHAUSTED-ERROR`, 30},
		{"(floor (sb-ext:dynamic-space-size) (* 1024 1024))", `\A=> 512\n`, 30}, // half of the container's memory
		{"(let ((x (list 1))) (setf (cdr x) x) x)", `\A=> #1=\(1 \. #1#\)`, 30},
		{"(sb-thread:join-thread (sb-thread:make-thread (lambda () (print :thread))))", `\A\[stdout\]\n:THREAD\n\n=> :THREAD`, 30},
		{"(sb-thread:join-thread (sb-thread:make-thread (lambda () (sb-thread:abort-thread))))", `\[ERROR\] JOIN-THREAD-ERROR`, 30},
		{"(sb-ext:exit :abort t)", `\[ERROR\] EXIT-REFUSED`, 30},
		{"(sb-thread:terminate-thread sb-thread:*current-thread*)", ``, 30},
		{"(read)", `\[ERROR\] END-OF-FILE`, 30},
		{"#.(sb-ext:exit)", `\[ERROR\] [A-Z-]*READER-ERROR`, 30},
		{"(defun cl:car (x) x)", `\[ERROR\]`, 30},
		{"(defun wisbox.driver::answer (x) x)", `\[ERROR\]`, 30},
		{`(sb-ext:run-program "/bin/echo" '("from a program") :output t) 1`, `\A\[stdout\]\nfrom a program\n\n=> 1`, 30},
	} {
		raw, err := json.Marshal(args{"code": c.code})
		require.NoError(t, err)
		var said string
		for timeout := c.timeout; ; timeout *= 2 { // the output per second depends on the machine's speed
			call(t, s, "configure-limits", args{"timeout": timeout, "max-output": 1000})
			res, err := s.Call(t.Context(), "evaluate-lisp", raw)
			require.NoError(t, err, c.code)
			if said = res.Text + "\n"; timeout > 15 || regexp.MustCompile(c.says).MatchString(said) {
				break
			}
		}
		assert.Regexp(t, c.says, said, c.code)
		assert.Equal(t, []any{":KEPT"}, call(t, s, "evaluate-lisp", args{"code": "(kept)"})["values"], c.code)
	}
}

package integration

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
)

// A session begins with the definitions that its directory has recorded: those of
// its own earlier process, or of the session that it was cloned from.
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

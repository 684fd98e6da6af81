package lisp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool/lisp"
	"github.com/wisbox/wisbox/evaltool/lisp/driver"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

// dir contains the core, for all tests of a run.
var dir string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	var err error
	if dir, err = os.MkdirTemp("", "lisp-driver-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	return m.Run()
}

// core returns the path of a saved core as in an image, which the first test that needs it saves.
var core = sync.OnceValues(func() (string, error) {
	source, core := filepath.Join(dir, "driver.lisp"), filepath.Join(dir, "driver.core")
	if err := os.WriteFile(source, []byte(driver.Source()), 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command("sbcl", "--noinform", "--no-sysinit", "--no-userinit", "--non-interactive",
		"--eval", `(load (compile-file "`+source+`"))`, "--eval", `(wisbox.driver:save "`+core+`")`).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("save the driver's core (these tests need SBCL, Debian's package sbcl): %w\n%s", err, out)
	}
	return core, nil
})

// session has the tools, with a sandbox on the host itself.
type session struct {
	*lisp.Lisp
	set  *tool.Set
	host *sandboxtest.Host
}

const boxID = "lisp-test"

func newSession(t testing.TB) *session { return newSessionWith(t, lisp.Options{}) }

func newSessionWith(t testing.TB, opts lisp.Options) *session {
	t.Helper()
	host := sandboxtest.NewHost()
	box, err := host.Create(context.Background(), sandbox.Spec{ID: boxID, Image: "host", Workspace: t.TempDir()})
	require.NoError(t, err)
	saved, err := core()
	require.NoError(t, err)
	opts.Runner = func(context.Context) (sandbox.Runner, error) { return box, nil }
	l := lisp.New(&opts).WithCore(saved)
	t.Cleanup(func() {
		assert.NoError(t, l.Close())
		assert.NoError(t, box.Close(context.Background()))
	})
	return &session{l, tool.NewSet(l.Tools()...), host}
}

type args map[string]any

func (s *session) call(t testing.TB, name string, a args) *tool.Result {
	t.Helper()
	raw, err := json.Marshal(a)
	require.NoError(t, err)
	res, err := s.set.Call(context.Background(), name, raw)
	require.NoError(t, err)
	return res
}

func (s *session) refused(t testing.TB, name string, a args) *tool.Error {
	t.Helper()
	raw, err := json.Marshal(a)
	require.NoError(t, err)
	_, err = s.set.Call(context.Background(), name, raw)
	require.Error(t, err)
	return tool.AsError(err)
}

// eval calls evaluate-lisp and returns its text.
func (s *session) eval(t testing.TB, code string) string {
	t.Helper()
	return s.call(t, "evaluate-lisp", args{"code": code}).Text
}

// evalFull calls evaluate-lisp and returns its result.
func (s *session) evalFull(t testing.TB, code string) lisp.Evaluation {
	t.Helper()
	return s.call(t, "evaluate-lisp", args{"code": code}).Value.(lisp.Evaluation)
}

func (s *session) limits(t testing.TB, a args) {
	t.Helper()
	s.call(t, "configure-limits", a)
}

// alive checks that the session still answers and has its definitions.
func (s *session) alive(t testing.TB) {
	t.Helper()
	require.Equal(t, "=> 3", s.eval(t, "(+ 1 2)"))
}

func join(lines ...string) string { return strings.Join(lines, "\n") }

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

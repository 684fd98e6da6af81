// Package integration runs the product on a real Podman: as root, and again as a user that the tests create (see
// TestRootless). If Podman can't run, the tests skip with the reason, or fail with WISBOX_REQUIRE_PODMAN=1.
package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// env is the common state of all tests of a run.
var env struct {
	root    string // the state root
	manager *wisbox.Manager
	backend *podman.Backend
	problem string // why nothing can be tested

	isolation sandbox.Isolation // of the sessions that tests open
}

func TestMain(m *testing.M) {
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	if dir := os.Getenv(internetDir); dir != "" {
		return internet(dir)
	}
	if n := os.Getenv(createsOfChild); n != "" {
		return createSome(n)
	}
	root, err := os.MkdirTemp("", "wisbox-it-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(root)
	env.root, env.isolation = filepath.Join(root, "state"), sandbox.Isolation(os.Getenv("WISBOX_ISOLATION"))
	if err := setUp(); err != nil {
		env.problem = hosttest.Why(err)
	}
	code := m.Run()
	if env.manager != nil {
		if err := env.manager.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the manager:", err)
			code = max(code, 1)
		}
	}
	return code
}

func setUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	m, err := wisbox.NewManager(ctx, &wisbox.Options{CacheDir: env.root})
	if err != nil {
		return err
	}
	env.manager, env.backend = m, m.Backend().(*podman.Backend)
	if _, err := wasm.Install(ctx, nil); err != nil {
		fmt.Fprintln(os.Stderr, "Python in WebAssembly is not installed, its cases will fail:", err)
	}
	if archive := os.Getenv("WISBOX_TEST_ARCHIVE"); archive != "" {
		return loadImage(ctx, archive)
	}
	_, err = images.Build(ctx, env.backend, &images.Options{Progress: func(line string) { fmt.Fprintln(os.Stderr, line) }})
	return err
}

func loadImage(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = env.backend.LoadImage(ctx, f)
	return err
}

// need skips the test if Podman can't run, or fails it if Podman is required.
func need(t *testing.T) {
	t.Helper()
	hosttest.NeedPodman(t, env.problem)
}

// open opens a session. The test's end closes it and checks that nothing of it is left.
func open(t *testing.T, opts *wisbox.SessionOptions) *wisbox.Session {
	t.Helper()
	need(t)
	s, err := env.manager.Open(t.Context(), isolated(opts))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.Close(ctx))
		requireGone(t, s)
	})
	return s
}

// isolated returns opts with the level of isolation of this run.
func isolated(opts *wisbox.SessionOptions) *wisbox.SessionOptions {
	var o wisbox.SessionOptions
	if opts != nil {
		o = *opts
	}
	o.Isolation = env.isolation
	return &o
}

// requireGone checks that a closed ephemeral session left neither directory nor container.
func requireGone(t *testing.T, s *wisbox.Session) {
	t.Helper()
	require.NoDirExists(t, filepath.Join(env.root, "sessions", s.ID()))
	list, err := env.backend.List(context.Background())
	require.NoError(t, err)
	for _, info := range list {
		require.NotEqual(t, s.ID(), info.ID, "a container is left")
	}
}

// answer is a result object with access by name.
type answer map[string]any

func (a answer) str(name string) string { s, _ := a[name].(string); return s }
func (a answer) num(name string) int    { n, _ := a[name].(float64); return int(n) }

// try calls a tool.
func try(t *testing.T, s *wisbox.Session, name string, args any) (answer, error) {
	t.Helper()
	var raw json.RawMessage
	if args != nil {
		var err error
		if raw, err = json.Marshal(args); err != nil {
			return nil, err
		}
	}
	res, err := s.Call(t.Context(), name, raw)
	if err != nil {
		return nil, err
	}
	return answerOf(res)
}

// answerOf returns a result as its reader sees it.
func answerOf(res *tool.Result) (answer, error) {
	raw, err := json.Marshal(res.Value)
	if err != nil {
		return nil, err
	}
	var a answer
	return a, json.Unmarshal(raw, &a)
}

// call calls a tool that must not answer with an error.
func call(t *testing.T, s *wisbox.Session, name string, args any) answer {
	t.Helper()
	a, err := try(t, s, name, args)
	require.NoError(t, err, "%s %v", name, args)
	return a
}

// script runs a shell script and returns its result.
func script(t *testing.T, s *wisbox.Session, text string) answer {
	t.Helper()
	return call(t, s, "shell_execute", map[string]any{"script": text, "timeout": 60})
}

// output runs a shell script that must exit 0 and returns its stdout.
func output(t *testing.T, s *wisbox.Session, text string) string {
	t.Helper()
	a := script(t, s, text)
	require.Equal(t, "exited", a.str("status"), "%v", a)
	require.Zero(t, a.num("exit_code"), "%v", a)
	return a.str("stdout")
}

func kind(err error) tool.Kind { return tool.KindOf(err) }

// args is a shorthand for the object of a call's arguments.
type args = map[string]any

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/hosttest"
)

func TestMain(m *testing.M) { testscript.Main(leakless{m}, map[string]func(){"wisbox": main}) }

// leakless checks for goroutines that the tests leave behind. A Podman service or a holder that a
// test has started outlives it, as it would outlive a command.
type leakless struct{ *testing.M }

func (l leakless) Run() int {
	code := l.M.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/wisbox/wisbox/podman.startWithOwnKeyring.func1"),
		goleak.IgnoreAnyFunction("github.com/wisbox/wisbox/internal/hold.Root.Launch.func1.1")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// exitcode runs a command that must exit with a code: exitcode CODE COMMAND...
func exitcode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%v", err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
}

// model is the script command `model FILE`: it serves the messages of a model, in both forms, one
// for each line of a file and then the last again, and sets MODEL_URL to the base URL. It refuses
// requests without the key "secret".
func model(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: model FILE")
	}
	says := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chat := r.URL.Path == "/v1/chat/completions" && r.Header.Get("Authorization") == "Bearer secret"
		if !chat && (r.URL.Path != "/v1/messages" || r.Header.Get("X-Api-Key") != "secret") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		message := says[min(int(asked.Add(1)), len(says))-1]
		answer := map[string]any{"type": "message", "content": []any{map[string]any{"type": "text", "text": message}}}
		if chat {
			answer = map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": message}}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	ts.Defer(server.Close)
	ts.Setenv("MODEL_URL", server.URL+"/v1")
}

// raced are the scripts in which much happens at once. With the race detector, which makes each command
// four times as slow, only make nightly runs the others; without it they always run.
var raced = []string{"mcp", "network", "processes", "remote", "serve"}

// TestScripts tests the command line without Podman.
func TestScripts(t *testing.T) {
	dir, files := "testdata/script", []string(nil)
	if hosttest.Raced && os.Getenv("WISBOX_NIGHTLY") == "" {
		for _, name := range raced {
			files = append(files, filepath.Join(dir, name+".txtar"))
		}
		dir = ""
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, Files: files,
		UpdateScripts: os.Getenv("WISBOX_UPDATE") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"converse": converse, "exitcode": exitcode, "model": model, "answering": answering,
		},
		Setup: func(e *testscript.Env) error {
			e.Defer(func() { hosttest.UnmountBelow(e.WorkDir) })
			e.Setenv("WISBOX_CACHE", e.WorkDir+"/cache")
			e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/xdg")
			e.Setenv("XDG_RUNTIME_DIR", "")
			e.Setenv("PODMAN_BASE_URL", "unix:///run/wisbox-no-such.sock")
			return nil
		},
	})
}

// testedInGo are commands that a script can't test successfully, because they need a terminal, a
// second process, another registry, or minutes.
var testedInGo = []string{"agent", "attach", "doctor", "image build", "image pull", "image wrap", "lab bench", "mcp", "port", "serve", "shell", "ssh-proxy", "top", "ui"}

// TestEveryCommandIsInAScript with its happy path and with an error.
func TestEveryCommandIsInAScript(t *testing.T) {
	var all strings.Builder
	for _, dir := range []string{"testdata/script", "../../integration/testdata/script"} {
		require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(filepath.Join(dir, name))
			all.Write(append(raw, '\n'))
			return err
		}))
	}
	everyCommand((&app{}).newRootCmd(), func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "wisbox")
		if name = strings.TrimSpace(name); name == "" || cmd.HasSubCommands() || cmd.Hidden || name == "help" || !cmd.Runnable() {
			return
		}
		in := func(how string) bool {
			return regexp.MustCompile(`(?m)^` + how + `\b.*\bwisbox (--\S+ )*` + name + `( |$)`).MatchString(all.String())
		}
		if !slices.Contains(testedInGo, name) {
			assert.True(t, in("exec"), "no script has the happy path of: wisbox %s", name)
		}
		assert.True(t, in("(! exec|exitcode [0-9]+)"), "no script has an error of: wisbox %s", name)
	})
}

package codeinterp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/serve/e2b/codeinterp"
	"github.com/wisbox/wisbox/serve/e2b/envd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is the handler over a session on the host itself.
type service struct {
	*httptest.Server
	t       *testing.T
	session *wisbox.Session
	done    chan struct{}
}

func newService(t *testing.T) *service {
	t.Helper()
	host := sandboxtest.NewHost()
	opts := &wisbox.Options{Backend: host, CacheDir: filepath.Join(t.TempDir(), "state")}
	opts.Podman.RuntimeDir = t.TempDir()
	m, err := wisbox.NewManager(t.Context(), opts)
	require.NoError(t, err)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{MaxEvalTimeout: time.Hour, MaxCode: 1 << 20})
	require.NoError(t, err)
	done := make(chan struct{})
	h := codeinterp.New(codeinterp.Options{Session: s, Token: "token", Env: map[string]string{"OWN": "own"}, Home: "/usr", Done: done, Hint: envd.Hint})
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.Close()
		assert.NoError(t, s.Close(context.Background()))
		assert.NoError(t, m.Close())
	})
	return &service{server, t, s, done}
}

func (s *service) send(ctx context.Context, method, path string, body any) *http.Response {
	s.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(s.t, err)
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(raw))
	require.NoError(s.t, err)
	if path == "/execute" {
		r.Header.Set("X-Access-Token", "token")
	}
	res, err := s.Client().Do(r)
	require.NoError(s.t, err)
	return res
}

// line is a message of the answer.
type line map[string]any

// run returns all lines of an execution except the first and the last, which are always the same.
func (s *service) run(body any) []line {
	s.t.Helper()
	res := s.send(s.t.Context(), "POST", "/execute", body)
	defer res.Body.Close()
	require.Equal(s.t, 200, res.StatusCode)
	var all []line
	for scan := bufio.NewScanner(res.Body); scan.Scan(); {
		for _, c := range scan.Bytes() {
			require.Less(s.t, c, byte(0x80), "ASCII only")
		}
		var l line
		require.NoError(s.t, json.Unmarshal(scan.Bytes(), &l))
		if l["type"] != "keepalive" {
			all = append(all, l)
		}
	}
	require.GreaterOrEqual(s.t, len(all), 2)
	assert.Equal(s.t, "number_of_executions", all[0]["type"])
	assert.Equal(s.t, "end_of_execution", all[len(all)-1]["type"])
	return all[1 : len(all)-1]
}

func (s *service) code(code string) []line { s.t.Helper(); return s.run(line{"code": code}) }

func main(text string, more line) line {
	out := line{"type": "result", "is_main_result": true, "text": text}
	maps.Copy(out, more)
	return out
}

func TestARunIsALineForEachThing(t *testing.T) {
	s := newService(t)
	for _, c := range []struct {
		code string
		want []line
	}{
		{"x = 1", []line{}},
		{"x += 1; x", []line{main("2", nil)}},
		{"print('x')", []line{{"type": "stdout", "text": "x\n"}}},
		{"import sys\nprint('é\U0001F600', file=sys.stderr)", []line{{"type": "stderr", "text": "é\U0001F600\n"}}},
		{"'text'", []line{main("text", nil)}},
		{"[1, {'é': None}]", []line{main("[1, {'é': None}]", line{"json": []any{1.0, map[string]any{"é": nil}}})}},
		{"{'a': 1}", []line{main("{'a': 1}", line{"json": map[string]any{"a": 1.0}})}},
		{"{1}", []line{main("{1}", nil)}},
		{"display('shown')\n3", []line{{"type": "result", "is_main_result": false, "text": "shown"}, main("3", nil)}},
		{"display({'text/html': '<b>', 'application/x-own': 'y'}, raw=True)", []line{{"type": "result", "is_main_result": false, "html": "<b>", "extra": map[string]any{"application/x-own": "y"}}}},
		{"  x = 5\r\n  x", []line{main("5", nil)}},
		{"!echo $OWN", []line{{"type": "stdout", "text": "own\n"}}},
		{"%pwd", []line{main("/usr", nil)}},
	} {
		assert.Equal(t, c.want, s.code(c.code), c.code)
	}
	failed := s.code("print(1)\nraise ValueError('why')")
	require.Len(t, failed, 2)
	assert.Equal(t, "error", failed[1]["type"])
	assert.Equal(t, "ValueError", failed[1]["name"])
	assert.Equal(t, "why", failed[1]["value"])
	assert.Contains(t, failed[1]["traceback"], "line 2")
	left := s.code("import os\nos._exit(3)")
	require.Len(t, left, 1)
	assert.Equal(t, "error", left[0]["type"])
	assert.Equal(t, []line{main("2", nil)}, s.code("1 + 1"), "and the next has a new interpreter")
}

func TestVariablesAndLanguages(t *testing.T) {
	s := newService(t)
	assert.Equal(t, []line{main("a", nil)}, s.run(line{"code": "import os; os.environ['A']", "env_vars": line{"A": "a"}}))
	assert.Equal(t, []line{main("None", nil)}, s.code("str(os.environ.get('A'))"))
	assert.Equal(t, []line{{"type": "stdout", "text": "/usr own\n"}}, s.run(line{"code": "y=5; echo $PWD $OWN", "language": "bash"}))
	assert.Equal(t, []line{{"type": "stdout", "text": "5\n"}}, s.run(line{"code": "echo $y", "language": "Bash"}))
	assert.Equal(t, []line{{"type": "error", "name": "ExitCode", "value": "3", "traceback": ""}}, s.run(line{"code": "(exit 3)", "language": "bash"}))
	if _, err := exec.LookPath("node"); err != nil {
		hosttest.Lacks(t, "node is missing; see: make setup")
	}
	assert.Equal(t, []line{{"type": "stdout", "text": "hi\n"}, main("[ 1 ]", line{"json": []any{1.0}})}, s.run(line{"code": "const x = 1; console.log('hi'); [x]", "language": "js"}))
	assert.Equal(t, []line{main("2", nil)}, s.run(line{"code": "await x + 1", "language": "JavaScript"}))
	for code, body := range map[int]any{
		404: line{"code": "1", "context_id": "none"}, 422: line{"code": 5}, 500: line{"code": "1", "language": "cobol"}, 400: line{"code": "1", "language": "bash", "context_id": "x"},
	} {
		res := s.send(t.Context(), "POST", "/execute", body)
		assert.NoError(t, res.Body.Close())
		assert.Equal(t, code, res.StatusCode, body)
	}
	res, err := s.Client().Post(s.URL+"/execute", "application/json", strings.NewReader(`{"code":"1"}`))
	require.NoError(t, err)
	assert.NoError(t, res.Body.Close())
	assert.Equal(t, 401, res.StatusCode, "without the token")
}

func (s *service) contexts(method, path string, body, into any) int {
	s.t.Helper()
	res := s.send(s.t.Context(), method, path, body)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	if into != nil {
		require.NoError(s.t, json.Unmarshal(raw, into), string(raw))
	}
	return res.StatusCode
}

func TestContexts(t *testing.T) {
	s := newService(t)
	type item struct{ ID, Language, CWD string }
	var a, b item
	require.Equal(t, 200, s.contexts("POST", "/contexts", line{"cwd": "/none"}, &a))
	assert.Equal(t, item{a.ID, "python", "/none"}, a)
	require.Equal(t, 200, s.contexts("POST", "/contexts", line{"language": "bash"}, &b))
	assert.Equal(t, item{b.ID, "bash", "/usr"}, b)
	assert.Equal(t, 500, s.contexts("POST", "/contexts", line{"language": "cobol"}, nil))
	s.run(line{"code": "x = 1", "context_id": a.ID})
	assert.Equal(t, []line{main("1", nil)}, s.run(line{"code": "x", "context_id": a.ID}))
	assert.Equal(t, []line{{"type": "stdout", "text": "b\n"}}, s.run(line{"code": "echo b", "context_id": b.ID}))
	assert.Equal(t, []line{main("False", nil)}, s.code("'x' in globals()"))
	var all []item
	require.Equal(t, 200, s.contexts("GET", "/contexts", nil, &all))
	assert.Equal(t, []item{{"default-python", "python", "/usr"}, a, b}, all)
	assert.Equal(t, 204, s.contexts("POST", "/contexts/"+a.ID+"/restart", nil, nil))
	assert.Equal(t, []line{main("False", nil)}, s.run(line{"code": "'x' in globals()", "context_id": a.ID}))
	assert.Equal(t, 204, s.contexts("DELETE", "/contexts/"+a.ID, nil, nil))
	assert.Equal(t, 404, s.contexts("DELETE", "/contexts/"+a.ID, nil, nil))
	assert.Equal(t, 404, s.contexts("POST", "/contexts/"+a.ID+"/restart", nil, nil))
	assert.Equal(t, 204, s.contexts("POST", "/contexts/default-python/restart", nil, nil))
}

// A client that leaves interrupts the code. The next run finds its variables.
func TestAClientThatLeavesInterruptsTheRun(t *testing.T) {
	s := newService(t)
	s.code("z = 5")
	ctx, cancel := context.WithCancel(t.Context())
	res := s.send(ctx, "POST", "/execute", line{"code": "print('begun')\nwhile True: pass"})
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "begun") {
	}
	cancel()
	_ = res.Body.Close()
	assert.Equal(t, []line{main("5", nil)}, s.code("z"))
}

// A client that reads nothing can't keep a run beyond the sandbox's end: a shutdown waits for the handler.
func TestAClientThatTakesNothingHoldsNoRunBeyondTheSandbox(t *testing.T) {
	s := newService(t)
	res := s.send(t.Context(), "POST", "/execute", line{"code": "while True: print('x' * 10_000)"})
	defer res.Body.Close()
	close(s.done)
	ended := make(chan struct{})
	go func() { _ = s.Config.Shutdown(context.Background()); close(ended) }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		assert.Fail(t, "the handler hangs")
	}
}

// The end of a sandbox cuts running code, without an end message.
func TestTheEndOfTheSandboxCutsTheRun(t *testing.T) {
	s := newService(t)
	res := s.send(t.Context(), "POST", "/execute", line{"code": "open('" + filepath.Join(s.session.WorkspacePath(), "f") + "', 'w').close()\nprint('begun')\nwhile True: pass"})
	defer res.Body.Close()
	begun := bufio.NewReader(res.Body)
	for {
		text, err := begun.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(text, "begun") {
			break
		}
	}
	assert.FileExists(t, filepath.Join(s.session.WorkspacePath(), "f"))
	close(s.done)
	rest, err := io.ReadAll(begun)
	assert.Error(t, err)
	assert.NotContains(t, string(rest), "end_of_execution")
	assert.Equal(t, 502, s.contexts("GET", "/contexts", nil, nil))
}

// TestCallsWithoutATokenAreBounded, and none of them is passed.
func TestCallsWithoutATokenAreBounded(t *testing.T) {
	h := codeinterp.New(codeinterp.Options{Session: (*wisbox.Session)(nil), Token: "token", Pass: func(http.ResponseWriter, *http.Request, http.HandlerFunc) { t.Error("passed") }})
	for path, status := range map[string]int{"/execute": 401, "/contexts": 413} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(strings.Repeat(" ", 64<<10+1))))
		assert.Equal(t, status, w.Code)
		assert.Equal(t, "close", w.Header().Get("Connection"))
	}
}

func TestCodeThatFoundNoNetworkHearsWhy(t *testing.T) {
	s := newService(t)
	lines := s.run(map[string]any{"code": "import socket; raise socket.gaierror(-3, 'Temporary failure in name resolution')"})
	require.Len(t, lines, 2)
	assert.Equal(t, "error", lines[0]["type"])
	assert.Equal(t, "stderr", lines[1]["type"])
	assert.Contains(t, lines[1]["text"], "this sandbox has no network")
}

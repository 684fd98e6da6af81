package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

// fakeServer implements the minimum of the protocol over fakeTools. The mode names the rule that it
// breaks.
func fakeServer(mode string, args []string) int {
	if flags := strings.Join(args, " "); strings.Contains(flags, "--refuse") {
		fmt.Fprintln(os.Stderr, "bad flags: "+flags)
		return 1
	}
	dir, err := os.MkdirTemp("", "fake")
	if err != nil {
		return 1
	}
	defer os.RemoveAll(dir)
	s := &server{mode: mode, tools: fakeTools(dir)}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.handle([]byte(lines.Text()))
	}
	s.calls.Wait()
	if mode == "exit" {
		return 3
	}
	if mode == "stay" {
		time.Sleep(time.Hour) // not select {}: the runtime would call that a deadlock
	}
	return 0
}

type server struct {
	mode  string
	tools *tool.Set
	calls sync.WaitGroup
	mu    sync.Mutex
	kept  []byte
}

func (s *server) handle(line []byte) {
	var req struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
			Meta      struct {
				Token string `json:"progressToken"`
			} `json:"_meta"`
		} `json:"params"`
	}
	switch err := json.Unmarshal(line, &req); {
	case err != nil, req.ID == nil:
	case req.Method == "initialize":
		s.answer(req.ID, map[string]any{})
	default:
		s.calls.Go(func() { s.call(req.ID, req.Params.Name, req.Params.Arguments, req.Params.Meta.Token) })
	}
}

func (s *server) call(id json.RawMessage, name string, args json.RawMessage, token string) {
	ctx := context.Background()
	if token != "" || s.mode == "tells" {
		ctx = tool.WithProgress(ctx, func(text string) {
			s.write(map[string]any{"method": "notifications/progress", "params": map[string]any{"progressToken": token, "message": text}})
		})
	}
	switch s.mode {
	case "print":
		fmt.Println("debug: called")
	case "twice":
		s.answer(id, map[string]any{})
	case "asks":
		fmt.Println(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
	case "crash":
		panic("as asked")
	case "hog":
		s.kept = bytes.Repeat([]byte("x"), 64<<20)
	}
	s.answer(id, toolResult(s.tools.Call(ctx, name, args)))
}

func (s *server) answer(id json.RawMessage, result any) {
	s.write(map[string]any{"id": id, "result": result})
}

func (s *server) write(message map[string]any) {
	message["jsonrpc"] = "2.0"
	line, _ := json.Marshal(message)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// fakeStdio runs this test binary as the server.
func fakeStdio(t *testing.T, mode string) *Stdio {
	self, err := os.Executable()
	require.NoError(t, err)
	return &Stdio{
		Command: []string{self}, Env: append(os.Environ(), "CONFORMANCE_FAKE_SERVER="+mode, "TMPDIR="+t.TempDir()),
		EndsWithin: 5 * time.Second,
	}
}

func TestCasesRunAgainstAServerOnPipes(t *testing.T) {
	sum := Run(t, func(t *testing.T) Target { return fakeStdio(t, "well") }, nil, filepath.Join("testdata", "runner.jsonl"))
	assert.Equal(t, "9 passed, 0 failed, 0 skipped", sum.String())
}

func TestServersThatBreakTheProtocolAreFound(t *testing.T) {
	const line = `{"id":"x","tool":"shell_execute","args":{"script":"echo"},"expect":"ok:any"}`
	for mode, says := range map[string]string{
		"print": "not a JSON-RPC message",
		"twice": "no request waits for",
		"asks":  "which nobody offered",
		"crash": "output ended before the answer",
		"exit":  "exit status 3",
		"tells": "didn't ask for it",
	} {
		t.Run(mode, func(t *testing.T) {
			assert.Contains(t, problemsOf(t, fakeStdio(t, mode), line), says)
		})
	}
}

func TestAServerThatStaysIsKilledAndReported(t *testing.T) {
	target := fakeStdio(t, "stay")
	target.EndsWithin = 100 * time.Millisecond
	assert.Contains(t, problemsOf(t, target, `{"id":"x","tool":"ls","expect":"ok:any"}`), "was still there")
}

func TestAServerThatGrowsIsFound(t *testing.T) {
	for limit, says := range map[string]string{"16": "memory grew by", "1000": "", "x": "at most x are allowed"} {
		line := `{"id":"x","tool":"ls","expect":"ok:any","clean":false,"also":["rss_mib=` + limit + `"]}`
		found := problemsOf(t, fakeStdio(t, "hog"), line)
		assert.Contains(t, found, says)
		assert.Equal(t, says == "", found == "", found)
	}
}

func TestTheServersPeakOfMemoryIsRead(t *testing.T) {
	s, err := fakeStdio(t, "well").Open(t.Context(), OpenOptions{})
	require.NoError(t, err)
	assert.Positive(t, s.Peak(true))
	assert.NoError(t, s.Close(t.Context()))
	assert.Empty(t, s.Broken())
}

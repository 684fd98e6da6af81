// Package examples runs the programs under examples/ on a real Podman.
package examples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// built is the directory of the examples' programs.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "wisbox-examples-")
	if err != nil {
		panic(err)
	}
	built = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// example returns a command of one of the programs, with its own state root.
func example(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	needsPodman(t)
	bin := filepath.Join(built, name)
	if _, err := os.Stat(bin); err != nil {
		out, err := exec.Command("go", "build", "-o", bin, "../../examples/"+name).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return command(t, bin, args...)
}

func command(t *testing.T, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+filepath.Join(t.TempDir(), "state"), "WISBOX="+hosttest.Binary(t))
	return cmd
}

// podmanRuns is set once a test has found that Podman runs.
var podmanRuns bool

func needsPodman(t *testing.T) {
	t.Helper()
	if podmanRuns {
		return
	}
	if out, err := command(t, hosttest.Binary(t), "run", "--", "true").CombinedOutput(); err != nil {
		require.Empty(t, os.Getenv("WISBOX_REQUIRE_PODMAN"), "%s", out)
		hosttest.Lacks(t, "Podman can't run here: %s", out)
	}
	podmanRuns = true
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, errs.String())
	return string(out)
}

func TestEmbed(t *testing.T) {
	assert.Contains(t, output(t, example(t, "embed")), "42")
}

// TestTheReadmesGoJob builds with only the tags of the README, whatever the tags of this test.
func TestTheReadmesGoJob(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(readme), "```sh\nexport CGO_ENABLED")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	cmd := command(t, "sh", "-ec", "export CGO_ENABLED"+strings.Replace(block, "GOFLAGS=", "GOFLAGS=-buildvcs=false\\ ", 1))
	cmd.Dir = "../.."
	assert.Contains(t, output(t, cmd), "42\n")
}

func TestSubagents(t *testing.T) {
	said := output(t, example(t, "subagents"))
	assert.Equal(t, "idea 1: 42\n", said)
}

func TestMCPClient(t *testing.T) {
	assert.Contains(t, output(t, example(t, "mcpclient", hosttest.Binary(t))), "42")
}

// TestPreview gets a page of the application, and ends the program by Ctrl-C.
func TestPreview(t *testing.T) {
	cmd := example(t, "preview")
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	url, err := bufio.NewReader(pipe).ReadString('\n')
	require.NoError(t, err)
	res, err := http.Get(strings.TrimSpace(url) + "some/page")
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Equal(t, "hello from /some/page\n", string(body))
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	assert.NoError(t, cmd.Wait())
}

// TestAgentLoop lets a scripted model fix a program: it reads, makes a mistake and gets the error, edits, runs, and
// ends.
func TestAgentLoop(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "sum.py"), []byte("print(40 - 2)\n"), 0o644))
	turns := []string{
		`{"role":"assistant","content":"I look at it.","tool_calls":[{"id":"1","type":"function","function":{"name":"read_file","arguments":"{\"file_path\":\"sum.py\"}"}}]}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"2","type":"function","function":{"name":"edit_file","arguments":"{\"file_path\":\"sum.py\",\"old_string\":\"nowhere\",\"new_string\":\"x\"}"}}]}`,
		`{"role":"assistant","content":"","tool_calls":[
			{"id":"3","type":"function","function":{"name":"edit_file","arguments":"{\"file_path\":\"sum.py\",\"old_string\":\"-\",\"new_string\":\"+\"}"}},
			{"id":"4","type":"function","function":{"name":"shell_execute","arguments":"{\"commands\":[\"python3\",\"sum.py\"]}"}}]}`,
		`{"role":"assistant","content":"Done."}`,
	}
	results := map[string]string{}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Messages []struct {
				Role, Content string
				ToolCallID    string `json:"tool_call_id"`
			}
			Tools []struct{ Function struct{ Name string } }
		}
		if !assert.NoError(t, json.NewDecoder(r.Body).Decode(&ask)) || !assert.NotEmpty(t, turns) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		assert.Equal(t, "/v1/chat/completions", r.URL.Path)
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		assert.Greater(t, len(ask.Tools), 10)
		for _, m := range ask.Messages {
			if m.Role == "tool" {
				results[m.ToolCallID] = m.Content
			}
		}
		_, _ = io.WriteString(w, `{"choices":[{"message":`+turns[0]+`}]}`)
		turns = turns[1:]
	}))
	defer model.Close()
	cmd := example(t, "agentloop", folder, "the sum is wrong")
	cmd.Env = append(cmd.Env, "OPENAI_BASE_URL="+model.URL+"/v1", "OPENAI_API_KEY=secret")
	said := output(t, cmd)
	assert.Empty(t, turns)
	assert.Contains(t, results["1"], "print(40 - 2)")
	assert.Contains(t, results["2"], "old_string")
	assert.Contains(t, results["4"], "42")
	assert.Contains(t, said, "Done.\n")
	assert.Contains(t, said, "-print(40 - 2)\n+print(40 + 2)\n")
	kept, err := os.ReadFile(filepath.Join(folder, "sum.py"))
	require.NoError(t, err)
	assert.Equal(t, "print(40 - 2)\n", string(kept), "the folder itself is untouched")
}

// TestUntrustedChange: the program returns the tests' exit code and copies the reports back; the change has neither the
// network nor the job's variables.
func TestUntrustedChange(t *testing.T) {
	needsPodman(t)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "test.sh"), []byte(`mkdir reports
env >reports/env.txt
ls /sys/class/net >reports/net.txt
exit $1
`), 0o644))
	for _, code := range []int{0, 3} {
		reports := filepath.Join(t.TempDir(), "out")
		cmd := command(t, filepath.Join(hosttest.Module(t), "examples/ci/untrusted.sh"), folder, reports, "sh", "test.sh", string(rune('0'+code)))
		cmd.Env = append(cmd.Env, "JOB_TOKEN=topsecret")
		out, _ := cmd.CombinedOutput()
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s", out)
		env, err := os.ReadFile(filepath.Join(reports, "reports/env.txt"))
		require.NoError(t, err, "%s", out)
		assert.NotContains(t, string(env), "topsecret")
		net, err := os.ReadFile(filepath.Join(reports, "reports/net.txt"))
		require.NoError(t, err)
		assert.Equal(t, "lo\n", string(net))
		assert.FileExists(t, filepath.Join(reports, "calls.txt"))
	}
}

package integration

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scrape reads an address as Prometheus does.
func scrape(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}

func assertLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		assert.Contains(t, text, line+"\n")
	}
}

// TestTheMetricsOfHeldSessionsAreServed: the command line starts their holders.
func TestTheMetricsOfHeldSessionsAreServed(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	assert.Empty(t, h.do("metrics"), "nobody holds it yet")
	h.do("call", "box", "write_file", `{"file_path":"f","content":"x"}`)
	h.fail("call", "box", "read_file", `{"file_path":"nosuch"}`)
	h.do("exec", "box", "--", "cat", "f")
	want := []string{
		`wisbox_calls_total{outcome="ok",session="box",tool="write_file"} 1`,
		`wisbox_calls_total{outcome="not_found",session="box",tool="read_file"} 1`,
		`wisbox_calls_total{outcome="ok",session="box",tool="run"} 1`,
		`wisbox_holder_up{session="box"} 1`,
	}
	var printed string
	require.Eventually(t, func() bool { // the end of the program is counted when the agent reports it
		printed = h.do("metrics")
		return strings.Contains(printed, `wisbox_programs_total{session="box",verdict="exited"} 1`)
	}, 30*time.Second, 10*time.Millisecond)
	assertLines(t, printed, want...)

	cmd := h.command("metrics", "--listen", "127.0.0.1:0")
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	h.begin(cmd)
	line, err := bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(line, "metrics on "))
	assertLines(t, scrape(t, url), want...)
	h.do("call", "box", "ls")
	assertLines(t, scrape(t, url), `wisbox_calls_total{outcome="ok",session="box",tool="ls"} 1`)
	h.do("session", "rm", "box")
	assert.NotContains(t, scrape(t, url), "box")
	h.requireNothing()
}

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// converse is the script command `converse FILE [FLAG...]`: it sends the lines of a file to `wisbox
// mcp FLAG...`, each after the answer to the one before, and writes both sides to the file
// transcript, for cmp. SESSION in a line stands for the session's name. Names, times, durations and
// instructions are left out of the answers.
func converse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: converse FILE [FLAG...]")
	}
	t := talk{ts: ts}
	end := t.start(args[1:])
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		t.say(strings.TrimSuffix(line, "\n"))
	}
	end()
	ts.Check(os.WriteFile(ts.MkAbs("transcript"), []byte(t.transcript.String()), 0o600))
}

type talk struct {
	ts         *testscript.TestScript
	in         io.WriteCloser
	out        *bufio.Reader
	session    string
	transcript strings.Builder
}

func (t *talk) start(flags []string) (end func()) {
	bin := t.ts.Getenv("PATH")[:strings.IndexByte(t.ts.Getenv("PATH"), filepath.ListSeparator)] + "/wisbox"
	cmd := exec.Command(bin, append([]string{"mcp"}, flags...)...)
	cmd.Dir = t.ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "WISBOX_CACHE", "PODMAN_BASE_URL", "WISBOX_MODEL_URL"} {
		cmd.Env = append(cmd.Env, name+"="+t.ts.Getenv(name))
	}
	var err error
	t.in, err = cmd.StdinPipe()
	t.ts.Check(err)
	out, err := cmd.StdoutPipe()
	t.ts.Check(err)
	t.out = bufio.NewReader(out)
	t.ts.Check(cmd.Start())
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	return func() {
		defer stuck.Stop()
		t.ts.Check(t.in.Close())
		t.ts.Check(cmd.Wait())
	}
}

// say sends a line. Each line except a notification gets an answer, perhaps after notifications of
// the server.
func (t *talk) say(line string) {
	if line == "" {
		return
	}
	fmt.Fprintf(&t.transcript, "> %s\n", line)
	_, err := io.WriteString(t.in, strings.ReplaceAll(line, "SESSION", t.session)+"\n")
	t.ts.Check(err)
	var sent struct{ Method, ID any }
	if json.Unmarshal([]byte(line), &sent) == nil && sent.Method != nil && sent.ID == nil {
		return
	}
	for answered := false; !answered; {
		got, err := t.out.ReadString('\n')
		t.ts.Check(err)
		answered = strings.Contains(got, `"id":`)
		fmt.Fprintf(&t.transcript, "< %s", t.plain(got))
	}
}

var (
	guidance  = regexp.MustCompile(`"instructions":"(?:[^"\\]|\\.)*"`)
	names     = regexp.MustCompile(`\b[0-9a-z]{26}\b`)
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	durations = regexp.MustCompile(`"duration_ms":\d+`)
)

func (t *talk) plain(line string) string {
	if name := names.FindString(line); name != "" && t.session == "" {
		t.session = name
	}
	if t.session != "" {
		line = strings.ReplaceAll(line, t.session, "SESSION")
	}
	line = guidance.ReplaceAllString(line, `"instructions":"..."`)
	line = names.ReplaceAllString(line, "ID")
	line = times.ReplaceAllString(line, "TIME")
	return durations.ReplaceAllString(line, `"duration_ms":0`)
}

package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Case is one line of a case file. The README beside the shared files tells what
// each field means.
type Case struct {
	ID        string   `json:"id"`
	Why       string   `json:"why"`
	Steps     []Step   `json:"steps"`
	Setup     string   `json:"setup"`
	Fresh     bool     `json:"fresh"`
	Clean     *bool    `json:"clean"`
	Flags     []string `json:"flags"`
	HostSetup string   `json:"host_setup"`
	HostCheck string   `json:"host_check"`
	Race      string   `json:"race"`
	Repeat    int      `json:"repeat"`
	Also      []string `json:"also"`

	Step // the case's own call, if it has one
}

// Step is a call, a script in the sandbox, one on the host, or a pause.
type Step struct {
	Tool   string            `json:"tool"`
	Args   json.RawMessage   `json:"args"`
	Expect string            `json:"expect"`
	Save   map[string]string `json:"save"`
	MaxMS  int               `json:"max_ms"`
	Sh     string            `json:"sh"`
	Host   string            `json:"host"`
	Sleep  float64           `json:"sleep"`
}

// keepsWorkspace says that the case leaves the workspace as it found it.
func (c *Case) keepsWorkspace() bool { return c.Clean != nil && !*c.Clean }

// ownSession says that the case can't share the session of its file.
func (c *Case) ownSession() bool { return c.Fresh || len(c.Flags) > 0 || c.HostSetup != "" }

// needsPrograms says that the case can't run where no program can.
func (c *Case) needsPrograms() bool {
	if c.Setup != "" || c.Race != "" || !c.keepsWorkspace() {
		return true
	}
	for _, s := range c.Steps {
		if s.Sh != "" {
			return true
		}
	}
	return len(alsoOf(c, "sh:")) > 0
}

// pause is how long a step waits.
func (s Step) pause() time.Duration { return time.Duration(s.Sleep * float64(time.Second)) }

// Load reads a case file.
func Load(path string) ([]Case, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var cases []Case
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		c, err := parseCase(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(path), n, err)
		}
		cases = append(cases, c)
	}
	return cases, lines.Err()
}

func parseCase(line []byte) (Case, error) {
	var c Case
	if err := strictly(line, &c); err != nil {
		return c, err
	}
	for _, s := range append([]Step{c.Step}, c.Steps...) {
		if s.Tool == "" {
			continue
		}
		if _, err := Match(s.Expect, Answer{}); err != nil {
			return c, fmt.Errorf("%s: %w", c.ID, err)
		}
	}
	return c, checkAlso(&c)
}

// SharedDir is the directory of the case files that several projects share: the
// environment's WISBOX_CONFORMANCE, or ../shared/conformance beside the module.
// The reason says why there is none.
func SharedDir() (dir, reason string) {
	dir = os.Getenv("WISBOX_CONFORMANCE")
	if dir == "" {
		dir = filepath.Join(moduleRoot(), "..", "shared", "conformance")
	}
	if _, err := os.Stat(filepath.Join(dir, "files.jsonl")); err != nil {
		return "", "no shared conformance cases: set WISBOX_CONFORMANCE to their directory"
	}
	return dir, ""
}

// SharedFiles lists the shared case files, in the order of their names.
func SharedFiles() (files []string, reason string) {
	dir, reason := SharedDir()
	if reason != "" {
		return nil, reason
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		return nil, "no case files in the shared conformance directory"
	}
	return files, ""
}

// moduleRoot is the nearest directory above that holds go.mod.
func moduleRoot() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for d := dir; d != filepath.Dir(d); d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
	}
	return dir
}

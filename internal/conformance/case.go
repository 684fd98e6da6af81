package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Case is one line of a case file. The README beside the case files describes the fields.
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
	Tool     string            `json:"tool"`
	Args     json.RawMessage   `json:"args"`
	Expect   string            `json:"expect"`
	Progress string            `json:"progress"`
	Save     map[string]string `json:"save"`
	MaxMS    int               `json:"max_ms"`
	Sh       string            `json:"sh"`
	Host     string            `json:"host"`
	Sleep    float64           `json:"sleep"`
}

// keepsWorkspace reports whether the workspace is left as it is after the case.
func (c *Case) keepsWorkspace() bool { return c.Clean != nil && !*c.Clean }

// ownSession reports whether the case needs a session of its own.
func (c *Case) ownSession() bool { return c.Fresh || len(c.Flags) > 0 || c.HostSetup != "" }

// Load reads a case file.
func Load(path string) ([]Case, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var cases []Case
	for i, line := range bytes.Split(text, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		c, err := parseCase(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(path), i+1, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func parseCase(line []byte) (Case, error) {
	var c Case
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields() // an unknown word would be a check that nobody makes
	if err := dec.Decode(&c); err != nil {
		return c, err
	}
	for _, s := range append([]Step{c.Step}, c.Steps...) {
		if s.Tool == "" {
			continue
		}
		if _, err := Match(s.Expect, Answer{}); err != nil {
			return c, fmt.Errorf("%s: %w", c.ID, err)
		}
		if _, err := regexp.Compile(s.Progress); err != nil {
			return c, fmt.Errorf("%s: progress: %w", c.ID, err)
		}
	}
	return c, checkAlso(&c)
}

// Dir returns the directory of the cases: $WISBOX_CONFORMANCE, or own, the repository's directory
// relative to the test.
func Dir(own string) string { return cmp.Or(os.Getenv("WISBOX_CONFORMANCE"), own) }

// Files lists the case files of a directory, sorted by name. A directory without case files is an
// error, so that a test can't pass because it ran nothing.
func Files(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no case files (*.jsonl)", dir)
	}
	return files, err
}

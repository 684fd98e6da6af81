package profile

import (
	"context"
	"fmt"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// openAI returns the tools that OpenAI's models know.
func (a *adapters) openAI() []tool.Tool {
	return []tool.Tool{(&shell{to: a.to}).tool(), (&patcher{to: a.to}).tool()}
}

// shell is OpenAI's shell: several scripts, one after the other, each with its own output and
// outcome.
type shell struct{ to Caller }

// Bounds of a call of shell.
const (
	maxShellCommands = 16
	maxShellOutput   = 32 << 10 // characters of a stream
)

type shellParams struct {
	Commands        []string `json:"commands" jsonschema:"scripts for bash, run one after the other; at most 16"`
	TimeoutMS       *float64 `json:"timeout_ms,omitempty" jsonschema:"milliseconds for each command, 1000 to 120000; brought into that range, 30000 when left out"`
	MaxOutputLength *int64   `json:"max_output_length,omitempty" min:"1" jsonschema:"characters kept of each stream, head and tail; at most and by default 32768"`
}

type shellResult struct {
	Output []shellOutput `json:"output" jsonschema:"one for each command that ran, in their order; none runs after one that timed out"`
	Note   string        `json:"note,omitempty" jsonschema:"why commands did not run"`
}

type shellOutput struct {
	Stdout  string       `json:"stdout"`
	Stderr  string       `json:"stderr"`
	Outcome shellOutcome `json:"outcome"`
}

type shellOutcome struct {
	Type     string `json:"type" enum:"exit|timeout"`
	ExitCode *int   `json:"exit_code,omitempty" jsonschema:"with type exit; 128+n for signal n"`
	Status   string `json:"status,omitempty" jsonschema:"what ended the program, where it was not its own exit"`
}

// Failed reports whether any command ended other than by exiting.
func (r shellResult) Failed() bool {
	for _, o := range r.Output {
		if o.Outcome.Status != "" {
			return true
		}
	}
	return r.Note != ""
}

func (r shellResult) Text() string {
	var b strings.Builder
	for i, o := range r.Output {
		if len(r.Output) > 1 {
			fmt.Fprintf(&b, "[command %d]\n", i+1)
		}
		b.WriteString(o.text())
	}
	if r.Note != "" {
		fmt.Fprintf(&b, "[%s]\n", r.Note)
	}
	return b.String()
}

func (o shellOutput) text() string {
	var b strings.Builder
	b.WriteString(ended(o.Stdout))
	if o.Stderr != "" {
		b.WriteString("[stderr]\n" + ended(o.Stderr))
	}
	switch {
	case o.Outcome.Type == "timeout":
		b.WriteString("[timed out]\n")
	case o.Outcome.Status != "":
		fmt.Fprintf(&b, "[%s, exit code %d]\n", o.Outcome.Status, *o.Outcome.ExitCode)
	default:
		fmt.Fprintf(&b, "[exit code %d]\n", *o.Outcome.ExitCode)
	}
	return b.String()
}

func (s *shell) tool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "shell", Title: "Run shell commands", Destructive: true, Effect: tool.ProgramEffect,
		Description: "Run bash scripts in the workspace, one after the other, without network. Each starts in the workspace with a fresh shell; " +
			"nothing that it starts outlives it.",
	}, s.call)
}

func (s *shell) call(ctx context.Context, p shellParams) (shellResult, error) {
	if len(p.Commands) == 0 || len(p.Commands) > maxShellCommands {
		return shellResult{}, tool.Errorf(tool.Invalid, "commands has %d entries; it must have 1 to %d", len(p.Commands), maxShellCommands).In("commands")
	}
	out := shellResult{Output: []shellOutput{}}
	for i, command := range p.Commands {
		one, err := s.one(ctx, command, p)
		if err != nil && i == 0 {
			return out, renamed(err, map[string]string{"script": "commands[0]", "timeout": "timeout_ms"})
		}
		if err != nil { // the caller must learn that some have already run
			out.Note = fmt.Sprintf("command %d and those after it did not run: %s", i+1, tool.AsError(err))
			return out, nil
		}
		out.Output = append(out.Output, one)
		if rest := len(p.Commands) - i - 1; one.Outcome.Type == "timeout" && rest > 0 {
			out.Note = fmt.Sprintf("command %d timed out; the %d after it did not run", i+1, rest)
			return out, nil
		}
	}
	return out, nil
}

func (s *shell) one(ctx context.Context, command string, p shellParams) (shellOutput, error) {
	arguments := args{"script": command}
	if p.TimeoutMS != nil {
		arguments["timeout"] = *p.TimeoutMS / 1000
	}
	r, err := ask[run](ctx, s.to, "shell_execute", arguments)
	if err != nil {
		return shellOutput{}, err
	}
	most := maxShellOutput
	if p.MaxOutputLength != nil {
		most = int(min(*p.MaxOutputLength, maxShellOutput))
	}
	return shellOutput{Stdout: shorten(r.Stdout, most), Stderr: shorten(r.Stderr, most), Outcome: r.outcome()}, nil
}

func (r *run) outcome() shellOutcome {
	switch r.Status {
	case "timed_out":
		return shellOutcome{Type: "timeout", Status: r.Status}
	case "exited":
		return shellOutcome{Type: "exit", ExitCode: &r.ExitCode}
	}
	return shellOutcome{Type: "exit", ExitCode: &r.ExitCode, Status: r.Status}
}

package profile

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

const (
	bashTimeout   = 120 * time.Second
	bashWait      = 30       // seconds; the longest wait in one read of the output
	maxWrite      = 40_000   // characters of one process_write
	maxCommand    = 32 << 10 // bytes
	maxBashOutput = 32 << 10 // bytes kept of one command's output
)

var bashGrace = patience.For(5 * time.Second)

// bash is one shell that lives as long as the session: directory, variables and background jobs
// persist between calls.
type bash struct {
	to Caller

	mu   *lock.Mutex // a shell runs one command at a time; guards the fields below
	id   string      // of the process; "" if there is none
	read int64       // offset of the unread output
}

type bashParams struct {
	Command string `json:"command,omitempty" jsonschema:"command or script for bash; required unless restart is true"`
	Restart bool   `json:"restart,omitempty" default:"false" jsonschema:"true ends the shell and starts a new one"`
}

type bashResult struct {
	Output   string `json:"output" jsonschema:"stdout and stderr in the order in which they came"`
	ExitCode int    `json:"exit_code" jsonschema:"124 for a timeout"`
	TimedOut bool   `json:"timed_out"`
	Note     string `json:"note,omitempty" jsonschema:"what became of the shell"`
}

func (r bashResult) Failed() bool { return r.TimedOut }

func (r bashResult) Text() string {
	var b strings.Builder
	b.WriteString(ended(r.Output))
	if r.ExitCode != 0 || r.Output == "" && r.Note == "" {
		fmt.Fprintf(&b, "[exit code %d]\n", r.ExitCode)
	}
	if r.Note != "" {
		fmt.Fprintf(&b, "[%s]\n", r.Note)
	}
	return b.String()
}

func (s *bash) tool() tool.Tool {
	s.mu = lock.New()
	return tool.New(tool.Spec{
		Name: "bash", Title: "Run a command in a shell", Destructive: true, Effect: tool.LastingEffect,
		Description: "Run a command in a bash shell that stays between calls, in the workspace, without network. " +
			"A command that runs for more than 120 s ends the shell. Its standard input is empty, and redirections by exec end with the command.",
	}, s.call)
}

func (s *bash) call(ctx context.Context, p bashParams) (bashResult, error) {
	switch {
	case !p.Restart && p.Command == "":
		return bashResult{}, tool.Errorf(tool.Invalid, "command is missing; give a command, or restart true").In("command")
	case len(p.Command) > maxCommand:
		return bashResult{}, tool.Errorf(tool.Invalid, "command has %d bytes; the maximum is %d: write it to a file and run that", len(p.Command), maxCommand).In("command")
	case strings.ContainsRune(p.Command, 0):
		return bashResult{}, tool.Errorf(tool.Invalid, "command has a NUL character; remove it").In("command")
	}
	if err := s.mu.Lock(ctx); err != nil {
		return bashResult{}, err
	}
	defer s.mu.Unlock()
	if p.Restart {
		s.kill(ctx)
		if p.Command == "" {
			return bashResult{Note: "the shell was restarted"}, nil
		}
	}
	return s.run(ctx, p.Command)
}

// run passes the command to the shell and reads its output until the end. A mark follows the
// command's output. It can't be guessed, and it is quoted in two parts so that a shell that echoes
// its input doesn't print it. Redirections that the command makes with exec end with it: otherwise
// the mark, and what later commands print, would go elsewhere.
func (s *bash) run(ctx context.Context, command string) (bashResult, error) {
	if err := s.start(ctx); err != nil {
		return bashResult{}, err
	}
	mark := rand.Text()
	line := fmt.Sprintf("eval %s </dev/null 2>&1 >&2; { printf '\\n%%s%%s %%d\\n' %s %s $?; } 2>/dev/null\n", quote(command), mark[:8], mark[8:])
	if err := s.write(ctx, line); err != nil {
		s.kill(ctx)
		return bashResult{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bashTimeout, errBashTimeout)
	defer cancel()
	return s.follow(ctx, mark)
}

// write sends text in parts of the maximum size of one process_write.
func (s *bash) write(ctx context.Context, text string) error {
	for part := range slices.Chunk([]rune(text), maxWrite) {
		if err := do(ctx, s.to, "process_write", args{"process_id": s.id, "data": string(part)}); err != nil {
			return err
		}
	}
	return nil
}

// start starts a shell if there is none, or if the last one has ended or was lost with its
// container. It writes both streams to one pipe: of two, one may be read after the mark.
func (s *bash) start(ctx context.Context) error {
	if s.id != "" && s.alive(ctx) {
		return nil
	}
	s.id, s.read = "", 0
	p, err := ask[struct {
		ID string `json:"process_id"`
	}](ctx, s.to, "process_start", args{"commands": []string{"bash", "-c", "exec bash --norc --noprofile 2>&1"}})
	if err != nil {
		return err
	}
	s.id = p.ID
	return nil
}

func (s *bash) alive(ctx context.Context) bool {
	read := s.read
	p, err := s.look(ctx, 0)
	s.read = read // output of background jobs so far belongs to the next command
	return err == nil && p.State == "running"
}

// look is the shell's output since the last look.
type look struct {
	Output string `json:"output"`
	Next   int64  `json:"next_offset"`
	State  string `json:"state"`
	Exit   *int   `json:"exit_code"`
	More   bool   `json:"truncated"`
}

func (s *bash) look(ctx context.Context, wait float64) (*look, error) {
	l, err := ask[look](ctx, s.to, "process_read", args{"process_id": s.id, "offset": s.read, "wait_seconds": wait})
	if err == nil {
		s.read = l.Next
	}
	return l, err
}

func (s *bash) kill(ctx context.Context) {
	if s.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bashGrace)
	defer cancel()
	_ = do(ctx, s.to, "process_signal", args{"process_id": s.id, "signal": "KILL"})
	s.id, s.read = "", 0
}

// close ends the shell, after giving up a running command.
func (s *bash) close(ctx context.Context) {
	if s.mu.Lock(ctx) == nil { // for good
		s.kill(ctx)
	}
}

// quote quotes a text as one word for bash.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

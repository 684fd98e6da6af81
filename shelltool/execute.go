package shelltool

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

var executeSpec = tool.Spec{
	Name: "shell_execute", Title: "Run a program",
	Description: "Run one program, or a bash script, in the workspace and wait for its end. There is no network. " +
		"A non-zero exit code is a normal answer. Each stream is kept up to 32 KiB, head and tail; read_output returns the rest. " +
		"When the call returns, everything that the program started has ended: use process_start for servers and long work.",
	Destructive: true, Effect: tool.ProgramEffect,
}

const (
	minTimeout     = time.Second
	defaultTimeout = 30 * time.Second
)

// ExecuteParams are the parameters of shell_execute.
type ExecuteParams struct {
	Command
	// Timeout in seconds; nil means 30. It is clamped to 1 to 120, which the notices of the
	// result report; NaN is invalid.
	Timeout *float64 `json:"timeout,omitempty" default:"30" jsonschema:"seconds until the program is ended, 1 to 120; clamped to that range"`
	// CaptureOutput false discards both streams; nil means true.
	CaptureOutput *bool `json:"capture_output,omitempty" default:"true" jsonschema:"false discards the output and reports only its size"`
}

// ExecuteResult is the result of shell_execute.
type ExecuteResult struct {
	Command       []string       `json:"command" jsonschema:"the program and its arguments, long ones cut; for a script, only the shell"`
	Cwd           string         `json:"cwd"`
	ExitCode      int            `json:"exit_code" jsonschema:"124 for a timeout, 128+n for signal n, -1 when the sandbox was lost or the program still runs"`
	Status        sandbox.Status `json:"status" jsonschema:"exited, signaled, timed_out, oom_killed, pids_limit, disk_limit, cancelled or sandbox_lost; running if the caller asked to poll"`
	Signal        string         `json:"signal,omitempty"`
	Stdout        string         `json:"stdout"`
	Stderr        string         `json:"stderr"`
	StdoutDropped int64          `json:"stdout_dropped" jsonschema:"bytes missing from stdout"`
	StderrDropped int64          `json:"stderr_dropped" jsonschema:"bytes missing from stderr"`
	TimedOut      bool           `json:"timed_out"`
	DurationMS    int64          `json:"duration_ms"`
	CPUMS         int64          `json:"cpu_ms,omitempty" jsonschema:"processor time of the program and the children that it waited for"`
	MaxRSSBytes   int64          `json:"max_rss_bytes,omitempty" jsonschema:"the largest memory of one of them"`
	OutputID      string         `json:"output_id,omitempty" jsonschema:"for read_output, when a stream was cut"`
	ProcessID     string         `json:"process_id,omitempty" jsonschema:"of a program that still runs; process_read has its output from the beginning"`
	Shared        bool           `json:"shared,omitempty" jsonschema:"other programs ran in the sandbox meanwhile"`
	Notices       []string       `json:"notices,omitempty"`
	NetworkDenied []string       `json:"network_denied,omitempty" jsonschema:"connections that the session's rules refused meanwhile, and how your user allows them"`
}

// WithDenied implements [tool.Networked].
func (r ExecuteResult) WithDenied(denied []string) (value any, text string) {
	r.NetworkDenied = denied
	return r, r.Text()
}

// Failed reports whether the program ended in any other way than an exit.
func (r ExecuteResult) Failed() bool {
	return r.Status != sandbox.StatusExited && r.Status != stateRunning
}

// Verdict returns the status for the audit log.
func (r ExecuteResult) Verdict() string { return string(r.Status) }

// Execute runs one program to its end. A failed program is a result; an
// error means that it didn't run. If ctx ends, the program is killed and the
// status is cancelled. With [tool.WithPolling], the result after that time is the id of a process,
// which goes on within its timeout.
func (s *Shell) Execute(ctx context.Context, p ExecuteParams) (*ExecuteResult, error) {
	timeout, notices, err := s.timeout(p.Timeout)
	if err != nil {
		return nil, err
	}
	cmd, shown, err := s.command(ctx, p.Command)
	if err != nil {
		return nil, err
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	said, err := s.chooseShell(ctx, p.Command, &cmd, shown)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	notices = append(notices, said...)
	cmd.Timeout = timeout
	record := s.outputs.record()
	if p.CaptureOutput == nil || *p.CaptureOutput {
		record.attach(&cmd)
		withProgress(ctx, &cmd)
	}
	res, goesOn, err := s.runFor(ctx, cmd, shown, p.Stdin)
	if err != nil || goesOn != nil {
		record.abandon()
	}
	switch {
	case err != nil:
		return nil, toolerr.Of(err)
	case goesOn != nil:
		return goesOn.handedOver(notices), nil
	}
	r := &ExecuteResult{Command: shown, Cwd: workspacePath(cmd.Dir), Notices: append(notices, res.Notices...), Shared: res.Shared}
	r.tell(res)
	if c := p.Commands; len(c) == 1 && strings.ContainsAny(c[0], " |;&<>$\t") && res.ExitCode == sandbox.ExitNotFound {
		r.Notices = append(r.Notices, "commands has one item, which was taken as the name of a program; give each argument as a separate item, or the whole line as script")
	}
	record.finish(res, r)
	return r, nil
}

// runFor runs a program to its end, or until its caller would rather poll, in which case it returns
// a process instead of a result.
func (s *Shell) runFor(ctx context.Context, cmd sandbox.Cmd, shown []string, stdin string) (sandbox.Result, *process, error) {
	if after := tool.Polling(ctx); after > 0 {
		return s.runUntil(ctx, cmd, shown, stdin, after)
	}
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	runner, err := s.opts.Runner(ctx)
	if err != nil {
		return sandbox.Result{}, nil, err
	}
	res, err := runner.Run(ctx, cmd)
	return res, nil, err
}

func (r *ExecuteResult) tell(res sandbox.Result) {
	r.ExitCode, r.Status, r.Signal = res.ExitCode, res.Status, res.Signal
	r.TimedOut = res.Status == sandbox.StatusTimedOut
	r.DurationMS = res.Duration.Milliseconds()
	r.CPUMS, r.MaxRSSBytes = (res.Usage.User + res.Usage.System).Milliseconds(), res.Usage.MaxRSS
}

// timeout clamps seconds to the range, and returns a notice if it changed them.
func (s *Shell) timeout(seconds *float64) (time.Duration, []string, error) {
	if seconds == nil {
		return min(defaultTimeout, s.opts.MaxTimeout), nil, nil
	}
	return clamp("timeout", *seconds, minTimeout, s.opts.MaxTimeout)
}

// clamp clamps a time in seconds to a range. Infinities count as very long.
func clamp(field string, seconds float64, least, most time.Duration) (time.Duration, []string, error) {
	switch {
	case math.IsNaN(seconds):
		return 0, nil, invalid(field, "%s is not a number; give seconds from %v to %v", field, least.Seconds(), most.Seconds())
	case seconds < least.Seconds():
		return least, []string{fmt.Sprintf("%s was raised to %v s, the minimum", field, least.Seconds())}, nil
	case seconds > most.Seconds():
		return most, []string{fmt.Sprintf("%s was lowered to %v s, the maximum", field, most.Seconds())}, nil
	}
	return time.Duration(seconds * float64(time.Second)), nil, nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/capture"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// programFlags are the flags of commands that run one program.
type programFlags struct {
	timeout time.Duration
	dir     string
}

func (f *programFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.timeout, "timeout", 0, "end the command after this `TIME`, as 90s (default never)")
	flags.StringVar(&f.dir, "cwd", "", "`DIR` to run in, relative to the workspace")
}

// check says what is wrong with the flags before a session is opened for them.
func (f *programFlags) check() error {
	if f.timeout < 0 {
		return usageError{fmt.Errorf("--timeout is %s; it can't be negative", f.timeout)}
	}
	if _, err := vfs.ParsePath(f.dir); err != nil {
		return asUsage(tool.Errorf(tool.KindOf(err), "--cwd %q: %s", f.dir, tool.AsError(err).Message).Because(err))
	}
	return nil
}

func needCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("the command to run is missing; write it behind --; see: %s --help", cmd.CommandPath())}
	}
	return nil
}

// runProgram runs argv with this process's streams, or with --json prints its
// result as one object. Its exit code becomes ours.
func (a *app) runProgram(ctx context.Context, s *wisbox.Session, f programFlags, argv []string) error {
	cmd := sandbox.Cmd{Argv: argv, Dir: f.dir, Stdin: a.in, Stdout: a.out, Stderr: a.err, Timeout: f.timeout}
	stdout, stderr := capture.NewStream(&capture.Options{Keep: jsonKeep}), capture.NewStream(&capture.Options{Keep: jsonKeep})
	if a.json {
		cmd.Stdout, cmd.Stderr = stdout, stderr
	}
	res, err := s.Run(ctx, cmd)
	if err != nil {
		return err
	}
	if a.json {
		out, errs := stdout.Finish(res.Stdout), stderr.Finish(res.Stderr)
		if err := a.printJSON(programResult{
			argv, res.ExitCode, res.Status, res.Signal, out.Text, errs.Text, out.Dropped, errs.Dropped, res.Duration.Milliseconds(),
		}); err != nil {
			return err
		}
	} else {
		a.explain(ctx, f, res)
	}
	return exitOf(ctx, res)
}

// programResult is what run and exec print with --json.
type programResult struct {
	Command  []string       `json:"command"`
	ExitCode int            `json:"exit_code"`
	Status   sandbox.Status `json:"status"`
	Signal   string         `json:"signal,omitempty"`
	Stdout   string         `json:"stdout"`
	Stderr   string         `json:"stderr"`
	// Dropped counts the bytes that are missing from the middle of a stream.
	StdoutDropped int64 `json:"stdout_dropped"`
	StderrDropped int64 `json:"stderr_dropped"`
	DurationMS    int64 `json:"duration_ms"`
}

// jsonKeep is how many bytes of each stream a result object holds: a program
// must not fill this process's memory.
const jsonKeep = 1 << 20

// explain says on stderr why a program ended, where its exit code alone doesn't.
func (a *app) explain(ctx context.Context, f programFlags, res sandbox.Result) {
	if ctx.Err() != nil { // who ended it knows
		return
	}
	switch res.Status {
	case sandbox.StatusTimedOut:
		fmt.Fprintf(a.err, "wisbox: the command was ended after %s (--timeout)\n", f.timeout)
	case sandbox.StatusOOMKilled:
		fmt.Fprintln(a.err, "wisbox: the command ran out of memory, which files in /tmp count to; give it more with --memory")
	case sandbox.StatusPIDsLimit:
		fmt.Fprintln(a.err, "wisbox: the command hit the limit of processes; give it more with --pids")
	case sandbox.StatusDiskLimit:
		fmt.Fprintln(a.err, "wisbox: the command filled the workspace; give it more with --disk")
	case sandbox.StatusCancelled:
		fmt.Fprintln(a.err, "wisbox: the command was ended, because its session was")
	case sandbox.StatusSandboxLost:
		fmt.Fprintln(a.err, "wisbox: the sandbox was lost under the command, perhaps out of memory, which files in /tmp count to; run it again")
	}
}

func exitOf(ctx context.Context, res sandbox.Result) error {
	switch {
	case res.Status == sandbox.StatusCancelled && ctx.Err() != nil:
		return ctx.Err()
	case res.Status == sandbox.StatusSandboxLost:
		return exitCode(exitEngine)
	case res.ExitCode == 0:
		return nil
	}
	return exitCode(res.ExitCode)
}

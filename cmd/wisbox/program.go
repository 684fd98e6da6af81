package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/capture"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// programFlags are the flags of commands that run one program.
type programFlags struct {
	timeout  time.Duration
	dir      string // after check, in the form of sandbox.Cmd
	user     string
	env      []string // in addition to the session's
	reported bool     // the command has no input, and its report lists denials
	typed    bool     // pass on this terminal's input too
}

func (f *programFlags) register(flags *pflag.FlagSet) {
	flags.Var(timeFlag{&f.timeout}, "timeout", "end the command after this `TIME`, e.g. 90, 90s or 2m (default never)")
	flags.StringVarP(&f.dir, "workdir", "w", "", "`DIR` to run in, relative to the workspace or absolute")
	flags.StringVarP(&f.user, "user", "u", "", "refused: every command runs as user 1000 of the container, not as another `USER`")
	_ = flags.MarkHidden("user") // known from docker
}

// check validates the flags before a session is opened.
func (f *programFlags) check() error {
	if f.timeout < 0 {
		return usageError{fmt.Errorf("--timeout is %s; it can't be negative", f.timeout)}
	}
	if f.user != "" {
		return usageError{tool.Errorf(tool.Unsupported, "--user: every command runs as user 1000 of the container, without any right; leave it out").In("user")}
	}
	return f.checkDir()
}

func (f *programFlags) checkDir() error {
	if path.IsAbs(f.dir) && !strings.HasPrefix(path.Clean(f.dir)+"/", sandbox.WorkspaceDir+"/") {
		f.dir = path.Clean(f.dir)
		return nil // the sandbox checks that it exists
	}
	dir, err := vfs.Any.Parse(f.dir)
	if err != nil {
		return asUsage(tool.Errorf(tool.KindOf(err), "--workdir %q: %s", f.dir, tool.AsError(err).Message).Because(err))
	}
	f.dir = dir
	return nil
}

// cmd returns a command with the flags, without streams.
func (f *programFlags) cmd(argv []string) sandbox.Cmd {
	return sandbox.Cmd{Argv: argv, Dir: f.dir, Env: f.env, Timeout: f.timeout}
}

func needCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("the command to run is missing; write it after --; see: %s --help", cmd.CommandPath())}
	}
	for i, arg := range args {
		if !utf8.ValidString(arg) {
			return usageError{fmt.Errorf("argument %d of the command, %q, is not UTF-8; pass the bytes by standard input or a file", i, arg)}
		}
	}
	return nil
}

// runProgram runs argv with this process's streams, or with --json prints its result as one object.
// It returns the program's exit code.
func (a *app) runProgram(ctx context.Context, s *wisbox.Session, f programFlags, argv []string) error {
	result, err := a.resultOf(ctx, s, f, argv)
	if result != nil && a.json {
		if err := a.printJSON(result); err != nil {
			return err
		}
	}
	return err
}

// resultOf is like runProgram but doesn't print the result, which is nil if nothing ran.
func (a *app) resultOf(ctx context.Context, s *wisbox.Session, f programFlags, argv []string) (*programResult, error) {
	cmd := f.cmd(argv)
	cmd.Stdout, cmd.Stderr = a.out, a.err
	if !f.reported {
		cmd.Stdin = a.input(f.typed)
	}
	ctx, signals, stop := a.signals.Pass(ctx)
	defer stop()
	cmd.Signals = signals
	stdout, stderr := capture.NewStream(&capture.Options{Keep: jsonKeep}), capture.NewStream(&capture.Options{Keep: jsonKeep})
	if a.json {
		cmd.Stdout, cmd.Stderr = stdout, stderr
	}
	res, err := s.Run(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if !a.json {
		a.explain(ctx, f, res)
	}
	out, errs := stdout.Finish(res.Stdout), stderr.Finish(res.Stderr)
	return &programResult{
		argv, res.ExitCode, res.Status, res.Signal, out.Text, errs.Text, out.Dropped, errs.Dropped, res.Duration.Milliseconds(), res.NetworkDenied, res.Notices,
	}, exitOf(ctx, res)
}

// input returns the input of a command without a terminal, see [streams.Input]. Tests have other inputs than files.
func (a *app) input(typed bool) io.Reader {
	if f, ok := a.in.(*os.File); ok {
		return streams.Input(f, typed)
	}
	return a.in
}

// programResult is the output of run and exec with --json.
type programResult struct {
	Command  []string       `json:"command"`
	ExitCode int            `json:"exit_code"`
	Status   sandbox.Status `json:"status"`
	Signal   string         `json:"signal,omitempty"`
	Stdout   string         `json:"stdout"`
	Stderr   string         `json:"stderr"`
	// Dropped counts the bytes cut from the middle of a stream.
	StdoutDropped int64 `json:"stdout_dropped"`
	StderrDropped int64 `json:"stderr_dropped"`
	DurationMS    int64 `json:"duration_ms"`
	// NetworkDenied lists what the session's rules refused meanwhile.
	NetworkDenied []string `json:"network_denied,omitempty"`
	// Notices are sentences about the program's end.
	Notices []string `json:"notices,omitempty"`
}

// jsonKeep is the number of bytes that a result object has of each stream: a program must not fill
// this process's memory.
const jsonKeep = 1 << 20

// explain reports on stderr why a program ended, if its exit code isn't enough.
func (a *app) explain(ctx context.Context, f programFlags, res sandbox.Result) {
	var late streams.Late
	switch {
	case errors.As(context.Cause(ctx), &late):
		fmt.Fprintln(a.err, "wisbox:", late.Report())
		return
	case ctx.Err() != nil: // the person who ended it knows
		return
	}
	for _, line := range explanations(f, res) {
		fmt.Fprintf(a.err, "wisbox: %s\n", line)
	}
}

// explanations are sentences about a program's end.
func explanations(f programFlags, res sandbox.Result) (lines []string) {
	for _, denied := range res.NetworkDenied {
		if !f.reported {
			lines = append(lines, "network denied: "+streams.Printable(denied))
		}
	}
	for _, notice := range res.Notices {
		if strings.HasPrefix(notice, sandbox.NoNetwork) || strings.HasPrefix(notice, sandbox.NoProgram) {
			lines = append(lines, streams.Printable(notice))
		}
	}
	switch {
	case res.Status == sandbox.StatusTimedOut && f.timeout != 0:
		lines = append(lines, fmt.Sprintf("the command was ended after %s (--timeout)", f.timeout))
	case endings[res.Status] != "":
		lines = append(lines, endings[res.Status])
	}
	return lines
}

var endings = map[sandbox.Status]string{
	sandbox.StatusTimedOut:    "the command was ended at its time limit",
	sandbox.StatusOOMKilled:   "the command ran out of memory, which files in /tmp and in the home directory count to; give it more with --memory",
	sandbox.StatusPIDsLimit:   "the command hit the limit of processes; give it more with --pids",
	sandbox.StatusDiskLimit:   "the command filled the workspace; give it more with --disk",
	sandbox.StatusCancelled:   "the command was ended, because its session was",
	sandbox.StatusSandboxLost: "the sandbox was lost under the command, perhaps out of memory, which files in /tmp and in the home directory count to; run it again",
}

func exitOf(ctx context.Context, res sandbox.Result) error {
	switch {
	case res.Status == sandbox.StatusCancelled && ctx.Err() != nil:
		return context.Cause(ctx)
	case res.Status == sandbox.StatusSandboxLost:
		return exitCode(exitEngine)
	case res.ExitCode == 0:
		return nil
	}
	return exitCode(res.ExitCode)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"

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
	timeout  time.Duration
	dir      string // with check, as a sandbox.Cmd has it
	workdir  string
	user     string
	env      []string // beside those of the session
	reported bool     // the command has no input, and a report says what was denied
}

func (f *programFlags) register(flags *pflag.FlagSet) {
	flags.Var(timeFlag{&f.timeout}, "timeout", "end the command after this `TIME`, as 90, 90s or 2m (default never)")
	flags.StringVarP(&f.workdir, "workdir", "w", "", "`DIR` to run in, relative to the workspace or as the container has it, /workspace/src")
	flags.StringVar(&f.dir, "cwd", "", "`DIR` to run in, relative to the workspace, as the tools take it")
	flags.StringVarP(&f.user, "user", "u", "", "`USER` to run as: refused, every command runs as user 1000 of the container")
}

// check says what is wrong with the flags before a session is opened for them.
func (f *programFlags) check() error {
	if f.timeout < 0 {
		return usageError{fmt.Errorf("--timeout is %s; it can't be negative", f.timeout)}
	}
	if f.user != "" {
		return usageError{tool.Errorf(tool.Unsupported, "--user: every command runs as user 1000 of the container, without any right; leave it out").In("user")}
	}
	return f.checkDir()
}

// checkDir makes one directory of the two flags.
func (f *programFlags) checkDir() error {
	flag, given := "cwd", f.dir
	if f.workdir != "" {
		if f.dir != "" {
			return usageError{errors.New("--workdir and --cwd are the same; give one of the two")}
		}
		flag, given = "workdir", f.workdir
		if path.IsAbs(given) && !strings.HasPrefix(path.Clean(given)+"/", sandbox.WorkspaceDir+"/") {
			f.dir, f.workdir = path.Clean(given), ""
			return nil // the sandbox knows
		}
	}
	dir, err := vfs.Any.Parse(given)
	if err != nil {
		return asUsage(tool.Errorf(tool.KindOf(err), "--%s %q: %s", flag, given, tool.AsError(err).Message).Because(err))
	}
	f.dir, f.workdir = dir, ""
	return nil
}

// cmd is a command with the flags, without streams.
func (f *programFlags) cmd(argv []string) sandbox.Cmd {
	return sandbox.Cmd{Argv: argv, Dir: f.dir, Env: f.env, Timeout: f.timeout}
}

func needCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("the command to run is missing; write it behind --; see: %s --help", cmd.CommandPath())}
	}
	for i, arg := range args {
		if !utf8.ValidString(arg) {
			return usageError{fmt.Errorf("argument %d of the command, %q, is not UTF-8; pass the bytes by standard input or a file", i, arg)}
		}
	}
	return nil
}

// runProgram runs argv with this process's streams, or with --json prints its
// result as one object. Its exit code becomes ours.
func (a *app) runProgram(ctx context.Context, s *wisbox.Session, f programFlags, argv []string) error {
	result, err := a.resultOf(ctx, s, f, argv)
	if result != nil && a.json {
		if err := a.printJSON(result); err != nil {
			return err
		}
	}
	return err
}

// resultOf is runProgram without the print of the result. That is nil where nothing ran.
func (a *app) resultOf(ctx context.Context, s *wisbox.Session, f programFlags, argv []string) (*programResult, error) {
	cmd := f.cmd(argv)
	cmd.Stdout, cmd.Stderr = a.out, a.err
	if !f.reported {
		cmd.Stdin = a.in
	}
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
		argv, res.ExitCode, res.Status, res.Signal, out.Text, errs.Text, out.Dropped, errs.Dropped, res.Duration.Milliseconds(), res.NetworkDenied,
	}, exitOf(ctx, res)
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
	// NetworkDenied says what the session's rules refused meanwhile.
	NetworkDenied []string `json:"network_denied,omitempty"`
}

// jsonKeep is how many bytes of each stream a result object holds: a program
// must not fill this process's memory.
const jsonKeep = 1 << 20

// explain says on stderr why a program ended, where its exit code alone doesn't.
func (a *app) explain(ctx context.Context, f programFlags, res sandbox.Result) {
	if ctx.Err() != nil { // who ended it knows
		return
	}
	for _, line := range explanations(f, res) {
		fmt.Fprintf(a.err, "wisbox: %s\n", line)
	}
}

// explanations are sentences about the end of a program.
func explanations(f programFlags, res sandbox.Result) (lines []string) {
	for _, denied := range res.NetworkDenied {
		if !f.reported {
			lines = append(lines, "network denied: "+printable(denied))
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
	sandbox.StatusOOMKilled:   "the command ran out of memory, which files in /tmp count to; give it more with --memory",
	sandbox.StatusPIDsLimit:   "the command hit the limit of processes; give it more with --pids",
	sandbox.StatusDiskLimit:   "the command filled the workspace; give it more with --disk",
	sandbox.StatusCancelled:   "the command was ended, because its session was",
	sandbox.StatusSandboxLost: "the sandbox was lost under the command, perhaps out of memory, which files in /tmp count to; run it again",
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

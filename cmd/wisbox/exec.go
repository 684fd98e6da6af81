package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

type execOptions struct {
	programFlags
	terminalFlags
	envFlags
	detach   bool
	waitPort uint16
}

func (a *app) newExecCmd() *cobra.Command {
	opts := &execOptions{}
	cmd := &cobra.Command{
		Use:   "exec [flags] SESSION -- CMD [ARG…]",
		Short: "Run a command in a session",
		Long: `Runs the command in the session's container with this terminal's input and
output, and exits with its exit code; see: wisbox help exit-codes.
With --detach the command belongs to the session: exec prints its id and returns,
and the command runs until it or the session ends. wisbox ps, logs, attach and kill
take that id, and so do the tools process_read and process_signal. wisbox keeps its
newest 8 MiB of output. Its input is empty, or with --interactive stays open for
wisbox attach. With --wait-port exec returns once the command listens on that port;
see: wisbox port.`,
		Example: `  wisbox exec box -- python3 -m unittest
  echo hello | wisbox exec box -- cat
  wisbox exec -it box bash
  wisbox exec -d -w src -e PORT=8000 --wait-port 8000 box -- python3 server.py`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := atLeast("SESSION")(cmd, args); err != nil {
				return err
			}
			if len(args) > 1 && args[1] != "--" && strings.HasPrefix(args[1], "-") {
				return usageError{fmt.Errorf("%q follows SESSION; put flags before it, and the command after --", args[1])}
			}
			return needCommand(cmd, args[1:])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runExec(cmd.Context(), opts, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	opts.programFlags.register(flags)
	opts.terminalFlags.register(flags, "pass on also what is typed on this terminal; with --detach keep the command's input open")
	opts.envFlags.register(flags, "the command")
	flags.BoolVarP(&opts.detach, "detach", "d", false, "print the command's id and leave it running")
	flags.Uint16Var(&opts.waitPort, "wait-port", 0, "with --detach wait until something listens on this `PORT` of the session, at most 30 s")
	return cmd
}

func (a *app) runExec(ctx context.Context, opts *execOptions, name string, argv []string) error {
	if argv[0] == "--" { // if flags stand before SESSION only, cobra leaves the marker in
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return usageError{errors.New("the command to run is missing; write it after --")}
	}
	if err := opts.check(a); err != nil {
		return err
	}
	opts.typed = opts.interactive
	run := func(s *wisbox.Session) error { return a.runProgram(ctx, s, opts.programFlags, argv) }
	switch {
	case opts.detach:
		run = func(s *wisbox.Session) error { return a.runDetached(ctx, s, opts, argv) }
	case opts.tty:
		run = func(s *wisbox.Session) error { return a.runTerminal(ctx, s, &opts.programFlags, argv) }
	}
	return a.engineError(ctx, a.withSession(ctx, name, run))
}

func (o *execOptions) check(a *app) (err error) {
	if err := o.programFlags.check(); err != nil {
		return err
	}
	if !o.detach {
		if o.waitPort != 0 {
			return usageError{errors.New("--wait-port needs --detach; add it")}
		}
		if err := o.terminalFlags.check(a); err != nil {
			return err
		}
	}
	o.env, err = o.envFlags.list()
	return err
}

// runDetached starts a process of the session, and fails if the program can't be executed.
func (a *app) runDetached(ctx context.Context, s *wisbox.Session, opts *execOptions, argv []string) error {
	cmd := opts.cmd(argv)
	if opts.tty {
		size := a.size()
		cmd.TTY, cmd.Env = &size, append([]string{"TERM=" + termName()}, cmd.Env...)
	}
	info, err := s.StartProcess(ctx, cmd, &wisbox.ProcessOptions{KeepStdin: opts.interactive, WaitPort: opts.waitPort})
	if err != nil {
		return err
	}
	if err := a.print(info, func(w io.Writer) { fmt.Fprintln(w, info.ProcessID) }); err != nil {
		return err
	}
	if code := info.ExitCode; code != nil && (*code == sandbox.ExitNotFound || *code == sandbox.ExitNotExecutable) {
		fmt.Fprintf(a.err, "wisbox: the command has ended already, exit code %d; see: wisbox logs %s %s\n", *code, s.ID(), info.ProcessID)
		return exitCode(*code)
	}
	return a.sayListens(s, opts, info)
}

// sayListens reports that a wait for a port ended without the port.
func (a *app) sayListens(s *wisbox.Session, opts *execOptions, info *wisbox.ProcessInfo) error {
	switch {
	case opts.waitPort == 0 || info.Listens != nil && *info.Listens:
		return nil
	case info.ExitCode != nil:
		fmt.Fprintf(a.err, "wisbox: the command has ended, exit code %d, before anything listened on port %d; see: wisbox logs %s %s\n", *info.ExitCode, opts.waitPort, s.ID(), info.ProcessID)
	default:
		fmt.Fprintf(a.err, "wisbox: nothing listens on port %d yet; the command goes on, see: wisbox logs %s %s\n", opts.waitPort, s.ID(), info.ProcessID)
	}
	return exitCode(1)
}

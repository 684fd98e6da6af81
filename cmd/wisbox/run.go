package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/patience"
)

type runOptions struct {
	sessionFlags
	programFlags
	terminalFlags
	noTTY bool
}

func (a *app) newRunCmd() *cobra.Command {
	opts := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG…]",
		Short: "Run one command in a new session and remove it",
		Long: `Opens a session, copies the mounts in, runs the command in /workspace with this
terminal's input and output, and removes everything. It exits with the command's exit
code; see: wisbox help exit-codes. If input and output are a terminal, the command gets one
too, and all keys, including Ctrl-C.`,
		Example: `  wisbox run -- python3 -c 'print(6 * 7)'
  wisbox run --mount ./project --memory 512m -- python3 -m unittest
  wisbox run --allow python -- pip install --target lib requests
  wisbox run --egress record -- ./install.sh
  wisbox run -- bash`,
		Args: needCommand,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runRun(cmd.Context(), opts, args) },
	}
	opts.sessionFlags.register(cmd.Flags())
	opts.registerRecord(cmd.Flags())
	opts.programFlags.register(cmd.Flags())
	opts.terminalFlags.register(cmd.Flags(), "pass on also what is typed on this terminal")
	for _, name := range lifeFlags {
		cmd.Flags().Lookup(name).Hidden = true
	}
	cmd.Flags().BoolVarP(&opts.noTTY, "no-tty", "T", false, "give the command no terminal, even if this is one")
	return cmd
}

func (a *app) runRun(ctx context.Context, opts *runOptions, argv []string) error {
	if err := opts.check(a); err != nil {
		return err
	}
	so, err := a.sessionOptions(&opts.sessionFlags)
	if err != nil {
		return a.engineError(ctx, err)
	}
	return a.engineError(ctx, a.runOnce(ctx, opts, so, argv))
}

// lifeFlags have no meaning for run, whose session ends with the command.
var lifeFlags = []string{"ttl", "idle"}

func (o *runOptions) check(a *app) error {
	for _, name := range lifeFlags {
		if o.flags.Changed(name) {
			return usageError{fmt.Errorf("--%s: the session of run ends with its command; use --timeout TIME", name)}
		}
	}
	if o.tty && o.noTTY {
		return usageError{errors.New("--tty and --no-tty exclude each other; give one of the two")}
	}
	if err := o.programFlags.check(); err != nil {
		return err
	}
	return o.terminalFlags.check(a)
}

func (a *app) runOnce(ctx context.Context, opts *runOptions, so *wisbox.SessionOptions, argv []string) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := a.open(ctx, m, &opts.sessionFlags, so)
	if err != nil {
		return err
	}
	if !so.Strict {
		a.sayUnenforced()
	}
	opts.typed = opts.interactive
	if opts.tty || !opts.noTTY && !a.json && a.atTerminal() && a.inForeground() {
		err = a.runTerminal(ctx, s, &opts.programFlags, argv)
	} else {
		err = a.runProgram(ctx, s, opts.programFlags, argv)
	}
	if so.EgressRecord {
		err = errors.Join(err, a.printRecorded(ctx, s))
	}
	return errors.Join(err, a.closeSession(ctx, s))
}

// printRecorded reports, on stderr, the rules that a recorded run needed, also for an interrupted
// run.
func (a *app) printRecorded(ctx context.Context, s *wisbox.Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	e, err := s.Egress(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return streams.WriteJSON(a.err, map[string][]string{"recorded": append([]string{}, e.Recorded...)})
	}
	fmt.Fprintf(a.err, "wisbox: %s\n", recordedText(e.Recorded))
	return nil
}

// recordedText returns the rules as flags. They contain nothing special to a shell.
func recordedText(rules []string) string {
	if len(rules) == 0 {
		return "recorded: there were no connections, so no --allow is needed"
	}
	return "recorded: " + streams.Printable("--allow "+strings.Join(rules, " --allow "))
}

// closeGrace bounds the end of a session after its command, also after a signal.
var closeGrace = patience.For(30 * time.Second)

func (a *app) closeSession(ctx context.Context, s *wisbox.Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	return s.Close(ctx)
}

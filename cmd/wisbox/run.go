package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
)

type runOptions struct {
	sessionFlags
	programFlags
}

func (a *app) newRunCmd() *cobra.Command {
	opts := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG…]",
		Short: "Run one command in a session of its own",
		Long: `Opens a session, copies the mounts in, runs the command in /workspace with this
terminal's input and output, and removes everything. The command's exit code is
passed on; see: wisbox exit-codes.`,
		Example: `  wisbox run -- python3 -c 'print(6 * 7)'
  wisbox run --mount ./project --memory 512m -- python3 -m unittest`,
		Args: needCommand,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runRun(cmd.Context(), opts, args) },
	}
	opts.sessionFlags.register(cmd.Flags())
	opts.programFlags.register(cmd.Flags())
	return cmd
}

func (a *app) runRun(ctx context.Context, opts *runOptions, argv []string) error {
	if err := opts.check(); err != nil {
		return err
	}
	so, err := a.sessionOptions(&opts.sessionFlags)
	if err != nil {
		return a.engineError(ctx, err)
	}
	return a.engineError(ctx, a.runOnce(ctx, opts, so, argv))
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
	return errors.Join(a.runProgram(ctx, s, opts.programFlags, argv), a.closeSession(ctx, s))
}

// closeGrace bounds the end of a session after its command, also when a signal
// ended the command.
const closeGrace = 30 * time.Second

func (a *app) closeSession(ctx context.Context, s *wisbox.Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	return s.Close(ctx)
}

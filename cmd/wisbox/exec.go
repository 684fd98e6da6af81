package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
)

func (a *app) newExecCmd() *cobra.Command {
	opts := &programFlags{}
	cmd := &cobra.Command{
		Use:   "exec [flags] SESSION -- CMD [ARG…]",
		Short: "Run a command in a session",
		Long: `Runs the command in the session's container with this terminal's input and
output and passes its exit code on; see: wisbox exit-codes.`,
		Example: `  wisbox exec box -- python3 -m unittest
  echo hello | wisbox exec box -- cat`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := atLeastSession(cmd, args); err != nil {
				return err
			}
			return needCommand(cmd, args[1:])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runExec(cmd.Context(), opts, args[0], args[1:])
		},
	}
	cmd.Flags().SetInterspersed(false)
	opts.register(cmd.Flags())
	return cmd
}

func atLeastSession(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exactArgs("SESSION")(cmd, args)
	}
	return nil
}

func (a *app) runExec(ctx context.Context, opts *programFlags, name string, argv []string) error {
	if argv[0] == "--" { // with flags before SESSION only, cobra leaves the marker in
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return usageError{errors.New("the command to run is missing; write it behind --")}
	}
	return a.engineError(ctx, a.withSession(ctx, name, func(s *wisbox.Session) error {
		return a.runProgram(ctx, s, *opts, argv)
	}))
}

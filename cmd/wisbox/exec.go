package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
			if err := atLeast("SESSION")(cmd, args); err != nil {
				return err
			}
			if len(args) > 1 && args[1] != "--" && strings.HasPrefix(args[1], "-") {
				return usageError{fmt.Errorf("%q stands behind SESSION; flags go before it, and the command behind --", args[1])}
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

func (a *app) runExec(ctx context.Context, opts *programFlags, name string, argv []string) error {
	if argv[0] == "--" { // with flags before SESSION only, cobra leaves the marker in
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return usageError{errors.New("the command to run is missing; write it behind --")}
	}
	if err := opts.check(); err != nil {
		return err
	}
	return a.engineError(ctx, a.withSession(ctx, name, func(s *wisbox.Session) error {
		return a.runProgram(ctx, s, *opts, argv)
	}))
}

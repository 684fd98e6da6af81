package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newShellCmd() *cobra.Command {
	opts, env := &programFlags{}, &envFlags{}
	cmd := &cobra.Command{
		Use:   "shell [flags] SESSION [-- CMD [ARG…]]",
		Short: "Open a terminal in a session",
		Long: `Runs bash, or the given command, on a new terminal in the session. All keys go to the
program, including Ctrl-C, and the terminal's size follows this one's.`,
		Args: atLeast("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := args[1:]
			if len(argv) == 0 {
				argv = []string{"bash", "-l"}
			}
			return a.runShell(cmd.Context(), opts, env, args[0], argv)
		},
	}
	opts.register(cmd.Flags())
	env.register(cmd.Flags(), "the command")
	return cmd
}

func (a *app) runShell(ctx context.Context, opts *programFlags, env *envFlags, name string, argv []string) (err error) {
	if err := opts.check(); err != nil {
		return err
	}
	if opts.env, err = env.list(); err != nil {
		return err
	}
	if _, ok := a.keyboard(); !ok {
		return a.engineError(ctx, tool.Errorf(tool.Unsupported, "shell needs a terminal as its input; use: wisbox exec %s -- CMD", name))
	}
	return a.engineError(ctx, a.withSession(ctx, name, func(s *wisbox.Session) error {
		return a.runTerminal(ctx, s, opts, argv)
	}))
}

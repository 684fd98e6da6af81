package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

const rootHelp = `wisbox gives an agent a workspace, a directory on this machine that programs
see as /workspace in a limited container without a network, and tools for it.

Begin with:
  wisbox image build                    build the image that programs run in, once
  wisbox run --mount . -- python3 -V    run one command on a copy of this folder
  wisbox agent claude                   run a coding agent on a copy of this folder
  wisbox create box --mount .           create a session that stays
  wisbox exec box -- ls -l              run a command in it; wisbox shell box opens a terminal
  wisbox diff box                       show its changes; wisbox undo box undoes the last ones
  wisbox apply box                      write its changes to this folder`

const exitCodesHelp = `0      done
1      error; stderr has its kind and message, as JSON with --json
2      usage error: an unknown or invalid command, flag or argument
128+n  wisbox was killed by signal n

eval exits with 124 if the code timed out.
run, exec, shell and attach exit with the program's own code, and with
124    if --timeout ended the program
125    if wisbox or Podman failed: nothing ran, or the sandbox was lost under the program
126    if the program can't be executed
127    if the program was not found
128+n  if signal n killed the program`

func (a *app) newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "wisbox",
		Short:         "Run programs of AI agents in sandboxed workspaces",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := patience.Check(); err != nil {
				return usageError{err}
			}
			name := nameOf(cmd)
			a.ofTools = slices.Contains([]string{"mcp", "tools"}, name)
			if !slices.Contains(alwaysHere, name) && !slices.Contains([]string{"mcp", "serve", "ui", "top"}, name) { // whose stderr is for their callers
				cmd.SetContext(tool.WithProgress(cmd.Context(), streams.Waits(a.err)))
			}
			return a.chooseRemote(cmd)
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(a.flagError)
	root.SetHelpCommand(newHelpCmd(root))
	setHelp(root)
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print results and errors as JSON")
	flags.BoolVar(&a.debug, "debug", false, "log to stderr")
	flags.StringVar(&a.cache, "cache", "", "state `DIR` (default $WISBOX_CACHE, or wisbox in $XDG_CACHE_HOME)")
	flags.BoolVar(&a.noConfig, "no-config", false, "read no configuration files (default $WISBOX_NO_CONFIG); see wisbox config")
	flags.StringVar(&a.url, "podman", "", "`URL` of Podman's service, unix:///path or ssh://host (default: find one)")
	flags.StringVar(&a.remote, "remote", "", "`NAME` of the machine with the sessions (default $WISBOX_REMOTE)")
	root.AddCommand(
		a.newRunCmd(), a.newAgentCmd(), a.newExecCmd(), a.newShellCmd(), a.newPsCmd(), a.newLogsCmd(), a.newAttachCmd(), a.newKillCmd(), a.newPortCmd(), a.newSSHConfigCmd(), a.newSSHProxyCmd(), a.newCallCmd(), a.newEvalCmd(), a.newReplCmd(),
		a.newDiffCmd(), a.newApplyCmd(), a.newBranchCmd(), a.newSnapshotCmd(), a.newTemplateCmd(), a.newUndoCmd(), a.newLogCmd(), a.newCpCmd(), a.newToolsCmd(), a.newImageCmd(), a.newMountCmd(), a.newMCPCmd(), a.newServeCmd(), a.newUICmd(),
		a.newPruneCmd(), a.newStatsCmd(), a.newTopCmd(), a.newDoctorCmd(), a.newConfigCmd(), a.newInitCmd(), a.newTrustCmd(), a.newVersionCmd(), a.newRemoteCmd(), a.newLabCmd(), a.newHoldCmd(), a.newRelayCmd(), a.newReportCmd(), a.newPagesCmd(root),
		&cobra.Command{Use: "exit-codes", Short: "Describe the exit codes", Long: exitCodesHelp}, newSessionFlagsCmd(), newGlobalFlagsCmd(flags), newEnvironmentCmd(),
	)
	root.AddCommand(a.sessionCommands()...)
	root.AddCommand(hidden(append(a.labCommands(), group("session", "Create, inspect and remove sessions", a.sessionCommands()...))...)...)
	root.AddCommand(a.podCommands()...)
	a.complete(root)
	strictCompletion(root)
	return root
}

// strictCompletion makes cobra's own command refuse unknown arguments, in wisbox's words.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd("")
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args = noSuchCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range cmd.Commands() {
			shell.Args = noArgs
		}
	}
}

// newHelpCmd returns cobra's help command, changed to fail for an unknown command.
func newHelpCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND…]",
		Short: "Help about any command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return commandsBelow(root, args), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = noSuchCommand(cmd, rest)
			}
			if err != nil {
				return asUsage(err)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

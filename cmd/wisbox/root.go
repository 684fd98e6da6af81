package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootHelp = `wisbox gives an agent a workspace: a directory on this machine that programs
see as /workspace in a container without network, with limits on processor,
memory, processes and disk, and one set of tools over it.

Begin with:
  wisbox image build                          once: the image that programs run in
  wisbox run --mount . -- python3 -V          one command in a session of its own
  wisbox session create box --mount ./src     a session that stays
  wisbox exec box -- ls -l                    run programs in it
  wisbox diff box                             what it has changed; wisbox apply brings it home
  wisbox agent claude                         a coding agent on a copy of this folder
  wisbox call box read_file '{"file_path":"README.md"}'
  wisbox rm box`

const exitCodesHelp = `0      done
1      an error: its kind and message are on stderr, as JSON with --json
2      the command line is wrong: a flag or an argument that can't be
128+n  wisbox was ended by signal n

eval ends with 124 where the code ran out of time.
run, exec, shell and attach pass the program's own exit code on, and
124    the program was ended by --timeout
125    wisbox or Podman failed: nothing ran, or the sandbox was lost under the program
126    the program can't be executed
127    there is no such program
128+n  the program was ended by signal n`

func (a *app) newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "wisbox",
		Short:         "Sandboxed workspaces for agents",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelpCmd(root))
	root.SetUsageTemplate(wrappedUsage(root))
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print results and errors as JSON")
	flags.BoolVar(&a.debug, "debug", false, "log what happens to stderr")
	flags.StringVar(&a.cache, "cache", "", "`DIR` that holds the sessions (default $WISBOX_CACHE, or wisbox in the XDG cache directory)")
	flags.BoolVar(&a.noConfig, "no-config", false, "read neither wisbox.toml nor your own configuration (default $WISBOX_NO_CONFIG), see: wisbox config")
	flags.StringVar(&a.url, "podman", "", "`URL` of a Podman service, as unix:///path or ssh://host (default: find one or start one)")
	root.AddCommand(
		a.newRunCmd(), a.newAgentCmd(), a.newExecCmd(), a.newShellCmd(), a.newPsCmd(), a.newLogsCmd(), a.newAttachCmd(), a.newKillCmd(), a.newPortCmd(), a.newSSHConfigCmd(), a.newSSHProxyCmd(), a.newCallCmd(), a.newEvalCmd(), a.newContextCmd(), a.newReplCmd(), a.newWasmCmd(), a.newRlmCmd(),
		a.newDiffCmd(), a.newApplyCmd(), a.newBranchCmd(), a.newSnapshotCmd(), a.newTemplateCmd(), a.newUndoCmd(), a.newDigestCmd(), a.newSessionCmd(), a.newCpCmd(), a.newToolsCmd(), a.newImageCmd(), a.newMountCmd(), a.newMCPCmd(), a.newServeCmd(), a.newUICmd(),
		a.newPruneCmd(), a.newDoctorCmd(), a.newBenchCmd(), a.newLogCmd(), a.newMetricsCmd(), a.newConfigCmd(), a.newInitCmd(), a.newTrustCmd(), a.newVersionCmd(), a.newHoldCmd(),
		&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp},
	)
	root.AddCommand(a.shortNames()...)
	a.complete(root)
	strictCompletion(root)
	return root
}

// strictCompletion has cobra's own command refuse what it doesn't know, in our words.
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

// helpWidth is how many columns the lines of flags have.
const helpWidth = 99

// wrappedUsage is cobra's own template with the lines of flags broken.
func wrappedUsage(root *cobra.Command) string {
	cobra.AddTemplateFunc("wrapped", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(helpWidth) })
	t := strings.ReplaceAll(root.UsageTemplate(), ".LocalFlags.FlagUsages", "wrapped .LocalFlags")
	return strings.ReplaceAll(t, ".InheritedFlags.FlagUsages", "wrapped .InheritedFlags")
}

// newHelpCmd is cobra's help, that fails where there is no such command.
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

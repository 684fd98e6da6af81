package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the maximum width of help, in columns.
const helpWidth = 99

// usageTemplate is cobra's own, shortened to fit a screen: it lists rare and global flags by name
// only, and the root lists all commands by name.
const usageTemplate = `{{if .HasParent}}{{if or .Runnable .HasAvailableSubCommands}}Usage:{{end}}{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{commands .}}{{end}}{{with flags .LocalFlags}}

Flags:
{{.}}{{end}}{{if .HasAvailableInheritedFlags}}

Global flags (wisbox help global-flags): {{names .InheritedFlags}}{{end}}
{{else}}Commands:{{overview}}

Help topics: {{topics .}}

wisbox COMMAND --help describes a command, and wisbox help TOPIC a topic.
{{end}}`

func setHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("commands", commandLines)
	cobra.AddTemplateFunc("overview", overview)
	cobra.AddTemplateFunc("topics", topics)
	cobra.AddTemplateFunc("flags", flagLines)
	cobra.AddTemplateFunc("names", func(f *pflag.FlagSet) string { return strings.Join(flagNames(f, isAny), ", ") })
	root.SetUsageTemplate(usageTemplate)
}

// rare marks a flag of new sessions for special cases.
const rare = "wisbox/rare"

// markRare marks all flags of a set except for the named ones.
func markRare(flags *pflag.FlagSet, but ...string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(but, f.Name) {
			f.Annotations = map[string][]string{rare: nil}
		}
	})
}

func isRare(f *pflag.Flag) bool { _, marked := f.Annotations[rare]; return marked }
func isAny(*pflag.Flag) bool    { return true }

// flagLines describes the flags of a command, and lists rare ones by name.
func flagLines(all *pflag.FlagSet) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if !isRare(f) && f.Name != "help" {
			shown.AddFlag(f)
		}
	})
	lines := strings.TrimRight(shown.FlagUsagesWrapped(helpWidth), "\n")
	switch names := flagNames(all, isRare); {
	case len(names) > 12:
		lines += "\n\nwisbox help session-flags describes more flags for the new session."
	case len(names) > 0:
		lines += "\n\nFlags for special cases, see wisbox help session-flags:" + nameLines(names, 2)
	}
	return lines
}

func flagNames(all *pflag.FlagSet, which func(*pflag.Flag) bool) (names []string) {
	all.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && which(f) {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// nameLines returns names separated by commas, on lines with that indentation.
func nameLines(names []string, indent int) string {
	var b strings.Builder
	column := helpWidth
	for i, name := range names {
		if i < len(names)-1 {
			name += ","
		}
		if column+1+len(name) >= helpWidth {
			b.WriteString("\n" + strings.Repeat(" ", indent-1))
			column = indent - 1
		}
		b.WriteString(" " + name)
		column += 1 + len(name)
	}
	return b.String()
}

// sections are the visible commands at the top, by what they are for.
var sections = []struct {
	name     string
	commands []string
}{
	{"run", []string{"run", "exec", "shell", "agent", "eval", "repl"}},
	{"sessions", []string{"create", "ls", "inspect", "start", "stop", "pause", "resume", "clone", "rename", "update", "reset", "save", "load", "rm", "prune", "stats", "top"}},
	{"changes", []string{"diff", "apply", "branch", "cp", "undo", "history", "snapshot", "template"}},
	{"processes", []string{"ps", "logs", "attach", "kill"}},
	{"network", []string{"allow", "deny", "egress", "port", "secret", "ssh-config"}},
	{"serve", []string{"mcp", "tools", "call", "serve", "ui", "remote"}},
	{"set up", []string{"image", "doctor", "init", "config", "trust", "mount", "completion", "version", "lab"}},
}

// overview lists the sections.
func overview() string {
	var b strings.Builder
	for _, s := range sections {
		lines := strings.TrimPrefix(nameLines(s.commands, len("  processes  ")), "\n")
		fmt.Fprintf(&b, "\n  %-9s  %s", s.name, strings.TrimLeft(lines, " "))
	}
	return b.String()
}

// topics lists the commands that are only help.
func topics(root *cobra.Command) string {
	var names []string
	for _, below := range root.Commands() {
		if below.IsAdditionalHelpTopicCommand() && !below.Hidden {
			names = append(names, below.Name())
		}
	}
	return strings.Join(names, ", ")
}

// commandLines describes the subcommands of a command.
func commandLines(cmd *cobra.Command) string {
	var b strings.Builder
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			fmt.Fprintf(&b, "\n  %-*s %s", below.NamePadding(), below.Name(), below.Short)
		}
	}
	return b.String()
}

// newGlobalFlagsCmd returns the topic with the flags of every command.
func newGlobalFlagsCmd(flags *pflag.FlagSet) *cobra.Command {
	return &cobra.Command{
		Use:   "global-flags",
		Short: "Describe the flags of every command",
		Long:  "Every command takes these flags.\n\n" + strings.TrimRight(flags.FlagUsagesWrapped(helpWidth), "\n"),
	}
}

// newSessionFlagsCmd returns the topic with all flags of a new session.
func newSessionFlagsCmd() *cobra.Command {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&sessionFlags{}).register(all)
	return &cobra.Command{
		Use:   "session-flags",
		Short: "Describe all flags of a new session",
		Long: "wisbox run, agent, eval, mcp and create open sessions with these flags. Your configuration\n" +
			"files can set them too, see wisbox config.\n\n" + strings.TrimRight(all.FlagUsagesWrapped(helpWidth), "\n"),
	}
}

// newEnvironmentCmd returns the topic with the environment variables.
func newEnvironmentCmd() *cobra.Command {
	return &cobra.Command{Use: "environment", Short: "Describe the environment variables", Long: environmentHelp}
}

const environmentHelp = `A flag overrides its variable.

WISBOX_CACHE           state directory with sessions and logs (--cache)
WEAKINCENTIVES_CACHE   the same, if WISBOX_CACHE isn't set
PODMAN_BASE_URL        URL of Podman's service (--podman); else CONTAINER_HOST
PODMAN_CONNECTION      one of Podman's connections, if no URL is set; else CONTAINER_CONNECTION
PODMAN_IDENTITY        private key file for an ssh:// URL; else CONTAINER_SSHKEY
WISBOX_ISOLATION       isolation of new sessions (--isolation)
WISBOX_RUNSC           path of gVisor's runsc
WISBOX_SLOW            how many times longer wisbox waits for its own parts, 1 to 100,
                       on a machine that is slower than usual
WISBOX_NO_CONFIG       1: read no configuration files (--no-config)
WISBOX_REMOTE          machine with the sessions (--remote)
WISBOX_API_KEY         key for a machine that is reached by https
WISBOX_SSH             ssh command for a machine that is reached by ssh
WISBOX_MODEL           model of lab rlm run and digest optimize (--model);
                       also WISBOX_CHILD_MODEL, WISBOX_MODEL_API, WISBOX_MODEL_URL
WISBOX_WASM_PYTHON     python.wasm for evaluations without a container (--wasm-python)
WISBOX_WASM_TIMEOUT    time limit of an evaluation there (--wasm-timeout)
WISBOX_SERVE_SECRET    secret from which wisbox serve derives tokens in a cluster
WISBOX_SERVE_KEYS      keys of wisbox serve
XDG_RUNTIME_DIR        directory of sockets
XDG_CONFIG_HOME        directory of your configuration file
XDG_STATE_HOME         directory of the history of repl`

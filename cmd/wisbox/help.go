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
// only, and the root describes only its first commands.
const usageTemplate = `{{if or .Runnable .HasAvailableSubCommands}}Usage:{{end}}{{if .Runnable}}{{if .HasParent}}
  {{.UseLine}}{{end}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{commands .}}{{end}}{{with flags .LocalFlags}}

Flags:
{{.}}{{end}}{{if .HasAvailableInheritedFlags}}

Global flags, see wisbox --help: {{names .InheritedFlags}}{{end}}{{if not .HasParent}}

wisbox COMMAND --help describes a command.{{end}}
`

func setHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("commands", commandLines)
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
		lines += "\n\nwisbox session-flags describes more flags for the new session."
	case len(names) > 0:
		lines += "\n\nFlags for special cases, see wisbox session-flags:" + nameLines(names)
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

// nameLines returns names separated by commas, on lines indented by two spaces.
func nameLines(names []string) string {
	var b strings.Builder
	column := helpWidth
	for i, name := range names {
		if i < len(names)-1 {
			name += ","
		}
		if column+1+len(name) >= helpWidth {
			b.WriteString("\n ")
			column = 1
		}
		b.WriteString(" " + name)
		column += 1 + len(name)
	}
	return b.String()
}

// firstCommands are described by the root's help; it lists the others by name.
var firstCommands = []string{"agent", "apply", "diff", "doctor", "exec", "image", "log", "ls", "mcp", "rm", "run", "serve", "session", "shell", "snapshot", "ui", "undo"}

// commandLines describes the subcommands of a command.
func commandLines(cmd *cobra.Command) string {
	var b strings.Builder
	var others []string
	for _, below := range cmd.Commands() {
		switch {
		case below.Hidden || below.Name() == "help":
		case cmd.HasParent() || slices.Contains(firstCommands, below.Name()):
			fmt.Fprintf(&b, "\n  %-*s %s", cmd.Commands()[0].NamePadding(), below.Name(), below.Short)
		default:
			others = append(others, below.Name())
		}
	}
	if len(others) > 0 {
		b.WriteString("\n\nMore commands:" + nameLines(others))
	}
	return b.String()
}

// newSessionFlagsCmd returns the topic with all flags of a new session.
func newSessionFlagsCmd() *cobra.Command {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&sessionFlags{}).register(all)
	return &cobra.Command{
		Use:   "session-flags",
		Short: "Describe all flags of a new session",
		Long: "wisbox run, agent, eval, mcp and session create open sessions with these flags. Your configuration\n" +
			"files can set them too, see wisbox config.\n\n" + strings.TrimRight(all.FlagUsagesWrapped(helpWidth), "\n"),
	}
}

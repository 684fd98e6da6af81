package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherFlags say what to use in place of flags of other tools.
var otherFlags = map[string]string{
	"v":          "to copy a folder in, use --mount HOST[:DEST]; wisbox diff and apply bring its changes back",
	"volume":     "to copy a folder in, use --mount HOST[:DEST]; wisbox diff and apply bring its changes back",
	"p":          "to reach a port of a session, use: wisbox port SESSION PORT",
	"publish":    "to reach a port of a session, use: wisbox port SESSION PORT",
	"rm":         "leave it out: wisbox run always removes its session",
	"name":       "a session that stays has a name: wisbox create NAME",
	"n":          "a session that stays has a name: wisbox create NAME",
	"network":    "to allow connections to a host, use --allow HOST",
	"net":        "to allow connections to a host, use --allow HOST",
	"privileged": "leave it out: programs never have rights beyond their own",
	"cap-add":    "leave it out: programs never have capabilities",
	"cap-drop":   "leave it out: programs never have capabilities",
	"read-only":  "leave it out: the root file system is always read-only",
	"init":       "leave it out: each session has an init process",
	"entrypoint": "write the whole command after --",
	"restart":    "wisbox exec --detach leaves a command running in a session",
	"cwd":        "use --workdir DIR",
	"dir":        "use --workdir DIR",
	"hostname":   "the host name is the session's",
	"m":          "use --memory SIZE",
	"cpu":        "use --cpus N",
	"ulimit":     "see --pids, --memory and --disk; wisbox inspect shows the others",
	"pids-limit": "use --pids N",
	"shm-size":   "see: wisbox help session-flags",
	"tmpfs":      "use --tmp SIZE for the size of /tmp",
	"q":          "leave it out",
	"quiet":      "leave it out",
	"label":      "give the name as an argument",
}

// flagsOf say the same of flags that mean something only with one command.
var flagsOf = map[string]string{
	"ls a": "leave it out: wisbox ls lists stopped sessions too", "ls all": "leave it out: wisbox ls lists stopped sessions too",
	"ls q": "use --json, which has the names", "ls quiet": "use --json, which has the names",
	"ps a": "leave it out: wisbox ps lists ended processes too; wisbox ls lists the sessions", "ps all": "leave it out: wisbox ps lists ended processes too",
	"stop t": "leave it out", "stop time": "leave it out", "stop timeout": "leave it out",
	"cp a": "leave it out: cp keeps permissions and times", "cp r": "leave it out: cp copies directories", "cp recursive": "leave it out: cp copies directories",
	"cp L": "leave it out: cp copies links as links", "kill 9": "use --signal KILL",
}

// fileAsFlag returns the argument that was read as a flag but names a file of the current directory.
func fileAsFlag(args []string, unknown *pflag.NotExistError) string {
	for _, arg := range args {
		if arg == "--" {
			break
		}
		letters := unknown.GetSpecifiedShortnames()
		if strings.HasPrefix(arg, "-") && len(arg) > 1 && (letters != "" && arg == "-"+letters || arg == "--"+unknown.GetSpecifiedName()) {
			if _, err := os.Lstat(arg); err == nil {
				return arg
			}
		}
	}
	return ""
}

// rightSpelling returns what to write in place of an unknown flag.
func (a *app) rightSpelling(cmd *cobra.Command, unknown *pflag.NotExistError) string {
	name := unknown.GetSpecifiedName()
	if near := nearFlag(cmd, name); near != "" {
		return "did you mean --" + near + "?"
	}
	if line := withDashes(cmd, a.args, unknown); line != "" {
		return "put the command after --: " + line
	}
	if file := fileAsFlag(a.args, unknown); file != "" {
		return "a path that begins with - needs ./ before it: ./" + file
	}
	if instead := flagsOf[cmd.Name()+" "+name]; instead != "" {
		return instead
	}
	if instead := otherFlags[name]; instead != "" && takesSession(cmd) {
		return instead
	}
	return fmt.Sprintf("see: %s --help", cmd.CommandPath())
}

// takesSession reports whether a command is about a session or a program of one, for which other
// tools have the flags.
func takesSession(cmd *cobra.Command) bool {
	return cmd.Flags().Lookup("mount") != nil || strings.Contains(cmd.Use, "SESSION")
}

// nearFlag returns the flag with nearly the same letters, "" if there is none or several.
func nearFlag(cmd *cobra.Command, name string) string {
	var near []string
	if len(name) < 3 {
		return ""
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && distance(name, f.Name) <= 1+len(name)/6 {
			near = append(near, f.Name)
		}
	})
	if len(near) != 1 {
		return ""
	}
	return near[0]
}

// distance is the number of letters to insert, remove, replace or swap with the next that turn one
// word into the other.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range b {
		rows[0][j+1] = j + 1
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// withDashes returns the command line with -- before the program, if the unknown flag follows the
// program's name and so was meant for it.
func withDashes(cmd *cobra.Command, line []string, unknown *pflag.NotExistError) string {
	if cmd.Name() != "run" || slices.Contains(line, "--") {
		return ""
	}
	flag := "--" + unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		flag = "-" + short
	}
	at := slices.IndexFunc(line, func(arg string) bool {
		return arg == flag || strings.HasPrefix(arg, flag+"=") || len(flag) > 1 && flag[1] != '-' && strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, flag[1:])
	})
	if at < 0 {
		return ""
	}
	first := firstArgument(cmd, line[:at])
	if first < 0 {
		return ""
	}
	return quoted(append([]string{"wisbox"}, slices.Insert(slices.Clone(line), first, "--")...))
}

// quoted returns a command line to type.
func quoted(words []string) string {
	for i, word := range words {
		if strings.ContainsAny(word, " \t\n'\"\\$*?;&|<>()#~`") || word == "" {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// firstArgument returns the index of the first argument after the command that is neither a flag nor
// a flag's value, -1 if there is none.
func firstArgument(cmd *cobra.Command, args []string) int {
	seen := false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case strings.HasPrefix(arg, "-") && arg != "-":
			name := strings.TrimLeft(arg, "-")
			f := cmd.Flags().Lookup(name)
			if f == nil && !strings.HasPrefix(arg, "--") && len(name) == 1 {
				f = cmd.Flags().ShorthandLookup(name)
			}
			if f != nil && f.NoOptDefVal == "" {
				i++ // its value
			}
		case !seen && arg == cmd.Name():
			seen = true
		case seen:
			return i
		}
	}
	return -1
}

// commandsFor are commands and arguments in place of the API's tools and parameters, which errors
// for agents name.
var commandsFor = map[string]string{
	"snapshot_create": "wisbox snapshot create", "snapshot_list": "wisbox snapshot list", "snapshot_diff": "wisbox diff", "snapshot_restore": "wisbox snapshot restore",
	"process_start": "wisbox exec --detach", "process_list": "wisbox ps", "process_read": "wisbox logs", "process_write": "wisbox attach", "process_signal": "wisbox kill",
	"shell_execute": "wisbox exec", "evaluate_python": "wisbox eval python", "workspace_digest": "wisbox lab digest show",
	"snapshot_id": "SNAPSHOT", "process_id": "PROCESS", "mount_path": "DEST", "file_path": "PATH", "host_path": "HOST",
}

var apiWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)+\b`) })

// inCommands returns an error's text in the words of the command line.
func inCommands(text string) string {
	text = strings.NewReplacer("list the sessions to see their names", "wisbox ls lists the sessions",
		"cwd can't be entered", "--workdir can't be entered", "use another cwd", "use another --workdir").Replace(text)
	return apiWord().ReplaceAllStringFunc(text, func(word string) string {
		if instead, ok := commandsFor[word]; ok {
			return instead
		}
		flag := strings.ReplaceAll(word, "_", "-")
		if sessionFlagNames()[flag] {
			return "--" + flag
		}
		return word
	})
}

var sessionFlagNames = sync.OnceValue(func() map[string]bool {
	all, names := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]bool{}
	(&sessionFlags{}).register(all)
	all.VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
	return names
})

package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// sessionCommands are the commands about sessions as a whole. They also exist below the hidden
// command session, where they used to be.
func (a *app) sessionCommands() []*cobra.Command {
	return []*cobra.Command{
		a.newSessionCreateCmd(), a.newSessionListCmd(), a.newSessionInspectCmd(), a.newSessionRmCmd(), a.newSessionStopCmd(), a.newSessionStartCmd(),
		a.newSessionPauseCmd(), a.newSessionResumeCmd(), a.newSessionRenameCmd(), a.newUpdateCmd(), a.newSessionCloneCmd(), a.newSessionResetCmd(), a.newSessionSaveCmd(), a.newSessionLoadCmd(),
		a.newSessionAllowCmd(), a.newSessionDenyCmd(), a.newSessionEgressCmd(), a.newSessionSecretCmd(),
	}
}

// labCommands are experiments and measurements. They also exist, hidden, at the top, where they used
// to be.
func (a *app) labCommands() []*cobra.Command {
	return []*cobra.Command{a.newBenchCmd(), a.newContextCmd(), a.newDigestCmd(), a.newMetricsCmd(), a.newRlmCmd(), a.newWasmCmd()}
}

func (a *app) newLabCmd() *cobra.Command {
	lisp := a.newEvalLispCmd()
	lisp.Use = "eval-lisp" + strings.TrimPrefix(lisp.Use, lisp.Name())
	return group("lab", "Run experiments: Lisp, contexts, digests, models over long texts, measurements", append(a.labCommands(), lisp)...)
}

// hidden hides commands from help and completion.
func hidden(all ...*cobra.Command) []*cobra.Command {
	for _, cmd := range all {
		cmd.Hidden = true
	}
	return all
}

// otherWords maps words of other tools to the names of wisbox's commands.
var otherWords = map[string]string{
	"images": "image list", "containers": "ls", "sessions": "ls", "delete": "rm", "remove": "rm", "destroy": "rm", "mv": "rename",
	"new": "create", "up": "create", "open": "create", "down": "rm", "kill-all": "stop", "watch": "top", "usage": "stats", "restart": "stop",
	"info": "inspect", "describe": "inspect", "show": "inspect", "ports": "port", "forward": "port", "unpause": "resume", "fork": "clone", "export": "save", "import": "load",
	"events": "history", "commit": "snapshot create", "checkpoint": "snapshot create", "rollback": "undo", "revert": "undo",
	"patch": "diff", "merge": "apply", "checkout": "branch", "copy": "cp", "upload": "cp", "download": "cp", "scp": "cp", "sftp": "ssh-config", "rsync": "ssh-config", "vscode": "ssh-config",
	"ssh": "shell", "bash": "shell", "sh": "shell", "build": "image build", "pull": "image pull", "rmi": "image prune", "network": "allow", "volume": "mount", "container": "ls", "login": "image pull", "search": "image pull", "tag": "image build",
	"python": "eval python", "lisp": "lab eval-lisp", "tool": "tools", "check": "doctor", "setup": "doctor", "gc": "prune", "clean": "prune",
}

// meant returns commands that a word may mean, as they are typed after wisbox: the equivalent of
// another tool's word, a command with that name below another one, or one with nearly the same
// letters.
func meant(cmd *cobra.Command, word string) []string {
	root := cmd.Root()
	if found, ok := otherWords[word]; ok && (cmd == root || cmd.Name() == "session") {
		return []string{"wisbox " + found}
	}
	var found []string
	eachCommand(root, func(c *cobra.Command) {
		if c.Name() == word || c.HasAlias(word) {
			found = append(found, c.CommandPath())
		}
	})
	if len(found) > 1 && slices.Contains(found, "wisbox "+word) {
		return []string{"wisbox " + word} // most of the others concern parts of sessions
	}
	if len(found) > 0 {
		return found
	}
	cmd.SuggestionsMinimumDistance = 2 // letters
	if len(word) <= cmd.SuggestionsMinimumDistance {
		cmd.SuggestionsMinimumDistance = 1
	}
	for _, near := range cmd.SuggestionsFor(word) {
		found = append(found, strings.Replace(strings.TrimSpace(cmd.CommandPath()+" "+near), "wisbox session ", "wisbox ", 1))
	}
	return found
}

// commandFirst returns the line with the command before the session's name, if the two are the other way round.
func commandFirst(cmd *cobra.Command, args []string) string {
	if cmd != cmd.Root() || len(args) < 2 || otherWords[args[0]] != "" {
		return ""
	}
	for _, c := range cmd.Commands() {
		if c.Name() == args[1] && c.IsAvailableCommand() && strings.Contains(c.Use, " SESSION") {
			return quoted(append([]string{"wisbox", args[1], args[0]}, args[2:]...))
		}
	}
	return ""
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			do(below)
			eachCommand(below, do)
		}
	}
}

package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// shortNames are commands of sessions that also exist at the top level, as in other tools.
func (a *app) shortNames() []*cobra.Command {
	ls := a.newSessionListCmd()
	ls.Use, ls.Aliases = "ls", nil
	return []*cobra.Command{ls, a.newSessionRmCmd(), a.newSessionRenameCmd(), a.newSessionStopCmd(), a.newSessionStartCmd(), a.newStatsCmd(), a.newTopCmd()}
}

// otherWords maps words of other tools to the names of wisbox's commands.
var otherWords = map[string]string{
	"images": "image list", "containers": "ls", "list": "ls", "sessions": "ls", "delete": "rm", "remove": "rm", "destroy": "rm", "mv": "rename",
	"new": "session create", "up": "session create", "open": "session create", "down": "session rm", "kill-all": "stop", "watch": "top", "usage": "stats",
	"info": "session inspect", "describe": "session inspect", "show": "session inspect", "ports": "port", "forward": "port",
	"history": "log", "events": "log", "commit": "snapshot create", "checkpoint": "snapshot create", "rollback": "undo", "revert": "undo",
	"patch": "diff", "merge": "apply", "checkout": "branch", "copy": "cp", "upload": "cp", "download": "cp", "scp": "cp", "sftp": "ssh-config", "rsync": "ssh-config", "vscode": "ssh-config",
	"ssh": "shell", "bash": "shell", "sh": "shell",
	"python": "eval python", "lisp": "eval lisp", "tool": "tools", "serve": "mcp", "check": "doctor", "setup": "doctor", "gc": "prune", "clean": "prune",
}

// meant returns commands that a word may mean, as they are typed after wisbox: the equivalent of
// another tool's word, a command with that name below another one, or one with nearly the same
// letters.
func meant(cmd *cobra.Command, word string) []string {
	root := cmd.Root()
	if found, ok := otherWords[word]; ok && cmd == root {
		return []string{"wisbox " + found}
	}
	var found []string
	eachCommand(root, func(c *cobra.Command) {
		if c.Name() == word || c.HasAlias(word) {
			found = append(found, c.CommandPath())
		}
	})
	if cmd == root && len(found) > 1 && slices.Contains(found, "wisbox session "+word) {
		return []string{"wisbox session " + word} // most of the others concern parts of sessions
	}
	if len(found) > 0 {
		return found
	}
	cmd.SuggestionsMinimumDistance = 2 // letters
	if len(word) <= cmd.SuggestionsMinimumDistance {
		cmd.SuggestionsMinimumDistance = 1
	}
	for _, near := range cmd.SuggestionsFor(word) {
		found = append(found, strings.TrimSpace(cmd.CommandPath()+" "+near))
	}
	return found
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			do(below)
			eachCommand(below, do)
		}
	}
}

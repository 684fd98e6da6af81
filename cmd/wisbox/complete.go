package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/profile"
)

// complete tells the shells' completion what the arguments and flags may be.
func (a *app) complete(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		a.complete(below)
	}
	_, args, _ := strings.Cut(cmd.Use, " ")
	args = strings.TrimPrefix(args, "[flags] ")
	switch {
	case cmd.ValidArgsFunction != nil:
	case strings.HasPrefix(args, "SESSION"):
		cmd.ValidArgsFunction = a.completeSession
	case cmd.Name() == "tools":
		cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return toolNames(len(args) == 0), cobra.ShellCompDirectiveNoFileComp
		}
	}
	for flag, values := range map[string][]string{
		"profile": profile.Names(), "base": {"registry", "debian"}, "isolation": {"default", "gvisor"}, "userns": {"auto"}, "client": clients,
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if cmd.Flags().Lookup("session") != nil {
		_ = cmd.RegisterFlagCompletionFunc("session", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return a.sessionNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// completeSession completes the name of a session, behind which call takes a tool
// and the others what the shell's own completion knows best: files.
func (a *app) completeSession(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0 || strings.HasSuffix(cmd.Use, "SESSION…"):
		return a.sessionNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	case cmd.Name() == "call":
		return toolNames(len(args) == 1), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// sessionNames needs no Podman and changes nothing: a key was pressed, no more.
func (a *app) sessionNames(ctx context.Context) []string {
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return nil
	}
	defer store.Close()
	entries, err := store.List(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.State.Kept {
			names = append(names, e.ID)
		}
	}
	return names
}

func toolNames(wanted bool) []string {
	if !wanted {
		return nil
	}
	var names []string
	for _, t := range wisbox.ToolSet().Tools() {
		names = append(names, cobra.CompletionWithDesc(t.Name, firstSentence(t.Description)))
	}
	return names
}

func commandsBelow(cmd *cobra.Command, path []string) []string {
	cmd, rest, err := cmd.Find(path)
	if err != nil || len(rest) > 0 {
		return nil
	}
	var names []string
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, cobra.CompletionWithDesc(below.Name(), below.Short))
		}
	}
	return names
}

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
)

// newPagesCmd returns the command by which a build asks the engine for what the front can say without it.
func (a *app) newPagesCmd(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "__pages",
		Short:  "Write the pages of help and the names for completion",
		Hidden: true,
		Args:   noArgs,
		RunE: func(*cobra.Command, []string) error {
			var pages engine.Pages
			if err := helpPages(&pages, root); err != nil {
				return err
			}
			var names, ofSessions strings.Builder
			for _, cmd := range root.Commands() {
				if !cmd.IsAvailableCommand() && cmd.Name() != "help" {
					continue
				}
				names.WriteString(cmd.Name() + "\t" + cmd.Short + "\n")
				if _, args, _ := strings.Cut(strings.ReplaceAll(cmd.Use, "[flags] ", ""), " "); strings.HasPrefix(args, "SESSION") {
					ofSessions.WriteString(cmd.Name() + "\n")
				}
			}
			pages.Add("complete", names.String())
			pages.Add("complete sessions", ofSessions.String())
			_, err := pages.WriteTo(a.out)
			return err
		},
	}
}

// helpPages adds the help of a command and of those below it, by the words that lead there.
func helpPages(pages *engine.Pages, cmd *cobra.Command) error {
	var text strings.Builder
	cmd.SetOut(&text)
	cmd.InitDefaultHelpFlag()
	if err := cmd.Help(); err != nil {
		return err
	}
	_, words, _ := strings.Cut(cmd.CommandPath()+" ", " ")
	pages.Add("help "+strings.TrimSpace(words), text.String())
	for _, below := range cmd.Commands() {
		if strings.HasPrefix(below.Name(), "__") {
			continue
		}
		if err := helpPages(pages, below); err != nil {
			return err
		}
	}
	return nil
}

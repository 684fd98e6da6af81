package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) newSessionRenameCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rename SESSION NEW",
		Short: "Rename a session",
		Long: `Changes a session's name. Its files, snapshots, settings and log stay. Stop the session
first: one that is in use or has a container can't be renamed (wisbox stop also ends
interpreters). Resume a paused session first. Podman must be available, to check for a
container. The configuration of MCP clients keeps the old name: update it with wisbox
mcp install.`,
		Example: `  wisbox stop box
  wisbox rename box attempt-1`,
		Args: exactArgs("SESSION", "NEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSessionRename(cmd.Context(), args[0], args[1])
		},
	}
}

func (a *app) runSessionRename(ctx context.Context, name, to string) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Rename(ctx, name, to); err != nil {
		return asUsage(err)
	}
	return a.print(map[string]string{"renamed": name, "session": to}, func(w io.Writer) { fmt.Fprintln(w, to) })
}

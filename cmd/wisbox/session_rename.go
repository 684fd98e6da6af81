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
		Short: "Give a session another name",
		Long: `Gives a session another name; its files, snapshots, settings and log stay. A session
that is in use or has a container is busy: end what runs with wisbox stop, which
also loses what interpreters keep. Podman is asked for the container, so it must be
there. Resume a paused session before. Names in the configuration of MCP clients
don't change: write them anew with wisbox mcp install.`,
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

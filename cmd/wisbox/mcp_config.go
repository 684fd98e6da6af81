package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// clientConfigs are the forms in which agent runtimes want to be told of a server.
var clientConfigs = map[string]string{
	"claude": "mcpServers", "cursor": "mcpServers", "vscode": "servers", "codex": "mcp_servers", "generic": "mcpServers",
}

// clients are their names, as the help has them.
var clients = []string{"claude", "cursor", "vscode", "codex", "generic"}

func (a *app) newMCPConfigCmd() *cobra.Command {
	var client string
	cmd := &cobra.Command{
		Use:   "config [--client NAME] [-- FLAG...]",
		Short: "Print the configuration that an agent runtime needs to start this server",
		Long: `Prints the configuration for an agent runtime, in the form that it reads. Flags of
wisbox mcp go behind --; paths in them become absolute, since the runtime starts the
server wherever it likes.`,
		Example: `  wisbox mcp config --client claude
  wisbox mcp config --client codex -- --mount /home/me/project --profile openai`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return usageError{fmt.Errorf("unexpected argument %q; flags of wisbox mcp go behind --", args[0])}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.runMCPConfig(client, args) },
	}
	cmd.Flags().StringVar(&client, "client", "generic", "`NAME`: "+strings.Join(clients, ", "))
	return cmd
}

func (a *app) runMCPConfig(client string, flags []string) error {
	key, ok := clientConfigs[client]
	if !ok {
		return usageError{fmt.Errorf("--client is %q; it must be one of %s", client, strings.Join(clients, ", "))}
	}
	self, err := os.Executable()
	if err != nil {
		self = "wisbox"
	}
	args, err := mcpArgs(flags)
	if err != nil {
		return err
	}
	if client == "codex" {
		return a.printCodexConfig(key, self, args)
	}
	enc := json.NewEncoder(a.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	server := map[string]any{"command": self, "args": args}
	if client == "vscode" {
		server["type"] = "stdio"
	}
	return enc.Encode(map[string]any{key: map[string]any{"wisbox": server}})
}

// pathFlags are those of wisbox mcp whose values begin with a path.
var pathFlags = []string{"mount", "allow-root", "token-file", "tls-cert", "tls-key", "cache", "seccomp"}

// mcpArgs is the command line that starts the server, which must be a good one,
// from any directory.
func mcpArgs(flags []string) ([]string, error) {
	root := (&app{}).newRootCmd()
	cmd, _, err := root.Find([]string{"mcp"})
	if err != nil {
		return nil, err
	}
	if err := cmd.ParseFlags(flags); err != nil {
		return nil, usageError{fmt.Errorf("%w; see: wisbox mcp --help", err)}
	}
	if err := noArgs(cmd, cmd.Flags().Args()); err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("http") {
		return nil, usageError{errors.New("--http is for a server that you start; this configuration is for a client that starts the server itself")}
	}
	args := []string{"mcp"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, value := range valuesOf(f) {
			if slices.Contains(pathFlags, f.Name) {
				value = absolute(value)
			}
			if name, file, ok := strings.Cut(value, "="); f.Name == "secret" && ok && file != fromEnv {
				value = name + "=" + absolute(file)
			}
			if f.NoOptDefVal != "" { // its value needs the equals sign
				args = append(args, "--"+f.Name+"="+value)
			} else {
				args = append(args, "--"+f.Name, value)
			}
		}
	})
	return args, nil
}

func valuesOf(f *pflag.Flag) []string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// absolute prefixes a relative path, which may have more than a path behind it.
func absolute(value string) string {
	dir, err := os.Getwd()
	if err != nil || filepath.IsAbs(value) {
		return value
	}
	if value = strings.TrimPrefix(value, "./"); value == "." {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + value
}

// printCodexConfig writes TOML, whose strings and lists of strings are JSON's.
func (a *app) printCodexConfig(key, self string, args []string) error {
	command, err := json.Marshal(self)
	if err != nil {
		return err
	}
	list, err := json.Marshal(args)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "[%s.wisbox]\ncommand = %s\nargs = %s\n", key, command, list)
	return err
}

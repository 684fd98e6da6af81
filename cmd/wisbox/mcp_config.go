package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/config"
)

// clientConfigs has the forms in which clients describe a server.
var clientConfigs = map[string]string{
	"claude": "mcpServers", "cursor": "mcpServers", "vscode": "servers", "codex": "mcp_servers", "generic": "mcpServers",
}

// clients are their names, in the help's order.
var clients = []string{"claude", "cursor", "vscode", "codex", "generic"}

func (a *app) newMCPConfigCmd() *cobra.Command {
	var client string
	var bare bool
	cmd := &cobra.Command{
		Use:   "config [--client NAME] [-- FLAG...]",
		Short: "Print the configuration that an agent runtime needs to start this server",
		Long: `Prints the configuration for an agent runtime, in its own format, and on stderr
the file to put it in; wisbox mcp install writes it there. Flags of wisbox mcp go
after --; paths in them become absolute, since the runtime may start the server in any
directory. The server copies this folder into each session, unless --mount, --template
or --session is among them, a configuration file has mounts, or --no-mount is given.
The printed configuration includes --no-config, if given here or by $WISBOX_NO_CONFIG=1.`,
		Example: `  wisbox mcp config --client claude
  wisbox mcp config --client codex -- --mount /home/me/project --profile openai`,
		Args: behindDashes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runMCPConfig(cmd.Context(), client, bare, args)
		},
	}
	registerClient(cmd, &client, &bare)
	return cmd
}

func registerClient(cmd *cobra.Command, client *string, bare *bool) {
	cmd.Flags().BoolVar(bare, "no-mount", false, "begin with an empty workspace rather than a copy of this folder")
	cmd.Flags().StringVar(client, "client", "generic", "`NAME`: "+strings.Join(clients, ", "))
}

// behindDashes accepts flags of another command after --.
func behindDashes(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return usageError{fmt.Errorf("unexpected argument %q; flags of wisbox mcp go after --", args[0])}
	}
	return nil
}

func (a *app) runMCPConfig(ctx context.Context, client string, bare bool, flags []string) error {
	config, err := a.mcpConfig(ctx, client, bare, flags)
	if err != nil {
		return err
	}
	if file := clientFile(client); file != "" && !a.json {
		fmt.Fprintf(a.err, "wisbox: this belongs in %s; wisbox mcp install --client %s writes it there\n", streams.Printable(file), client)
	}
	_, err = fmt.Fprint(a.out, config.text())
	return err
}

// clientConfig is the entry that starts wisbox in one client's configuration.
type clientConfig struct {
	key    string // the key that contains the servers
	toml   bool
	server serverEntry
}

type serverEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

func (a *app) mcpConfig(ctx context.Context, client string, bare bool, flags []string) (*clientConfig, error) {
	key, ok := clientConfigs[client]
	if !ok {
		return nil, usageError{fmt.Errorf("--client is %q; it must be one of %s", client, strings.Join(clients, ", "))}
	}
	self, err := engine.Program()
	if err != nil {
		self = "wisbox"
	}
	cmd, err := a.mcpFlags(flags)
	if err != nil {
		return nil, err
	}
	if err := a.mountHere(ctx, cmd.Flags(), bare); err != nil {
		return nil, err
	}
	args := mcpArgs(cmd.Flags())
	c := &clientConfig{key: key, toml: client == "codex", server: serverEntry{Command: self, Args: args}}
	if client == "vscode" {
		c.server.Type = "stdio"
	}
	return c, nil
}

// text returns a configuration file with only the entry.
func (c *clientConfig) text() string {
	if c.toml { // TOML's strings and lists of strings are written like JSON's
		return fmt.Sprintf("[%s.wisbox]\ncommand = %s\nargs = %s\n", c.key, oneJSON(c.server.Command), oneJSON(c.server.Args))
	}
	return indented(map[string]any{c.key: map[string]any{"wisbox": c.server}})
}

func oneJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // strings, which can be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

func indented(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // likewise, and what was JSON before
	return b.String()
}

// pathFlags are the flags of wisbox mcp whose values begin with a path.
var pathFlags = []string{"mount", "allow-root", "token-file", "tls-cert", "tls-key", "cache", "seccomp", "containerfile"}

// mountHere adds this folder as the mount, unless a flag or a configuration file says where the files
// come from. A named session must exist.
func (a *app) mountHere(ctx context.Context, flags *pflag.FlagSet, bare bool) error {
	if session := flags.Lookup("session").Value.String(); session != "" {
		return a.withSession(ctx, session, func(*wisbox.Session) error { return nil })
	}
	if bare || flags.Changed("mount") || flags.Changed("template") {
		return nil
	}
	files, _ := a.files() // the server itself reports an error
	for _, c := range config.Merge(files) {
		if c.Flag == "mount" || c.Flag == "template" {
			return nil
		}
	}
	return flags.Set("mount", ".")
}

// mcpFlags returns the given flags of wisbox mcp, with those that choose the state root and Podman.
func (a *app) mcpFlags(flags []string) (*cobra.Command, error) {
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
	without, err := a.withoutConfig()
	if err != nil {
		return nil, err
	}
	if without {
		_ = cmd.Flags().Set("no-config", "true")
	}
	for flag, value := range map[string]string{"cache": cmp.Or(a.cache, os.Getenv("WISBOX_CACHE")), "podman": a.url} {
		if !cmd.Flags().Changed(flag) && value != "" {
			_ = cmd.Flags().Set(flag, value)
		}
	}
	return cmd, nil
}

// mcpArgs returns a command line that starts the server from any directory.
func mcpArgs(flags *pflag.FlagSet) []string {
	args := []string{"mcp"}
	flags.Visit(func(f *pflag.Flag) {
		for _, value := range valuesOf(f) {
			if slices.Contains(pathFlags, f.Name) {
				value = absolute(value)
			}
			if name, file, ok := strings.Cut(value, "="); f.Name == "secret" && ok && file != fromEnv {
				value = name + "=" + absolute(file)
			}
			if f.NoOptDefVal != "" { // the value needs an equals sign
				args = append(args, "--"+f.Name+"="+value)
			} else {
				args = append(args, "--"+f.Name, value)
			}
		}
	})
	return args
}

func valuesOf(f *pflag.Flag) []string {
	list, ok := f.Value.(pflag.SliceValue)
	switch {
	case ok && f.Value.Type() == "stringSlice": // one value may hold several, separated by commas
		return []string{strings.Join(list.GetSlice(), ",")}
	case ok:
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// absolute makes a relative path at the beginning of a value absolute.
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

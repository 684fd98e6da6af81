package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

func (a *app) newMCPInstallCmd() *cobra.Command {
	var client string
	var yes, bare bool
	cmd := &cobra.Command{
		Use:   "install --client NAME [-- FLAG...]",
		Short: "Write this server into the configuration of an agent runtime",
		Long: `Writes what wisbox mcp config prints into the client's own file: .mcp.json (claude),
.cursor/mcp.json or .vscode/mcp.json of the current directory, or codex's config.toml
in $CODEX_HOME or ~/.codex. Other servers in it stay. It shows the change and asks,
unless you give --yes. The server copies this folder into each session, unless you say
otherwise; see wisbox mcp config --help.`,
		Example: `  wisbox mcp install --client claude -- --session box
  wisbox mcp install --client codex --yes`,
		Args: behindDashes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runMCPInstall(cmd.Context(), client, yes, bare, args)
		},
	}
	registerClient(cmd, &client, &bare)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "write without asking")
	return cmd
}

// clientFile returns the path of a client's configuration; "" if it isn't known.
func clientFile(client string) string {
	home, _ := os.UserHomeDir()
	codex := os.Getenv("CODEX_HOME")
	if codex == "" {
		codex = filepath.Join(home, ".codex")
	}
	return map[string]string{
		"claude": ".mcp.json", "cursor": ".cursor/mcp.json", "vscode": ".vscode/mcp.json", "codex": filepath.Join(codex, "config.toml"),
	}[client]
}

func (a *app) runMCPInstall(ctx context.Context, client string, yes, bare bool, flags []string) error {
	config, err := a.mcpConfig(ctx, client, bare, flags)
	if err != nil {
		return err
	}
	file := clientFile(client)
	if file == "" {
		return usageError{fmt.Errorf("--client %s has no file that wisbox knows; write what wisbox mcp config prints into it", client)}
	}
	was, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return hostError(err)
	}
	now, err := config.into(string(was))
	if err != nil {
		return tool.Errorf(tool.Invalid, "%s can't be changed: %s; write what wisbox mcp config prints into it", file, err).Because(err)
	}
	if now == string(was) {
		return a.print(map[string]any{"file": file, "changed": false}, func(w io.Writer) { fmt.Fprintf(w, "%s already has it\n", streams.Printable(file)) })
	}
	fmt.Fprint(a.err, streams.Printable(udiff.Unified(file, file, string(was), now)))
	if !yes && !a.agrees(ctx, "write this to "+file+"?") {
		fmt.Fprintln(a.err, "wisbox: nothing was written")
		return exitCode(exitError)
	}
	if err := replaceHostFile(file, now); err != nil {
		return hostError(err)
	}
	return a.print(map[string]any{"file": file, "changed": true}, func(w io.Writer) { fmt.Fprintln(w, streams.Printable(file)) })
}

// agrees asks a yes-or-no question on stderr.
func (a *app) agrees(ctx context.Context, question string) bool {
	fmt.Fprintf(a.err, "%s [y/N] ", streams.Printable(question))
	line, _ := bufio.NewReader(a.stdin(ctx)).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// into adds the entry to a file's text.
func (c *clientConfig) into(text string) (string, error) {
	if c.toml {
		return c.intoTOML(text), nil
	}
	all := map[string]json.RawMessage{}
	if strings.TrimSpace(text) != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return "", errors.New("it is not JSON, or has comments")
		}
	}
	servers := map[string]json.RawMessage{}
	if raw, ok := all[c.key]; ok {
		if err := json.Unmarshal(raw, &servers); err != nil || servers == nil {
			return "", fmt.Errorf("its %s is not an object", c.key)
		}
	}
	servers["wisbox"] = json.RawMessage(oneJSON(c.server))
	all[c.key] = json.RawMessage(oneJSON(servers))
	return indented(all), nil
}

var tomlTable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*\[`) })

// intoTOML replaces the entry's table, or adds it at the end.
func (c *clientConfig) intoTOML(text string) string {
	var out strings.Builder
	inside, done := false, false
	for line := range strings.Lines(text) {
		if tomlTable().MatchString(line) {
			inside = strings.TrimSpace(line) == "["+c.key+".wisbox]"
			if inside {
				out.WriteString(c.text())
				done = true
			}
		}
		if !inside || strings.TrimSpace(line) == "" {
			out.WriteString(line)
		}
	}
	if done {
		return out.String()
	}
	before := out.String()
	if before != "" {
		before = strings.TrimRight(before, "\n") + "\n\n"
	}
	return before + c.text()
}

// replaceHostFile replaces a file's content as a whole, and keeps its mode. If the file is a link,
// it replaces the link's target.
func replaceHostFile(file, text string) error {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".wisbox-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

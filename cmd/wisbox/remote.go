package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/tool"
)

// remoteVariable names the machine if no flag does.
const remoteVariable = "WISBOX_REMOTE"

func (a *app) newRemoteCmd() *cobra.Command {
	cmd := group("remote", "Use sessions on other machines",
		a.newRemoteAddCmd(), a.newRemoteUseCmd(), a.newRemoteListCmd(), a.newRemoteRmCmd())
	cmd.Long = `Uses sessions on another machine with the same version of wisbox. You reach it with ssh, or
with an API key if it runs wisbox serve --allow-remote. Commands, the MCP server and the
library work as they do here: --mount sends copies of local files, and wisbox apply writes
the changes to local folders.

For ssh:// wisbox runs your ssh, with its configuration, keys and agent; $WISBOX_SSH names
another command. For https:// it sends the key of --key-file, or of $` + far.KeyVariable + `.
On Kubernetes each session has its own Pod. See docs/far.md and docs/cluster.md.`
	cmd.Example = `  wisbox remote add big ssh://me@big.example.com
  wisbox remote add team https://boxes.example.com --key-file ~/.config/team.key
  wisbox --remote big session create box --mount ./src
  wisbox --remote big exec box -- make
  wisbox remote use big                      use big without --remote
  wisbox --remote kube:kind-kind/agents run -- make
  wisbox --remote this ls                    list the sessions on this machine`
	return cmd
}

func (a *app) newRemoteAddCmd() *cobra.Command {
	var key, ca string
	cmd := &cobra.Command{
		Use:   "add NAME ADDRESS",
		Short: "Name another machine",
		Long: `Saves the address of another machine. This command doesn't connect to it.

ssh://[USER@]HOST[:PORT][/PATH] is a machine with an account of yours. PATH is needed if wisbox
isn't on the PATH of ssh's commands there.

https://HOST[:PORT] is a wisbox serve --allow-remote, for which you need an API key; http://
works only for this machine. wisbox reads the key from --key-file at each use, and saves only
the file's name.

kube:CONTEXT/NAMESPACE is a Kubernetes cluster, where CONTEXT is one of your kubeconfig. In a
Pod, kube:in-cluster[/NAMESPACE] is its own cluster, with its service account.`,
		Example: `  wisbox remote add big ssh://me@big.example.com
  wisbox remote add lab ssh://lab:2222/opt/wisbox/bin/wisbox
  wisbox remote add team https://boxes.example.com --key-file ~/.config/team.key
  wisbox remote add prod kube:gke_acme_europe-west3_prod/agents`,
		Args: exactArgs("NAME", "ADDRESS"),
		RunE: func(_ *cobra.Command, args []string) error {
			r := far.Remote{Address: args[1]}
			for _, file := range []struct{ given, to *string }{{&key, &r.KeyFile}, {&ca, &r.CAFile}} {
				var err error
				if *file.given != "" {
					if *file.to, err = filepath.Abs(*file.given); err != nil {
						return err
					}
				}
			}
			return changeRemotes(func(b *far.Book) error { return b.Add(args[0], r) })
		},
	}
	cmd.Flags().StringVar(&key, "key-file", "", "`FILE` with the API key for https:// (default $"+far.KeyVariable+")")
	cmd.Flags().StringVar(&ca, "ca-file", "", "`FILE` with the CAs of the server's certificate (default the system's)")
	return cmd
}

func (a *app) newRemoteUseCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Choose the machine that commands use without --remote",
		Long: `Chooses the machine that commands use if neither --remote nor $` + remoteVariable + ` names
one. "this" is the local machine.`,
		Example: `  wisbox remote use big
  wisbox remote use this`,
		Args: exactArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			return changeRemotes(func(b *far.Book) error {
				if strings.Contains(args[0], "://") || far.IsKube(args[0]) {
					return tool.Errorf(tool.Invalid, "%q is an address; name it first: wisbox remote add NAME %s", args[0], args[0]).In("name")
				}
				if _, err := b.Find(args[0]); err != nil {
					return err
				}
				b.Current = args[0]
				if b.Current == far.This {
					b.Current = ""
				}
				return nil
			})
		},
	}
}

// remoteRow is one machine in the output of list.
type remoteRow struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Current bool   `json:"current"`
}

func (a *app) newRemoteListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the other machines",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			b, _, err := readRemotes()
			if err != nil {
				return err
			}
			rows := []remoteRow{}
			for _, name := range b.Names() {
				rows = append(rows, remoteRow{name, b.Remotes[name].Address, b.Current == name})
			}
			return a.print(map[string]any{"remotes": rows}, func(w io.Writer) { printRemotes(w, rows) })
		},
	}
}

func printRemotes(w io.Writer, rows []remoteRow) {
	if len(rows) == 0 {
		fmt.Fprintln(w, "there are no remotes; add one with: wisbox remote add NAME ssh://HOST")
		return
	}
	tw := newTable(w, "REMOTE", "ADDRESS", "IN USE")
	for _, r := range rows {
		tw.row(r.Name, streams.Printable(r.Address), map[bool]string{true: "yes", false: "no"}[r.Current])
	}
	_ = tw.Flush()
}

func (a *app) newRemoteRmCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Forget another machine; its sessions stay there",
		Args:  exactArgs("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			return changeRemotes(func(b *far.Book) error {
				if _, ok := b.Remotes[args[0]]; !ok {
					return tool.Errorf(tool.NotFound, "remote %q not found; see: wisbox remote list", args[0]).In("name")
				}
				delete(b.Remotes, args[0])
				if b.Current == args[0] {
					b.Current = ""
				}
				return nil
			})
		},
	}
}

func readRemotes() (*far.Book, string, error) {
	path, err := far.Path()
	if err != nil {
		return nil, "", err
	}
	b, err := far.Read(path)
	return b, path, err
}

func changeRemotes(change func(*far.Book) error) error {
	b, path, err := readRemotes()
	if err != nil {
		return err
	}
	if err := change(b); err != nil {
		return asUsage(err)
	}
	return b.Write(path)
}

// Commands that work on sessions of another machine, and commands that don't concern sessions.
// Others fail if a remote is chosen.
var (
	onRemotes = []string{
		"run", "exec", "shell", "ps", "logs", "attach", "kill", "port", "call", "eval", "eval-lisp", "context", "repl", "diff", "apply", "branch", "snapshot",
		"template", "undo", "cp", "mcp", "history", "stats", "session", "create", "ls", "inspect", "rm", "stop", "start", "pause", "resume", "rename",
		"clone", "reset", "save", "load", "allow", "deny", "egress", "secret", "update",
	}
	onKube       = []string{"serve"} // but not on other machines
	notOnRemotes = []string{"mcp install", "mcp config", "history verify"}
	ofNoSession  = []string{"", "help", "completion", "version", "exit-codes", "environment", "global-flags", "session-flags", "lab", "remote", "config", "init", "trust", "tools", "mount", "wasm", "rlm", "__complete", "__completeNoDesc"}
	alwaysHere   = []string{"__hold", "__relay", "__report", "__init", "__pod"} // started by another wisbox, on Linux
	ofFiles      = []string{"history verify"}                                   // work on any system
)

// nameOf returns a command's name without wisbox, and without the groups session and lab.
func nameOf(cmd *cobra.Command) string {
	name := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), "wisbox"))
	return strings.TrimPrefix(strings.TrimPrefix(name, "session "), "lab ")
}

// chooseRemote determines the machine for a command.
func (a *app) chooseRemote(cmd *cobra.Command) error {
	name := nameOf(cmd)
	first, _, _ := strings.Cut(name, " ")
	if slices.Contains(ofNoSession, first) || slices.Contains(alwaysHere, first) {
		return nil
	}
	remote, err := a.findRemote()
	if err != nil {
		return asUsage(err)
	}
	if remote == nil {
		return needsLinux(name)
	}
	works := slices.Contains(onRemotes, first) || far.IsKube(remote.Address) && slices.Contains(onKube, name)
	if !works || slices.Contains(notOnRemotes, name) {
		if far.IsKube(remote.Address) {
			return tool.Errorf(tool.Unsupported, "wisbox %s isn't supported for sessions on Kubernetes; give --remote %s for this machine", name, far.This)
		}
		return onlyThere(name)
	}
	if far.IsKube(remote.Address) {
		if err := withKubernetes(); err != nil {
			return err
		}
	}
	if a.farKey, err = remote.Key(); err != nil {
		return asUsage(err)
	}
	a.far, a.farCA = remote.Address, remote.CAFile
	return nil
}

// system is this program's operating system. Tests change it.
var system = runtime.GOOS

const linux = "linux"

// needsLinux refuses commands on local sessions where there can be none.
func needsLinux(command string) error {
	if system == linux || slices.Contains(ofFiles, command) {
		return nil
	}
	return tool.Errorf(tool.Unsupported, "sessions need Linux, which this machine doesn't have; use a Linux machine that has wisbox: wisbox remote add NAME ssh://USER@HOST, then wisbox remote use NAME")
}

func onlyThere(command string) error {
	if system != linux {
		return tool.Errorf(tool.Unsupported, "wisbox %s works only on the machine that has the sessions: use it there", command)
	}
	return tool.Errorf(tool.Unsupported, "wisbox %s works only on the machine that has the sessions: use it there, or give --remote %s for this one", command, far.This)
}

func (a *app) findRemote() (*far.Remote, error) {
	name := cmp.Or(a.remote, os.Getenv(remoteVariable))
	if name == far.This {
		return nil, nil
	}
	b, path, err := readRemotes()
	unreadable := (*fs.PathError)(nil)
	switch {
	case err == nil:
		return b.Find(name)
	case name == "" && (path == "" || errors.As(err, &unreadable)):
		return nil, nil // without a home there are no remotes
	}
	return nil, err
}

// newRelayCmd returns the command that a client on another machine starts over ssh.
func (a *app) newRelayCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "__relay",
		Short:  "Serve a wisbox on another machine over stdin and stdout",
		Hidden: true,
		Args:   noArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return a.runRelay(cmd.Context()) },
	}
	a.addPodFlag(cmd)
	return cmd
}

func (a *app) runRelay(ctx context.Context) error {
	stream, err := a.pipe(errors.New("__relay is a command that a wisbox on another machine starts, not you; see: wisbox remote --help"))
	if err != nil {
		return err
	}
	opts := a.options(a.logger())
	opts.Holder = a.holdCommand()
	m, err := wisbox.NewManager(ctx, opts)
	if err != nil {
		return err
	}
	return errors.Join(m.ServeFar(ctx, stream), m.Close())
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/internal/sshd"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// sshSuffix follows the session's name in the name of a host.
const sshSuffix = ".wisbox"

func (a *app) newSSHConfigCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "ssh-config [SESSION…]",
		Short: "Print the configuration with which ssh, sftp, rsync and editors reach sessions",
		Long: `Prints configuration for OpenSSH's client, with a host SESSION.wisbox for each session
given, or for every kept session. With it ssh, scp, sftp, rsync and editors that use ssh
work in a session. ssh starts the command wisbox ssh-proxy for each connection and speaks
to it over a pipe: nothing listens on a port, and ssh asks for no password or key. When a
connection ends, its programs end too. See docs/ssh.md.`,
		Example: `  wisbox ssh-config > ~/.ssh/wisbox.conf    # and at the top of ~/.ssh/config: Include wisbox.conf
  ssh box.wisbox make test
  rsync -r box.wisbox:/workspace/out/ out/
  ssh -L 8000:localhost:8000 box.wisbox`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runSSHConfig(cmd.Context(), args) },
	}
}

// sshHost describes how ssh reaches one session.
type sshHost struct {
	Host    string `json:"host"`
	Session string `json:"session"`
	Proxy   string `json:"proxy_command"`
	Known   string `json:"known_hosts"`
}

func (a *app) runSSHConfig(ctx context.Context, names []string) error {
	names, err := a.sshSessions(ctx, names)
	if err != nil {
		return err
	}
	dir, err := a.sshDir()
	if err != nil {
		return err
	}
	known, err := sshd.KnownHosts(dir)
	if err != nil {
		return hostError(err)
	}
	known, err = sshText("the state directory", known)
	if err != nil {
		return err
	}
	proxy, err := a.sshProxyCommand()
	if err != nil {
		return err
	}
	hosts := make([]sshHost, len(names))
	for i, name := range names {
		hosts[i] = sshHost{Host: name + sshSuffix, Session: name, Proxy: proxy + " " + name, Known: known}
	}
	if a.json {
		return a.printJSON(hosts)
	}
	fmt.Fprint(a.out, "# Run this again after you create a session: wisbox ssh-config > ~/.ssh/wisbox.conf\n"+
		"# Put this line at the top of ~/.ssh/config: Include wisbox.conf\n")
	for _, h := range hosts {
		fmt.Fprintf(a.out, "\nHost %s\n    ProxyCommand %s\n    HostKeyAlias %s\n    UserKnownHostsFile \"%s\"\n"+
			"    StrictHostKeyChecking yes\n    UpdateHostKeys no\n    ForwardAgent no\n    ForwardX11 no\n", h.Host, h.Proxy, sshd.KnownAs, h.Known)
	}
	return nil
}

// sshSessions returns the given sessions, which must exist, or all kept ones.
func (a *app) sshSessions(ctx context.Context, given []string) (names []string, err error) {
	m, err := a.manager(ctx)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	all, err := m.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if e.State.Kept && e.Problem == "" {
			names = append(names, e.ID)
		}
	}
	for i, name := range given {
		given[i] = strings.TrimSuffix(name, sshSuffix)
		if !slices.Contains(names, given[i]) {
			return nil, tool.Errorf(tool.NotFound, "session %q not found; wisbox ls lists the sessions", given[i])
		}
	}
	if len(given) > 0 {
		names = given
	}
	return names, nil
}

// sshDir returns the directory of the host key in the state root.
func (a *app) sshDir() (string, error) {
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return "", err
	}
	return filepath.Join(store.Path(), "ssh"), store.Close()
}

// sshProxyCommand returns the command line, for a shell, that ssh runs; the session's name follows
// it.
func (a *app) sshProxyCommand() (string, error) {
	self, err := engine.Program()
	if err != nil {
		return "", hostError(err)
	}
	argv := []string{self, "ssh-proxy"}
	cache := cmp.Or(a.cache, os.Getenv("WISBOX_CACHE"))
	if cache == "" && os.Getenv("XDG_CACHE_HOME") != "" { // an editor may not have the variable
		dir, err := a.sshDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Dir(dir)
	}
	if cache != "" {
		argv = append(argv, "--cache", absolute(cache))
	}
	if a.url != "" {
		argv = append(argv, "--podman", a.url)
	}
	for i, word := range argv {
		if argv[i], err = sshText("the command line of wisbox ssh-proxy", word); err != nil {
			return "", err
		}
		if strings.ContainsFunc(word, special) {
			argv[i] = "'" + argv[i] + "'"
		}
	}
	return strings.Join(argv, " "), nil
}

// special reports whether a character may have a special meaning to a shell.
func special(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:@+,%", r))
}

// sshText quotes a text for ssh's configuration, where % has a meaning.
func sshText(what, text string) (string, error) {
	if strings.ContainsAny(text, "\"'\\$\n\r\x00") {
		return "", tool.Errorf(tool.Unsupported, "%s: ssh's configuration can't hold %q, for its quotes, $, backslashes or line breaks; choose another path", what, text)
	}
	return strings.ReplaceAll(text, "%", "%%"), nil
}

// newSSHProxyCmd returns the command that ssh runs as its ProxyCommand.
func (a *app) newSSHProxyCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "ssh-proxy SESSION",
		Short:  "Speak the server's side of SSH on this process's input and output, for ProxyCommand",
		Hidden: true,
		Args:   exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSSHProxy(cmd.Context(), strings.TrimSuffix(args[0], sshSuffix))
		},
	}
}

func (a *app) runSSHProxy(ctx context.Context, name string) error {
	boundMemory()
	dir, err := a.sshDir()
	if err != nil {
		return err
	}
	key, err := sshd.HostKey(dir)
	if err != nil {
		return hostError(err)
	}
	conn, err := a.pipe(errors.New("ssh-proxy is a command that ssh starts, not you; set ssh up as in: wisbox ssh-config --help"))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = wisbox.WithCaller(ctx, fmt.Sprintf("ssh[%d]", os.Getpid()))
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		known, err := s.Inspect(ctx)
		if err != nil {
			return err
		}
		if known.Paused != nil {
			return tool.Errorf(tool.Unavailable, "session %s is paused; resume it first: wisbox resume %s", name, name)
		}
		return untilEnd(ctx, s, func() (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				return sshd.Serve(ctx, conn, &sshd.Options{Session: s, HostKey: key, Shell: shellOf(s), OneAtATime: s.Options().RollbackOnFailure, Explain: func(res sandbox.Result) []string {
					return explanations(programFlags{}, res)
				}})
			}, nil
		})
	})
}

// shellOf returns a function that finds the shell of the session's image, once.
func shellOf(s *wisbox.Session) func(context.Context) string {
	var mu sync.Mutex
	known := ""
	return func(ctx context.Context) string {
		mu.Lock()
		defer mu.Unlock()
		if known != "" {
			return known
		}
		info, err := s.Inspect(ctx)
		switch {
		case err != nil || info.Sandbox == nil:
			return "bash"
		case slices.Contains(info.Sandbox.Lacks, "bash"):
			known = "sh"
		default:
			known = "bash"
		}
		return known
	}
}

// pipe returns this process's input and output as one connection.
func (a *app) pipe(atTerminal error) (net.Conn, error) {
	in, out := os.Stdin, os.Stdout
	if term.IsTerminal(int(in.Fd())) {
		return nil, usageError{atTerminal}
	}
	c := &stdio{}
	for from, to := range map[*os.File]**os.File{in: &c.in, out: &c.out} {
		fd, err := unix.FcntlInt(from.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			err = unix.SetNonblock(fd, true) // so that Close ends a Read
		}
		if err != nil {
			return nil, hostError(err)
		}
		*to = os.NewFile(uintptr(fd), from.Name())
	}
	return c, nil
}

// stdio is a connection over two streams.
type stdio struct{ in, out *os.File }

func (s *stdio) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *stdio) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *stdio) Close() error                     { return errors.Join(s.in.Close(), s.out.Close()) }
func (s *stdio) LocalAddr() net.Addr              { return &net.UnixAddr{Net: "pipe", Name: "wisbox"} }
func (s *stdio) RemoteAddr() net.Addr             { return &net.UnixAddr{Net: "pipe", Name: "ssh"} }
func (s *stdio) SetDeadline(time.Time) error      { return nil }
func (s *stdio) SetReadDeadline(time.Time) error  { return nil }
func (s *stdio) SetWriteDeadline(time.Time) error { return nil }

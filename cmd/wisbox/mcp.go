package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/llm"
	"github.com/wisbox/wisbox/mcpserver"
	"github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/tool"
)

type mcpOptions struct {
	sessionFlags
	session   string
	profile   string
	http      string
	tokenFile string
	origins   []string
	hosts     []string
	cert, key string
	metrics   string
	optimizer string // the model of digest_optimize
	tools     []string
}

// check refuses flags without an effect.
func (o *mcpOptions) check(flags *pflag.FlagSet) error {
	if err := o.refuseFor(o.session); err != nil {
		return err
	}
	if (o.cert == "") != (o.key == "") {
		return usageError{errors.New("--tls-cert and --tls-key go together; give both")}
	}
	for _, name := range []string{"token-file", "allow-origin", "allow-host", "tls-cert", "tls-key"} {
		if o.http == "" && flags.Changed(name) {
			return usageError{fmt.Errorf("--%s needs --http; add it", name)}
		}
	}
	return nil
}

func (a *app) newMCPCmd() *cobra.Command {
	opts := &mcpOptions{}
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Serve the tools over the Model Context Protocol",
		Long: `Serves the tools to an agent runtime, on stdin and stdout or with --http over HTTP.
Each connection has its own session, opened by its first call and removed with the
connection; --session uses one kept session for all.

HTTP needs a bearer token. wisbox reads it from the file of --token-file, and writes a new
one there if the file is missing. Without the flag the server writes a token to a file,
whose name it prints at its start, and removes the file at its end.`,
		Example: `  wisbox mcp --mount ./project
  wisbox mcp --session box --tools files,shell
  wisbox mcp --http 127.0.0.1:8080 --token-file ~/.config/wisbox/token`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(cmd.Flags()); err != nil {
				return err
			}
			return a.runMCP(cmd.Context(), opts)
		},
	}
	cmd.AddCommand(a.newMCPConfigCmd(), a.newMCPInstallCmd())
	flags := cmd.Flags()
	opts.sessionFlags.register(flags)
	opts.undoByDefault()
	markRare(opts.sessionFlags.flags, "allow", "image", "mount")
	flags.StringVar(&opts.session, "session", "", "`NAME` of a kept session for all connections")
	registerProfile(flags, &opts.profile, `the session's, else "wisbox"`)
	flags.StringSliceVar(&opts.tools, "tools", nil, "offer these tools: `GROUP`s ("+strings.Join(groupNames(), ", ")+") and names; repeatable (default "+strings.Join(usualTools, ",")+", or all of a profile)")
	flags.StringVar(&opts.optimizer, "digest-model", "", "offer the tool digest_optimize, which asks the model `NAME` at $"+modelURLVariable)
	flags.StringVar(&opts.http, "http", "", "serve HTTP on this `ADDRESS`: 127.0.0.1:PORT or unix:PATH")
	flags.StringVar(&opts.tokenFile, "token-file", "", "`FILE` of the bearer token for --http (mode 600; created if missing)")
	flags.StringArrayVar(&opts.origins, "allow-origin", nil, "web `ORIGIN` that may send requests, e.g. https://host:port; repeatable")
	flags.StringArrayVar(&opts.hosts, "allow-host", nil, "`HOST` name that clients may use; repeatable")
	flags.StringVar(&opts.cert, "tls-cert", "", "`FILE` with a certificate, to listen beyond loopback")
	flags.StringVar(&opts.metrics, "metrics", "", metricsHelp)
	flags.StringVar(&opts.key, "tls-key", "", "`FILE` with the key of the certificate")
	return cmd
}

func (a *app) runMCP(ctx context.Context, opts *mcpOptions) error {
	boundMemory()
	if err := checkProfile(opts.profile); err != nil {
		return err
	}
	so, err := a.sessionOptions(&opts.sessionFlags)
	if err != nil {
		return err
	}
	if err := a.checkMounts(ctx, &opts.sessionFlags, so); err != nil {
		return err
	}
	options := a.options(a.logger())
	options.Holder = a.holdCommand()
	model, err := opts.digestModel()
	if err != nil {
		return err
	}
	if model != nil {
		options.Tools = func(s *wisbox.Session) []tool.Tool { return []tool.Tool{digestOptimizer(s, model)} }
	}
	m, err := metered(ctx, options, opts.metrics)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := a.buildImage(ctx, m, &opts.sessionFlags, so); err != nil {
		return err
	}
	described := *so
	if opts.session != "" {
		if described, err = settingsOf(ctx, m, opts.session); err != nil {
			return err
		}
	}
	if opts.profile == "" {
		opts.profile = described.Profile
	}
	described.Profile = opts.profile
	set, err := m.Tools(&described)
	if err != nil {
		return err
	}
	if options.Tools != nil {
		set = tool.NewSet(append(slices.Clone(set.Tools()), options.Tools(nil)...)...)
	}
	set, listed, err := opts.choose(set)
	if err != nil {
		return err
	}
	server := mcpserver.New(set, &mcpserver.Options{
		Version: version, Instructions: wisbox.GuidanceFor(&described, listed), Logger: a.logger(),
		Unlisted: func(name string) bool {
			_, known := set.Lookup(name)
			_, shown := listed.Lookup(name)
			return known && !shown
		},
		Open: func(ctx context.Context) (mcpserver.Session, error) {
			s, err := opts.open(ctx, m, so)
			if err != nil {
				return nil, err
			}
			bound, err := profile.Bind(opts.profile, wisbox.ToolSet(), s)
			if err != nil {
				return nil, errors.Join(err, s.Close(ctx))
			}
			return bound, nil
		},
	})
	if opts.http != "" {
		return a.serveHTTP(ctx, server, opts)
	}
	return server.ServeStdio(ctx, io.NopCloser(a.in), a.out)
}

// open opens the session of a connection.
func (o *mcpOptions) open(ctx context.Context, m *wisbox.Manager, so *wisbox.SessionOptions) (*wisbox.Session, error) {
	if o.session != "" {
		return m.Attach(ctx, o.session)
	}
	return m.Open(ctx, so)
}

// digestModel returns the model of digest_optimize; nil if there is none.
func (o *mcpOptions) digestModel() (llm.Model, error) {
	if o.optimizer == "" {
		return nil, nil
	}
	flags := &modelFlags{flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	return flags.endpoint(o.optimizer)
}

// checkMounts checks before the server starts that the mounts can be made, and reports what they
// leave out.
func (a *app) checkMounts(ctx context.Context, f *sessionFlags, so *wisbox.SessionOptions) error {
	if len(so.Mounts) == 0 {
		return nil
	}
	report, err := hostmount.Preview(ctx, so.Mounts, &hostmount.Options{AllowedRoots: so.AllowedRoots, MaxBytes: so.Limits.Disk, MaxFiles: so.Limits.Inodes})
	if err != nil {
		return f.mountError(err)
	}
	f.sayLeftOut(a.err, report)
	return nil
}

// settingsOf returns the settings of an existing session. It fails before the server starts if
// there is no such session.
func settingsOf(ctx context.Context, m *wisbox.Manager, name string) (wisbox.SessionOptions, error) {
	s, err := m.Attach(ctx, name)
	if err != nil {
		return wisbox.SessionOptions{}, asUsage(err)
	}
	return s.Options(), s.Close(ctx)
}

func (a *app) serveHTTP(ctx context.Context, server *mcpserver.Server, opts *mcpOptions) error {
	file, err := opts.tokenFile, error(nil)
	if file == "" {
		if file, err = ownTokenFile(); err != nil {
			return err
		}
		defer os.Remove(file)
	}
	token, err := bearerToken(file)
	if err != nil {
		return refused("--token-file", file, err)
	}
	ho := &mcpserver.HTTPOptions{Options: httpguard.Options{
		Tokens: []string{token}, Hosts: opts.hosts, Origins: opts.origins, CertFile: opts.cert, KeyFile: opts.key, Logger: a.serverLog(slog.LevelWarn),
	}}
	l, err := httpguard.Listen(opts.http, &ho.Options)
	if err != nil {
		return cannotListen("--http", opts.http, "HOST:PORT, such as 127.0.0.1:8080, or unix:PATH", err)
	}
	fmt.Fprintf(a.err, "wisbox: serving MCP on %s\n", l.Addr())
	fmt.Fprintf(a.err, "wisbox: the bearer token is in %s\n", file)
	if err := server.Serve(ctx, l, ho); err != nil {
		return err
	}
	return ctx.Err() // keeps the signal's exit code
}

// refused returns a usage error for a flag. The error is for the person who typed the value, so it
// hides nothing.
func refused(flag, value string, err error) error {
	return usageError{tool.Errorf(tool.Invalid, "%s %q: %s", flag, value, err).In(flag).Because(err)}
}

// cannotListen returns the error for an address that can't be listened on, with the form that the
// flag takes. An address that is in use or not available is no usage error.
func cannotListen(flag, addr, form string, err error) error {
	var taken *os.SyscallError
	var dir *fs.PathError // of a socket's path
	var malformed *net.AddrError
	var unknown *net.DNSError
	switch {
	case errors.As(err, &taken):
		return tool.Errorf(tool.Unavailable, "%s %q: can't listen there: %s; choose another address", flag, addr, taken.Err).In(flag).Because(err)
	case errors.As(err, &dir):
		return tool.Errorf(tool.Unavailable, "%s %q: can't use %s: %s; choose another address", flag, addr, dir.Path, dir.Err).In(flag).Because(err)
	case errors.As(err, &malformed), errors.As(err, &unknown):
		return usageError{tool.Errorf(tool.Invalid, "%s is %q; it must be %s", flag, addr, form).In(flag).Because(err)}
	case errors.Is(err, httpguard.ErrNoTLS):
		err = fmt.Errorf("%w, with --tls-cert and --tls-key", httpguard.ErrNoTLS)
	}
	return refused(flag, addr, err)
}

// ownTokenFile returns the default file for a server's token: it is private to this user, and the
// server removes it at its end. A token on a terminal would stay in its history and in logs.
func ownTokenFile() (string, error) {
	dir := rundir.Default()
	if err := rundir.Private(dir); err != nil {
		return "", tool.Errorf(tool.Unavailable, "there is no private directory for the token; give --token-file").Because(err)
	}
	file := filepath.Join(dir, fmt.Sprintf("mcp-%d.token", os.Getpid()))
	_ = os.Remove(file) // left behind by a killed server
	return file, nil
}

// bearerToken reads the token, or creates it in the file.
func bearerToken(path string) (string, error) {
	if _, err := os.Lstat(path); err == nil {
		return httpguard.ReadToken(path)
	}
	token := httpguard.NewToken()
	return token, httpguard.WriteToken(path, token)
}

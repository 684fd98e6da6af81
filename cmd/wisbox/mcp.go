package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// check refuses flags that would do nothing.
func (o *mcpOptions) check(flags *pflag.FlagSet) error {
	if err := o.refuseFor(o.session); err != nil {
		return err
	}
	if (o.cert == "") != (o.key == "") {
		return usageError{errors.New("--tls-cert and --tls-key go together; give both")}
	}
	for _, name := range []string{"token-file", "allow-origin", "allow-host", "tls-cert", "tls-key"} {
		if o.http == "" && flags.Changed(name) {
			return usageError{fmt.Errorf("--%s is for --http, which is not given", name)}
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
Each connection has a session of its own, opened by its first call and removed when
it ends; --session shares a kept one.

Over HTTP a bearer token is needed: --token-file names the file it is read from, or
written to when there is none. Without the flag each server makes one, in a file that
it names at its start and removes at its end.`,
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
	flags.StringVar(&opts.session, "session", "", "kept session, its `NAME`, for every connection (default: one each)")
	registerProfile(flags, &opts.profile, `the session's, else "wisbox"`)
	flags.StringSliceVar(&opts.tools, "tools", nil, "offer only these tools: `GROUP`s ("+strings.Join(groupNames(), ", ")+") and names, with commas; repeatable (default all)")
	flags.StringVar(&opts.optimizer, "digest-model", "", "offer the tool digest_optimize, which asks the model `NAME` at $"+modelURLVariable+"; see: wisbox digest optimize --help")
	flags.StringVar(&opts.http, "http", "", "serve HTTP on this `ADDRESS`: 127.0.0.1:PORT or unix:PATH")
	flags.StringVar(&opts.tokenFile, "token-file", "", "`FILE` of the bearer token for --http (mode 600; made when it is missing)")
	flags.StringArrayVar(&opts.origins, "allow-origin", nil, "web `ORIGIN` that may ask, as https://host:port; repeatable")
	flags.StringArrayVar(&opts.hosts, "allow-host", nil, "`HOST` name that requests may be addressed to; repeatable")
	flags.StringVar(&opts.cert, "tls-cert", "", "`FILE` with a certificate, to listen beyond loopback; goes with --tls-key")
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
	if set, err = opts.choose(set); err != nil {
		return err
	}
	server := mcpserver.New(set, &mcpserver.Options{
		Version: version, Instructions: wisbox.GuidanceFor(&described, set), Logger: a.logger(),
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

// open gives a connection its session.
func (o *mcpOptions) open(ctx context.Context, m *wisbox.Manager, so *wisbox.SessionOptions) (*wisbox.Session, error) {
	if o.session != "" {
		return m.Attach(ctx, o.session)
	}
	return m.Open(ctx, so)
}

// digestModel is the model of digest_optimize, nil for none.
func (o *mcpOptions) digestModel() (llm.Model, error) {
	if o.optimizer == "" {
		return nil, nil
	}
	flags := &modelFlags{flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	return flags.endpoint(o.optimizer)
}

// checkMounts refuses to start with a mount that the first call would fail on,
// and says what the mounts leave out.
func (a *app) checkMounts(ctx context.Context, f *sessionFlags, so *wisbox.SessionOptions) error {
	if len(so.Mounts) == 0 {
		return nil
	}
	report, err := hostmount.Preview(ctx, so.Mounts, &hostmount.Options{AllowedRoots: so.AllowedRoots})
	if err != nil {
		return f.mountError(err)
	}
	f.sayLeftOut(a.err, report)
	return nil
}

// settingsOf refuses to start with a session that the first call would not find,
// and gives what it was created with.
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
		Tokens: []string{token}, Hosts: opts.hosts, Origins: opts.origins, CertFile: opts.cert, KeyFile: opts.key,
	}}
	l, err := httpguard.Listen(opts.http, &ho.Options)
	if err != nil {
		return cannotListen("--http", opts.http, "HOST:PORT, as 127.0.0.1:8080, or unix:PATH", err)
	}
	fmt.Fprintf(a.err, "wisbox: serving MCP on %s\n", l.Addr())
	fmt.Fprintf(a.err, "wisbox: the bearer token is in %s\n", file)
	if err := server.Serve(ctx, l, ho); err != nil {
		return err
	}
	return ctx.Err() // the signal's exit code
}

// refused tells the person who started the server what is wrong with a flag: the
// error is about what they typed, so its text hides nothing from them.
func refused(flag, value string, err error) error {
	return usageError{tool.Errorf(tool.Invalid, "%s %q: %s", flag, value, err).In(flag).Because(err)}
}

// cannotListen reports why the server has no address, and what form of one the flag
// takes. One that is taken or can't be had is not wrong on the command line.
func cannotListen(flag, addr, form string, err error) error {
	var taken *os.SyscallError
	var dir *fs.PathError // of a socket
	var malformed *net.AddrError
	var unknown *net.DNSError
	switch {
	case errors.As(err, &taken):
		return tool.Errorf(tool.Unavailable, "%s %q: can't listen there: %s; take another address", flag, addr, taken.Err).In(flag).Because(err)
	case errors.As(err, &dir):
		return tool.Errorf(tool.Unavailable, "%s %q: can't use %s: %s; take another address", flag, addr, dir.Path, dir.Err).In(flag).Because(err)
	case errors.As(err, &malformed), errors.As(err, &unknown):
		return usageError{tool.Errorf(tool.Invalid, "%s is %q; it must be %s", flag, addr, form).In(flag).Because(err)}
	case errors.Is(err, httpguard.ErrNoTLS):
		err = fmt.Errorf("%w, with --tls-cert and --tls-key", httpguard.ErrNoTLS)
	}
	return refused(flag, addr, err)
}

// ownTokenFile is where a server puts its token that was given no file for it: one
// that is this user's alone and goes with the server. A token on a terminal would
// stay in its history and in logs.
func ownTokenFile() (string, error) {
	dir := rundir.Default()
	if err := rundir.Private(dir); err != nil {
		return "", tool.Errorf(tool.Unavailable, "there is no private directory for the token; give --token-file").Because(err)
	}
	file := filepath.Join(dir, fmt.Sprintf("mcp-%d.token", os.Getpid()))
	_ = os.Remove(file) // of a server that was killed
	return file, nil
}

// bearerToken reads the token, or makes one and keeps it in the file.
func bearerToken(path string) (string, error) {
	if _, err := os.Lstat(path); err == nil {
		return httpguard.ReadToken(path)
	}
	token := httpguard.NewToken()
	return token, httpguard.WriteToken(path, token)
}

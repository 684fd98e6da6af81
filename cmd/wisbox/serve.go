package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/page"
	"github.com/wisbox/wisbox/serve"
	"github.com/wisbox/wisbox/tool"
)

const (
	serveKeysVariable   = "WISBOX_SERVE_KEYS"
	serveSecretVariable = "WISBOX_SERVE_SECRET"
	serveAddress        = "127.0.0.1:3000"
	serveForm           = "HOST:PORT, such as " + serveAddress
)

type serveOptions struct {
	sessionFlags
	listen     string
	cert, key  string
	domain     string
	insecure   bool
	proxies    []string
	noKeys     bool
	internet   bool
	builds     bool
	remote     bool
	buildNet   string
	maxTimeout time.Duration
	sandboxes  int
	totalDisk  int64
	ready      int
	ui, uiURL  string
	keys       string
	secret     string
}

// check refuses flags that contradict each other.
func (o *serveOptions) check() error {
	switch {
	case (o.cert == "") != (o.key == ""):
		return usageError{errors.New("--tls-cert and --tls-key go together; give both")}
	case o.insecure && o.cert != "":
		return usageError{errors.New("--insecure is for a server without --tls-cert; leave one out")}
	case o.keys != "" && o.noKeys:
		return usageError{errors.New("--keys and --no-keys exclude each other; leave one out")}
	case o.insecure && o.noKeys:
		return usageError{errors.New("--no-keys serves only the loopback interface, where --insecure has no effect; leave one out")}
	case o.maxTimeout < time.Second:
		return usageError{fmt.Errorf("--max-timeout is %s; it must be at least 1s", o.maxTimeout)}
	case o.buildNet != "none" && o.buildNet != "host":
		return usageError{fmt.Errorf("--build-network is %q; it must be none or host", o.buildNet)}
	case o.buildNet != "none" && !o.builds:
		return usageError{errors.New("--build-network goes with --allow-builds; give both")}
	case o.sandboxes < 1:
		return usageError{fmt.Errorf("--sandboxes is %d; it must be at least 1", o.sandboxes)}
	case o.ready < 0 || o.ready > 1000:
		return usageError{fmt.Errorf("--ready is %d; it must be 0 to 1000", o.ready)}
	case o.uiURL != "" && o.ui == "":
		return usageError{errors.New("--ui-url goes with --ui-listen; give both")}
	case o.uiURL != "" && o.servesName(o.uiURL):
		return usageError{fmt.Errorf("--ui-url is %q, which shares a domain with sandboxes' ports; use another host", o.uiURL)}
	case strings.ContainsAny(o.domain, "/ *"):
		return usageError{fmt.Errorf("--domain is %q; it must be a name such as sandbox.example.com, optionally with a port", o.domain)}
	}
	return nil
}

// servesName reports whether a URL's host is the domain of sandboxes' ports, or below or above it: the page must not
// share cookies with programs of sandboxes.
func (o *serveOptions) servesName(text string) bool {
	u, err := url.Parse(text)
	if err != nil || o.domain == "" {
		return false // the page refuses a malformed one
	}
	domain, _, _ := strings.Cut(strings.ToLower(o.domain), ":")
	host := strings.ToLower(u.Hostname())
	return host == domain || strings.HasSuffix(host, "."+domain) || strings.HasSuffix(domain, "."+host)
}

func (a *app) newServeCmd() *cobra.Command {
	opts := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve sandboxes to clients of E2B",
		Long: `Serves E2B's API: applications that use its SDKs make their sandboxes here when
E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY point to this server. See docs/serve.md.

Requests need an API key of wisbox serve key create or of $` + serveKeysVariable + ` (keys with
commas between them), and beyond the loopback interface TLS or --insecure. Sandboxes are
kept sessions, which outlive the server; the next server ends them in time. With --remote
kube:CONTEXT/NAMESPACE they are Pods, for any number of servers: see docs/cluster.md.`,
		Example: `  wisbox serve key create --name app
  wisbox serve --ui-listen localhost:8090
  wisbox serve --listen :443 --tls-cert cert.pem --tls-key key.pem --domain sandbox.example.com`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(); err != nil {
				return err
			}
			return a.runServe(cmd.Context(), opts)
		},
	}
	cmd.AddCommand(a.newServeKeyCmd())
	opts.register(cmd.Flags())
	return cmd
}

func (o *serveOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.listen, "listen", serveAddress, "serve on this `ADDRESS`")
	flags.StringVar(&o.cert, "tls-cert", "", "`FILE` with a certificate, to listen beyond loopback")
	flags.StringVar(&o.key, "tls-key", "", "`FILE` with the key of the certificate")
	flags.BoolVar(&o.insecure, "insecure", false, "listen beyond loopback without TLS, e.g. behind a proxy")
	flags.StringSliceVar(&o.proxies, "trusted-proxies", nil, "take X-Forwarded headers from these `NETS`, e.g. 10.0.0.0/8")
	flags.StringVar(&o.domain, "domain", "", "`NAME` of the domain of ports, PORT-ID.NAME (default localhost)")
	flags.BoolVar(&o.noKeys, "no-keys", false, "require no key on loopback: admits all users of this machine")
	flags.BoolVar(&o.internet, "allow-internet", false, "let clients open the network of their sandboxes")
	flags.BoolVar(&o.remote, "allow-remote", false, "let clients of wisbox --remote use sessions, each key its own")
	flags.BoolVar(&o.builds, "allow-builds", false, "let clients build templates, as root in Podman's containers")
	flags.StringVar(&o.buildNet, "build-network", "none", "`NETWORK` of builds' steps, none or host")
	flags.DurationVar(&o.maxTimeout, "max-timeout", 24*time.Hour, "longest `TIME` of a sandbox")
	flags.IntVar(&o.sandboxes, "sandboxes", 20, "let each key have `N` sandboxes at once")
	flags.IntVar(&o.ready, "ready", 0, "keep `N` sandboxes with running containers ready for clients")
	flags.Var(sizeFlag{&o.totalDisk}, "total-disk", "`SIZE` of all sandboxes and snapshots, e.g. 200g (default no limit)")
	flags.StringVar(&o.ui, "ui-listen", "", "serve the page of wisbox ui for all sandboxes on this `ADDRESS`")
	flags.StringVar(&o.uiURL, "ui-url", "", "`URL` of this page in browsers, behind a proxy")
	flags.StringVar(&o.keys, "keys", "", "`FILE` with the keys (default: those of wisbox serve key create)")
	flags.StringVar(&o.secret, "secret", "", "`FILE` with servers' common secret (default $"+serveSecretVariable+")")
	o.flags = pflag.NewFlagSet("sandbox", pflag.ContinueOnError)
	o.registerLimits(o.flags)
	o.flags.Lookup("snapshot-space").Usage = "`SIZE` that a sandbox's own snapshots may take, e.g. 512m or 2g (default: that of --disk)"
	o.flags.StringVar(&o.given.Image, "image", "", "`IMAGE` of every sandbox (default: wisbox's own)")
	o.flags.StringVar((*string)(&o.given.Isolation), "isolation", os.Getenv("WISBOX_ISOLATION"), "`KIND`: default, or gvisor (default $WISBOX_ISOLATION, then default)")
	o.flags.BoolVar(&o.given.Strict, "strict", false, "refuse to start sandboxes if the host doesn't enforce every limit")
	markRare(o.flags, "cpus", "disk", "image", "memory")
	flags.AddFlagSet(o.flags)
}

func (a *app) runServe(ctx context.Context, opts *serveOptions) error {
	boundMemory()
	opts.alone = true
	so, err := a.sessionOptions(&opts.sessionFlags)
	if err != nil {
		return err
	}
	options, counted := a.options(a.logger()), metrics.New()
	if options.Meter = counted; !far.IsKube(options.Far) {
		options.Holder = a.holdCommand()
	} else if opts.ui != "" {
		return usageError{errors.New("--ui-listen isn't supported with --remote kube:…; wisbox ls shows the sessions there")}
	} else {
		options.ClusterError = serve.HideCluster(a.serverLog(slog.LevelInfo))
	}
	m, err := wisbox.NewManager(ctx, options)
	if err != nil {
		return err
	}
	defer m.Close()
	counted.Watch(m.Stats)
	server, err := a.newServer(ctx, m, so, opts, counted)
	if err != nil {
		return err
	}
	defer server.Close()
	l, err := server.Listen(opts.listen)
	if err != nil {
		return cannotListen("--listen", opts.listen, serveForm, err)
	}
	beside, err := a.besidePage(opts, so, m)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	a.sayServed(opts, l.Addr().String(), server)
	if err := together(ctx, func(ctx context.Context) error { return server.Serve(ctx, l) }, beside); err != nil {
		return err
	}
	return ctx.Err() // the signal's exit code
}

// together runs both functions until ctx ends or one of them returns.
func together(ctx context.Context, serve, beside func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- beside(ctx)
	}()
	err := serve(ctx)
	cancel()
	return errors.Join(err, <-ended)
}

// besidePage listens on the address of the page and prints its URL. The returned function serves the page; without
// --ui-listen it only waits.
func (a *app) besidePage(opts *serveOptions, so *wisbox.SessionOptions, m *wisbox.Manager) (func(context.Context) error, error) {
	if opts.ui == "" {
		return func(ctx context.Context) error { <-ctx.Done(); return nil }, nil
	}
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return nil, err
	}
	next := func(url string) { fmt.Fprintf(a.out, "the page opens for one browser at %s\n", url) } // stderr is the log
	cert, key := opts.cert, opts.key
	if opts.uiURL == "" && httpguard.OnLoopback(opts.ui) { // no certificate has its loopback name
		cert, key = "", ""
	}
	server, err := page.Listen(&page.Options{
		Manager: m, Store: store, Session: *so, Address: opts.ui, URL: opts.uiURL, CertFile: cert, KeyFile: key,
		KeepNames: true, Version: version, Log: a.serverLog(slog.LevelWarn), Entered: next,
	})
	if known := (*tool.Error)(nil); errors.As(err, &known) {
		known = known.In("--ui-" + known.Field) // of --ui-listen and --ui-url
		return nil, errors.Join(asUsage(known), store.Close())
	}
	if err != nil {
		return nil, errors.Join(cannotListen("--ui-listen", opts.ui, "HOST:PORT, such as localhost:8090", err), store.Close())
	}
	next(server.URL())
	return func(ctx context.Context) error { return errors.Join(server.Serve(ctx), store.Close()) }, nil
}

func (a *app) newServer(ctx context.Context, m *wisbox.Manager, so *wisbox.SessionOptions, opts *serveOptions, counted *metrics.Metrics) (*serve.Server, error) {
	dir, err := a.serveDir()
	if err != nil {
		return nil, err
	}
	secret, err := opts.readSecret(m.Cluster() != nil)
	if err != nil {
		return nil, err
	}
	proxies, err := opts.readProxies()
	if err != nil {
		return nil, err
	}
	return serve.New(ctx, &serve.Options{
		Manager: m, Dir: dir, Session: *so, Keys: keysOfEnvironment(), KeysFile: opts.keys, Secret: secret, NoKeys: opts.noKeys, Domain: opts.domain,
		CertFile: opts.cert, KeyFile: opts.key, Insecure: opts.insecure, Proxies: proxies, Internet: opts.internet,
		Remote: opts.remote, Builds: opts.builds, BuildNetwork: opts.buildNet == "host",
		MaxTimeout: opts.maxTimeout, Sandboxes: opts.sandboxes, Disk: opts.totalDisk, Ready: opts.ready, Metrics: counted,
		Log: a.serverLog(slog.LevelInfo),
	})
}

// readProxies parses addresses and networks.
func (o *serveOptions) readProxies() (all []netip.Prefix, err error) {
	for _, text := range o.proxies {
		p, err := netip.ParsePrefix(text)
		if addr, failed := netip.ParseAddr(text); failed == nil {
			p, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		if err != nil {
			return nil, usageError{fmt.Errorf("--trusted-proxies %q is not an address; write it as 127.0.0.1 or 10.0.0.0/8", text)}
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// serverLog writes a line of JSON for each event from a level on, with --debug for all.
func (a *app) serverLog(from slog.Level) *slog.Logger {
	if a.debug {
		from = slog.LevelDebug
	}
	return slog.New(slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: from}))
}

// minSecret is the minimum length of the secret in bytes, without surrounding white space.
const minSecret = 32

// readSecret reads the common secret of a cluster's servers. Servers of one machine don't need it.
func (o *serveOptions) readSecret(needed bool) ([]byte, error) {
	const how = "make one with: head -c 32 /dev/urandom | base64 -w0 >secret"
	if !needed {
		if o.secret != "" {
			return nil, usageError{errors.New("--secret is for servers of a cluster (--remote kube:CONTEXT/NAMESPACE); leave it out")}
		}
		return nil, nil
	}
	text := os.Getenv(serveSecretVariable)
	if o.secret != "" {
		raw, err := os.ReadFile(o.secret)
		if err != nil {
			return nil, usageError{fmt.Errorf("--secret %s can't be read: %w; %s", o.secret, err, how)}
		}
		text = string(raw)
	}
	switch text = strings.TrimSpace(text); {
	case text == "":
		return nil, usageError{errors.New("servers of a cluster need a common secret; give --secret FILE or $" + serveSecretVariable + "; " + how)}
	case len(text) < minSecret:
		return nil, usageError{fmt.Errorf("the secret of --secret or $%s has %d characters; it must have at least %d; %s", serveSecretVariable, len(text), minSecret, how)}
	}
	return []byte(text), nil
}

// sayServed prints what clients need to connect.
func (a *app) sayServed(opts *serveOptions, addr string, server *serve.Server) {
	scheme := "http"
	if opts.cert != "" {
		scheme = "https"
	}
	fmt.Fprintf(a.err, "wisbox: serving on %s://%s\n", scheme, addr)
	if server.Empty() {
		fmt.Fprintln(a.err, "wisbox: no API key exists yet; create one: wisbox serve key create")
	}
}

func keysOfEnvironment() (all []string) {
	for text := range strings.SplitSeq(os.Getenv(serveKeysVariable), ",") {
		if text = strings.TrimSpace(text); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// serveDir returns the server's directory in the state root.
func (a *app) serveDir() (string, error) {
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return "", err
	}
	return filepath.Join(store.Path(), "serve"), store.Close()
}

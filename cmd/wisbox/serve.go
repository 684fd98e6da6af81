package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/serve"
)

const (
	serveKeysVariable = "WISBOX_SERVE_KEYS"
	serveAddress      = "127.0.0.1:3000"
	serveForm         = "HOST:PORT, as " + serveAddress
)

type serveOptions struct {
	sessionFlags
	listen     string
	cert, key  string
	domain     string
	insecure   bool
	noKeys     bool
	internet   bool
	builds     bool
	buildNet   string
	maxTimeout time.Duration
	sandboxes  int
	totalDisk  string
	ready      int
}

// check refuses flags that contradict each other.
func (o *serveOptions) check() error {
	switch {
	case (o.cert == "") != (o.key == ""):
		return usageError{errors.New("--tls-cert and --tls-key go together; give both")}
	case o.insecure && o.cert != "":
		return usageError{errors.New("--insecure is for a server without --tls-cert; leave one out")}
	case o.insecure && o.noKeys:
		return usageError{errors.New("--no-keys serves the loopback interface alone, where --insecure does nothing; leave one out")}
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
	case strings.ContainsAny(o.domain, "/ *"):
		return usageError{fmt.Errorf("--domain is %q; it must be a name as sandbox.example.com, maybe with a port", o.domain)}
	}
	return nil
}

func (a *app) newServeCmd() *cobra.Command {
	opts := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve sandboxes to clients of E2B",
		Long: `Serves E2B's API: applications that use its SDKs make their sandboxes here when
E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY point to this server. See docs/serve.md.

Requests need an API key: wisbox serve key create makes one, or $` + serveKeysVariable + ` has
some, with commas between them. Beyond the loopback interface TLS is needed too, or
--insecure. The sandboxes are kept sessions; they outlive the server, which ends them
when their time is over.`,
		Example: `  wisbox serve key create --name app
  wisbox serve
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
	flags.StringVar(&o.cert, "tls-cert", "", "`FILE` with a certificate, to listen beyond loopback; goes with --tls-key")
	flags.StringVar(&o.key, "tls-key", "", "`FILE` with the key of the certificate")
	flags.BoolVar(&o.insecure, "insecure", false, "listen beyond loopback without TLS: something in front speaks it, or the network is trusted")
	flags.StringVar(&o.domain, "domain", "", "`NAME` below which the hosts of sandboxes' ports are, as PORT-ID.NAME, maybe with a port (default localhost)")
	flags.BoolVar(&o.noKeys, "no-keys", false, "let everybody in who reaches the loopback interface, other users of this machine too")
	flags.BoolVar(&o.internet, "allow-internet", false, "let clients open the network of their sandboxes, as E2B does by default; never on without this flag")
	flags.BoolVar(&o.builds, "allow-builds", false, "let clients build templates: their steps run as root in containers of Podman's")
	flags.StringVar(&o.buildNet, "build-network", "none", "`NETWORK` of such steps: none, or host, which reaches all that this machine does")
	flags.DurationVar(&o.maxTimeout, "max-timeout", 24*time.Hour, "longest `TIME` that a client may give a sandbox")
	flags.IntVar(&o.sandboxes, "sandboxes", 20, "sandboxes at once, `N` for each key that doesn't say")
	flags.IntVar(&o.ready, "ready", 0, "keep `N` sandboxes ready, each with a container that runs, so that a client waits for no start")
	flags.StringVar(&o.totalDisk, "total-disk", "", "disk of all sandboxes and snapshots together, of all keys, a `SIZE` as 200g (default no bound)")
	o.flags = pflag.NewFlagSet("sandbox", pflag.ContinueOnError)
	o.registerLimits(o.flags)
	o.flags.Lookup("snapshot-space").Usage = "`SIZE` that a sandbox's own snapshots may take, as 512m or 2g (default as much as --disk)"
	o.flags.StringVar(&o.image, "image", "", "`IMAGE` of every sandbox (default: the one that wisbox image build makes)")
	o.flags.StringVar(&o.isolation, "isolation", os.Getenv("WISBOX_ISOLATION"), "`KIND`: default, or gvisor (default $WISBOX_ISOLATION, then default)")
	o.flags.BoolVar(&o.strict, "strict", false, "refuse to start sandboxes where the host doesn't enforce every limit")
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
	options.Holder, options.Meter = a.holdCommand(), counted
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
	a.sayServed(opts, l.Addr().String(), server)
	if err := server.Serve(ctx, l); err != nil {
		return err
	}
	return ctx.Err() // the signal's exit code
}

func (a *app) newServer(ctx context.Context, m *wisbox.Manager, so *wisbox.SessionOptions, opts *serveOptions, counted *metrics.Metrics) (*serve.Server, error) {
	dir, err := a.serveDir()
	if err != nil {
		return nil, err
	}
	disk, err := readSize("total-disk", opts.totalDisk)
	if err != nil {
		return nil, err
	}
	level := slog.LevelInfo
	if a.debug {
		level = slog.LevelDebug
	}
	return serve.New(ctx, &serve.Options{
		Manager: m, Dir: dir, Session: *so, Keys: keysOfEnvironment(), NoKeys: opts.noKeys, Domain: opts.domain,
		CertFile: opts.cert, KeyFile: opts.key, Insecure: opts.insecure, Internet: opts.internet,
		Builds: opts.builds, BuildNetwork: opts.buildNet == "host",
		MaxTimeout: opts.maxTimeout, Sandboxes: opts.sandboxes, Disk: disk, Ready: opts.ready, Metrics: counted,
		Log: slog.New(slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: level})),
	})
}

// sayServed says what clients need.
func (a *app) sayServed(opts *serveOptions, addr string, server *serve.Server) {
	scheme := "http"
	if opts.cert != "" {
		scheme = "https"
	}
	fmt.Fprintf(a.err, "wisbox: serving on %s://%s\n", scheme, addr)
	if server.Empty() {
		fmt.Fprintln(a.err, "wisbox: there is no API key yet; make one: wisbox serve key create")
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

// serveDir is the server's directory in the state root.
func (a *app) serveDir() (string, error) {
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return "", err
	}
	return filepath.Join(store.Path(), "serve"), store.Close()
}

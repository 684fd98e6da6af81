package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/page"
	"github.com/wisbox/wisbox/tool"
)

type uiOptions struct {
	listen, url string
	cert, key   string
	roots       []string
	noBrowser   bool
	sessions    sessionFlags // for sessions that the page creates
}

// pageFlags are the flags of a new session for which the page has no field, or that bound the
// session.
var pageFlags = []string{"image", "eval-timeout", "max-code", "cpus", "memory", "pids", "tmp", "shm-size", "disk", "inodes", "isolation", "strict", "userns", "seccomp", "deny", "egress-out", "egress-via"}

func (a *app) newUICmd() *cobra.Command {
	opts := &uiOptions{}
	cmd := &cobra.Command{
		Use:   "ui [flags]",
		Short: "Show the sessions in a browser: watch agents, and undo what they did",
		Long: `Serves a page with the sessions of this machine: their calls as they come, with the
changes of each, undo, plots, files, snapshots, a terminal, and connections. It runs until Ctrl-C.

The printed URL admits one browser, once; then wisbox prints the next URL. The browser
can do what you can do with wisbox. The page listens on the loopback interface; beyond it,
it needs --tls-cert and --tls-key. Behind a proxy that terminates TLS, --url is the page's
address in browsers. See docs/page.md.

New sessions start as with wisbox create: the limits, --deny, --isolation and the
other flags here, $WISBOX_ISOLATION and your configuration files apply. Their --deny rules
add up, and the page can add more.`,
		Example: `  wisbox ui
  wisbox ui --allow-root ~/src
  wisbox ui --no-browser --listen localhost:8090 --url https://dev.example.com/wisbox/`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (opts.cert == "") != (opts.key == "") {
				return usageError{errors.New("--tls-cert and --tls-key go together; give both")}
			}
			return a.runUI(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.listen, "listen", "localhost:0", "serve on this `ADDRESS`; port 0 is any free port")
	flags.StringVar(&opts.url, "url", "", "`URL` of the page in browsers, as https://HOST/PREFIX, if a proxy in front passes requests on")
	flags.StringVar(&opts.cert, "tls-cert", "", "`FILE` with a certificate, to listen beyond loopback")
	flags.StringVar(&opts.key, "tls-key", "", "`FILE` with the key of the certificate")
	flags.StringArrayVar(&opts.roots, "allow-root", nil, "let the page copy folders below `DIR` into new sessions; repeatable (default none)")
	opts.sessions.register(pflag.NewFlagSet("session", pflag.ContinueOnError)) // files set the others too
	for _, name := range pageFlags {
		flags.AddFlag(opts.sessions.flags.Lookup(name))
	}
	markRare(opts.sessions.flags, "cpus", "deny", "disk", "image", "memory")
	flags.BoolVar(&opts.noBrowser, "no-browser", false, "only print the URL")
	return cmd
}

func (a *app) runUI(ctx context.Context, opts *uiOptions) error {
	boundMemory()
	for i, dir := range opts.roots {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return refused("--allow-root", dir, err)
		}
		opts.roots[i] = abs
	}
	so, err := a.sessionOptions(&opts.sessions)
	if err != nil {
		return err
	}
	so.OnPull = nil // several requests pull at once
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := a.buildImage(ctx, m, &opts.sessions, so); err != nil {
		return err
	}
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return err
	}
	defer store.Close()
	server, err := page.Listen(a.pageOptions(opts, so, m, store))
	if known := (*tool.Error)(nil); errors.As(err, &known) {
		return asUsage(known.In("--" + known.Field)) // the flag --url
	}
	if err != nil {
		return cannotListen("--listen", opts.listen, "HOST:PORT, such as localhost:8090", err)
	}
	file, err := a.sayPage(opts, server)
	if err != nil {
		return errors.Join(err, server.Close())
	}
	defer os.Remove(file)
	if err := server.Serve(ctx); err != nil {
		return err
	}
	return ctx.Err() // keeps the signal's exit code
}

func (a *app) pageOptions(opts *uiOptions, so *wisbox.SessionOptions, m *wisbox.Manager, store *overlay.Store) *page.Options {
	return &page.Options{
		Manager: m, Store: store, Session: *so, AllowedRoots: opts.roots, Address: opts.listen, URL: opts.url,
		CertFile: opts.cert, KeyFile: opts.key, Version: version, Log: a.serverLog(slog.LevelWarn),
		Entered: func(next string) {
			fmt.Fprintf(a.err, "wisbox: a browser has signed in; another one opens: %s\n", next)
		},
	}
}

// sayPage prints the URL, and opens it through a file if there is a browser.
func (a *app) sayPage(opts *uiOptions, server *page.Server) (file string, err error) {
	url := server.URL()
	err = a.print(map[string]string{"url": url, "address": server.Address().String()}, func(w io.Writer) { fmt.Fprintln(w, url) })
	if err != nil || opts.noBrowser || a.json || os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == "" {
		return "", err
	}
	if file, err = openBrowser(url, a.logger()); err != nil {
		fmt.Fprintln(a.err, "wisbox: no browser could be opened; open the URL yourself")
	}
	return file, nil
}

// openBrowser makes the desktop open a file that redirects to the URL and that only this user can
// read: other users of the machine can see command lines.
func openBrowser(url string, log *slog.Logger) (file string, err error) {
	dir := rundir.Default()
	if err := rundir.Private(dir); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "page-*.html") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(f, `<!doctype html><meta charset="utf-8"><title>wisbox</title><meta http-equiv="refresh" content="0;url=%s">`, html.EscapeString(url))
	cmd := exec.Command("xdg-open", f.Name())
	if err = errors.Join(err, f.Close()); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return f.Name(), err
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			log.Debug("open a browser", "error", err)
		}
	}()
	return f.Name(), nil
}

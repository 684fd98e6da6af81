package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/ports"
	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/tool"
)

type portOptions struct {
	tcp string
	raw bool
}

func (a *app) newPortCmd() *cobra.Command {
	opts := &portOptions{}
	cmd := &cobra.Command{
		Use:   "port [flags] SESSION PORT",
		Short: "Reach a server that runs in a session",
		Long: `Listens on this machine and forwards connections to PORT of the session, where a
program listens on 127.0.0.1, 0.0.0.0 or ::1. It prints its address and runs until
Ctrl-C, or until the session ends or is reset. It needs no network rule.

By default it listens on a unix socket that only this user can reach. --tcp serves
HTTP and WebSockets at SESSION-PORT.localhost to a browser that opens the printed URL;
its token becomes a cookie. --raw forwards any bytes from a TCP port of the
loopback interface, and needs no token: each user of this machine can connect.

A page that you open runs in your browser, outside of the sandbox: the browser has a
network, and loads whatever the page names.`,
		Example: `  wisbox exec -d --wait-port 8000 box -- python3 -m http.server 8000
  wisbox port --tcp 0 box 8000
  wisbox port box 8000    # then: curl --unix-socket PATH http://localhost/`,
		Args: exactArgs("SESSION", "PORT"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runPort(cmd.Context(), opts, args[0], args[1]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.tcp, "tcp", "", "serve HTTP for a browser on port `[ADDR:]N` of the loopback interface; 0 is any free port")
	flags.BoolVar(&opts.raw, "raw", false, "forward any bytes, without a token; without --tcp at the same port of 127.0.0.1")
	return cmd
}

func (a *app) runPort(ctx context.Context, opts *portOptions, name, number string) error {
	if outer, inner, ok := strings.Cut(number, ":"); ok {
		return usageError{fmt.Errorf("PORT is %q; write the session's port, and that of this machine with --tcp: wisbox port %s %s --tcp=127.0.0.1:%s", number, name, inner, outer)}
	}
	port, err := portNumber("PORT", number, 1)
	if err != nil {
		return err
	}
	at, err := opts.at(port)
	if err != nil {
		return err
	}
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		return untilEnd(ctx, s, func() (func(context.Context) error, error) { return a.openPort(opts, s, port, at) })
	})
}

// portNumber parses a TCP port.
func portNumber(what, text string, least uint64) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n < least {
		return 0, usageError{fmt.Errorf("%s is %q; it must be a TCP port, %d to 65535", what, text, least)}
	}
	return uint16(n), nil
}

// at returns the TCP address to listen on.
func (o *portOptions) at(port uint16) (at netip.AddrPort, err error) {
	loopback := netip.MustParseAddr("127.0.0.1")
	if o.tcp == "" {
		return netip.AddrPortFrom(loopback, port), nil
	}
	host, number, found := "", o.tcp, false
	if i := strings.LastIndexByte(o.tcp, ':'); i >= 0 {
		host, number, found = strings.Trim(o.tcp[:i], "[]"), o.tcp[i+1:], true
	}
	n, err := portNumber("--tcp", number, 0)
	if err != nil {
		return at, err
	}
	if !found || host == "localhost" {
		return netip.AddrPortFrom(loopback, n), nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.IsLoopback() || addr.Zone() != "" {
		return at, usageError{fmt.Errorf("--tcp is %q; it listens on the loopback interface only, e.g. 127.0.0.1:%s", o.tcp, number)}
	}
	if !o.raw && addr != loopback && addr != netip.IPv6Loopback() {
		return at, usageError{fmt.Errorf("--tcp is %q; browsers find a name below localhost at 127.0.0.1 and ::1 alone", o.tcp)}
	}
	return netip.AddrPortFrom(addr, n), nil
}

// openPort listens and prints the address. The returned function serves until its context ends.
func (a *app) openPort(opts *portOptions, s *wisbox.Session, port uint16, at netip.AddrPort) (serve func(context.Context) error, err error) {
	dial := func(ctx context.Context) (net.Conn, error) { return s.Dial(ctx, port) }
	if opts.tcp != "" && !opts.raw {
		web, err := ports.ListenWeb(&ports.WebOptions{Session: s.ID(), Port: port, Dial: dial, At: int(at.Port())})
		if err != nil {
			return nil, inUse(at, err)
		}
		return web.Serve, a.sayPort(s, port, web.URL(), "for a browser that opens this URL")
	}
	l, where, who, err := listenBytes(opts, s, port, at)
	if err != nil {
		return nil, err
	}
	said := &saidOnce{to: a.err}
	return func(ctx context.Context) error { return ports.Forward(ctx, l, dial, said.say) }, a.sayPort(s, port, where, who)
}

func listenBytes(opts *portOptions, s *wisbox.Session, port uint16, at netip.AddrPort) (l net.Listener, where, who string, err error) {
	if opts.raw {
		if l, err = net.Listen("tcp", at.String()); err != nil {
			return nil, "", "", inUse(at, err)
		}
		return l, l.Addr().String(), "--raw asks for nothing: each user of this machine can connect", nil
	}
	path := socketPath(s, port)
	l, err = httpguard.Listen("unix:"+path, nil)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, "", "", tool.Errorf(tool.Busy, "port %d of %s is open already, at %s", port, s.ID(), path)
	case err != nil:
		return nil, "", "", hostError(err)
	}
	return l, path, "for this user alone; try: curl --unix-socket " + path + " http://localhost/", nil
}

// socketPath returns a path that is always the same for a port of a session.
func socketPath(s *wisbox.Session, port uint16) string {
	sum := sha256.Sum256([]byte(cmp.Or(s.WorkspacePath(), "far/"+s.ID())))
	return filepath.Join(rundir.Default(), fmt.Sprintf("port-%x-%d", sum[:8], port))
}

func inUse(at netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return tool.Errorf(tool.Busy, "port %d of this machine is in use; name another one with --tcp, or 0 for any that is free", at.Port())
	case errors.Is(err, syscall.EACCES):
		return tool.Errorf(tool.Permission, "this user may not listen on port %d of this machine; name one above 1023 with --tcp", at.Port())
	}
	return hostError(err)
}

// sayPort reports the port's address, on stdout for programs and on stderr for people.
func (a *app) sayPort(s *wisbox.Session, port uint16, where, who string) error {
	err := a.print(map[string]any{"session": s.ID(), "port": port, "at": where}, func(w io.Writer) { fmt.Fprintln(w, where) })
	if !a.json {
		fmt.Fprintf(a.err, "wisbox: port %d of %s, %s\n", port, s.ID(), who)
	}
	return err
}

// untilEnd calls open once the session is watched, and serves until ctx or the session ends, or
// nobody is left to serve.
func untilEnd(ctx context.Context, s *wisbox.Session, open func() (func(context.Context) error, error)) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	watching, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer stop()
		ended <- s.AwaitEnd(serving, sync.OnceFunc(func() { close(watching) }))
	}()
	select {
	case <-watching:
	case err := <-ended:
		return errors.Join(err, ctx.Err())
	}
	serve, err := open()
	if err == nil {
		err = serve(serving)
	}
	left := serving.Err() == nil
	stop()
	if why := <-ended; ctx.Err() == nil && err == nil && !left {
		err = why
	}
	return errors.Join(err, ctx.Err())
}

// saidOnce logs a problem only once.
type saidOnce struct {
	to   io.Writer
	mu   sync.Mutex
	last string
}

func (s *saidOnce) say(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := err.Error(); text != s.last {
		s.last = text
		fmt.Fprintf(s.to, "wisbox: %s\n", streams.Printable(text))
	}
}

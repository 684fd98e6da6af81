// Command preview runs a web application in a session, and serves it on this machine. Each request
// goes through the session's Dial, so the application needs no network.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// application stands for an agent's work.
const application = `
from http.server import BaseHTTPRequestHandler, HTTPServer
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(b"hello from " + self.path.encode() + b"\n")
HTTPServer(("127.0.0.1", 8000), Page).serve_forever()
`

const port = 8000 // of the session

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	m, err := wisbox.NewManager(ctx, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	server := sandbox.Cmd{Argv: []string{"python3", "-c", application}}
	info, err := s.StartProcess(ctx, server, &wisbox.ProcessOptions{WaitPort: port})
	if err != nil {
		return err
	}
	if !*info.Listens {
		return fmt.Errorf("the application does not listen: %v", info.Notices)
	}
	return serve(ctx, s, out)
}

// serve serves the application until ctx ends. Its pages come from an untrusted program: give them
// their own origin, such as this port.
func serve(ctx context.Context, s *wisbox.Session, out io.Writer) error {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "session"})
	proxy.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, port) },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	fmt.Fprintf(out, "http://%s/\n", l.Addr())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

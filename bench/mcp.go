package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/mcpserver"
)

var mcpTable = table{
	name: "mcp", title: "What the Model Context Protocol costs",
	about: "Medians (and p99) of one call, client and server and what lies between together, in one process: the base is `Session.Call` on the same session, in turn. " +
		"The client is the official Go SDK's; on pipes both speak over two of the kernel's, over HTTP on the loopback interface with a bearer token.",
	parts: []func(*bench, context.Context) error{(*bench).protocol},
}

// protocol measures two calls over each transport: a program, and the read of a large file.
func (b *bench) protocol(ctx context.Context) error {
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	content, err := json.Marshal(strings.Repeat("a line of forty characters and no more\n", 1200))
	if err != nil {
		return err
	}
	if err := tool(ctx, s, "write_file", `{"file_path":"a.txt","content":`+string(content)+`}`); err != nil {
		return err
	}
	server := mcpserver.New(wisbox.ToolSet(), &mcpserver.Options{
		Open: func(context.Context) (mcpserver.Session, error) { return unclosed{s}, nil },
	})
	for _, over := range []struct {
		name    string
		connect func(context.Context, *mcpserver.Server) (*sdk.ClientSession, func(), error)
	}{{"on pipes", onPipes}, {"over HTTP", overHTTP}} {
		c, end, err := over.connect(ctx, server)
		if err != nil {
			return err
		}
		err = b.compare(ctx, s, c, over.name)
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// unclosed is a session that outlives its connection.
type unclosed struct{ *wisbox.Session }

func (unclosed) Close(context.Context) error { return nil }

func (b *bench) compare(ctx context.Context, s *wisbox.Session, c *sdk.ClientSession, over string) error {
	both := func(name, args string) (ours, base samples, err error) {
		return alternate(b.n, func() error {
			res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
			if err == nil && res.IsError {
				err = errors.New("the call failed")
			}
			return err
		}, func() error { return tool(ctx, s, name, args) })
	}
	ours, base, err := both("shell_execute", `{"commands":["/bin/true"]}`)
	if err != nil {
		return err
	}
	b.add(added("`shell_execute` of `/bin/true` "+over, ours, base, time.Millisecond))
	if ours, base, err = both("read_file", `{"file_path":"a.txt"}`); err != nil {
		return err
	}
	b.notes = append(b.notes, fmt.Sprintf("`read_file` of 48 KB %s: median %.2f ms, %.2f ms without the protocol; the answer has the text twice, as every result, and both ends write or read its JSON more than once",
		over, ms(ours.Median()), ms(base.Median())))
	return nil
}

// added returns a row in which ours may take at most that much more than the base.
func added(what string, ours, base samples, most time.Duration) row {
	more := ours.Median() - base.Median()
	return row{
		what: what, ours: ours, base: base, baseName: fmt.Sprintf("`Session.Call`; the protocol adds %.2f ms", ms(more)),
		ratio: float64(ours.Median()) / float64(base.Median()), bar: fmt.Sprintf("≤ %.0f ms more", ms(most)), met: more <= most,
	}
}

func connect(ctx context.Context, over sdk.Transport) (*sdk.ClientSession, error) {
	return sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).
		Connect(ctx, over, &sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
}

func onPipes(ctx context.Context, server *mcpserver.Server) (*sdk.ClientSession, func(), error) {
	in, toServer, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	fromServer, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ServeStdio(ctx, in, out)
		_ = out.Close()
	}()
	c, err := connect(ctx, &sdk.IOTransport{Reader: fromServer, Writer: toServer})
	return c, func() { _ = toServer.Close(); <-ended }, err
}

func overHTTP(ctx context.Context, server *mcpserver.Server) (*sdk.ClientSession, func(), error) {
	token := httpguard.NewToken()
	handler, err := server.Handler(&mcpserver.HTTPOptions{Options: httpguard.Options{Tokens: []string{token}}})
	if err != nil {
		return nil, nil, err
	}
	web := httptest.NewServer(handler)
	c, err := connect(ctx, &sdk.StreamableClientTransport{Endpoint: web.URL, HTTPClient: &http.Client{Transport: bearer(token)}})
	return c, func() { _ = c.Close(); _ = handler.Close(); web.Close() }, err
}

// bearer adds a token to every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

const soon = time.Minute // keeps a failed test from hanging; nothing takes as long, even on a busy machine

// raw is a client that writes arbitrary lines.
type raw struct {
	t      *testing.T
	in     *os.File
	out    *os.File
	lines  *bufio.Reader
	ended  chan error
	cancel context.CancelFunc
}

// startRaw serves s on real pipes.
func startRaw(t *testing.T, s *Server) *raw {
	t.Helper()
	stdin, in, err := os.Pipe()
	require.NoError(t, err)
	out, stdout, err := os.Pipe()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r := &raw{t: t, in: in, out: out, lines: bufio.NewReader(out), ended: make(chan error, 1), cancel: cancel}
	go func() {
		err := s.ServeStdio(ctx, stdin, stdout)
		stdout.Close()
		r.ended <- err
	}()
	t.Cleanup(func() {
		in.Close()
		out.Close()
		cancel()
	})
	return r
}

// startReady is startRaw and the handshake.
func startReady(t *testing.T, s *Server) *raw {
	t.Helper()
	r := startRaw(t, s)
	r.send(`{"jsonrpc":"2.0","id":"hi","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	require.Equal(t, `"hi"`, r.next().ID)
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

func (r *raw) send(lines ...string) {
	r.t.Helper()
	_, err := io.WriteString(r.in, strings.Join(lines, "\n")+"\n")
	require.NoError(r.t, err)
}

func (r *raw) call(id int, tool, args string) {
	r.t.Helper()
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args))
}

// reply is one line of the server's.
type reply struct {
	Line   string
	ID     string
	Method string
	Params struct {
		ProgressToken any     `json:"progressToken"`
		Message       string  `json:"message"`
		Progress      float64 `json:"progress"`
	}
	Error *struct {
		Code    int
		Message string
	}
	Result struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Type, Text, MimeType, Data string }
		Meta              map[string]json.RawMessage `json:"_meta"`
	}
}

// next reads the next line, which must be one JSON-RPC message.
func (r *raw) next() reply {
	r.t.Helper()
	require.NoError(r.t, r.out.SetReadDeadline(time.Now().Add(soon)))
	line, err := r.lines.ReadString('\n')
	require.NoError(r.t, err)
	var head struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(line), &head), line)
	require.Equal(r.t, "2.0", head.Version)
	var rest struct {
		reply
		ID any `json:"id"`
	}
	_ = json.Unmarshal([]byte(line), &rest)
	rest.reply.ID, rest.reply.Line = string(head.ID), line
	return rest.reply
}

// end closes the input and waits until the server ends.
func (r *raw) end() {
	r.t.Helper()
	r.in.Close()
	r.awaitEnd()
}

func (r *raw) awaitEnd() {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
	case <-time.After(soon):
		require.Fail(r.t, "the server did not end")
	}
}

// await waits for an event that must come.
func await(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(soon):
		require.Fail(t, "it did not happen")
	}
}

// slow is a session whose end waits.
type slow struct{ closing, resume chan struct{} }

func (s slow) ID() string { return "slow" }
func (s slow) Call(context.Context, string, json.RawMessage) (*tool.Result, error) {
	return &tool.Result{Text: "done"}, nil
}
func (s slow) Close(context.Context) error {
	close(s.closing)
	<-s.resume
	return nil
}

// TestASignalAfterTheClientsEndIsNoError: some clients send one if the server takes more than two seconds.
func TestASignalAfterTheClientsEndIsNoError(t *testing.T) {
	s := slow{make(chan struct{}), make(chan struct{})}
	r := startReady(t, New(newFakes().set(), &Options{Open: func(context.Context) (Session, error) { return s, nil }}))
	r.call(1, "echo", `{"text":"hi"}`)
	require.Equal(t, "1", r.next().ID)
	require.NoError(t, r.in.Close())
	<-s.closing
	r.cancel()
	close(s.resume)
	require.NoError(t, <-r.ended)
}

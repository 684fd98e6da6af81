package sshd

import (
	"context"
	"io"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/wisbox/wisbox/internal/relay"
	"github.com/wisbox/wisbox/tool"
)

// target is the destination and the origin of a client's connection.
type target struct {
	Host       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// inSession reports whether the destination is a port of the session itself: other destinations are
// for the session's rules and programs.
func (t *target) inSession() bool {
	return t.Port > 0 && t.Port < 1<<16 && (t.Host == "localhost" || t.Host == "127.0.0.1" || t.Host == "::1")
}

// forward connects a client to a port of the session.
func (s *server) forward(ctx context.Context, asked ssh.NewChannel) {
	var to target
	if ssh.Unmarshal(asked.ExtraData(), &to) != nil {
		_ = asked.Reject(ssh.ConnectionFailed, "the request can't be read")
		return
	}
	if !to.inSession() {
		_ = asked.Reject(ssh.Prohibited, "wisbox connects to ports of the session itself, as localhost:8000; other hosts are for its programs, by the rules of wisbox allow")
		return
	}
	conn, err := s.opts.Session.Dial(ctx, uint16(to.Port))
	if err != nil {
		_ = asked.Reject(ssh.ConnectionFailed, tool.AsError(err).Message)
		return
	}
	ch, requests, err := asked.Accept()
	if err != nil {
		relay.Reset(conn)
		return
	}
	defer context.AfterFunc(ctx, func() { relay.Reset(conn) })()
	join(ch, requests, conn)
}

// join passes bytes on in both directions, with their ends. A channel that the client has closed
// gets nothing any more: when all received bytes are passed on, the connection ends too.
func join(ch ssh.Channel, requests <-chan *ssh.Request, conn net.Conn) {
	var ways, up sync.WaitGroup
	up.Go(func() {
		if _, err := io.Copy(struct{ io.Writer }{conn}, ch); err != nil {
			relay.Reset(conn)
			return
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
	ways.Go(func() {
		if _, err := io.Copy(ch, struct{ io.Reader }{conn}); err != nil {
			relay.Reset(conn)
			_ = ch.Close() // without the end of a complete stream
			return
		}
		_ = ch.CloseWrite()
		up.Wait()
		_ = ch.Close()
	})
	ssh.DiscardRequests(requests)
	up.Wait()
	_ = conn.Close()
	ways.Wait()
}

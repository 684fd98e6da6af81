package hold

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool/answer"
)

// requestTime is the time that a guest has for its request and for Go.
var requestTime = patience.For(time.Minute)

// ServeGuest is like [ServeConn] for a client that may be hostile. It calls begin with the size of
// the request before it reads the request. If begin fails, its error is the answer; end is called
// when everything is over. Frames after the request have at most [ChunkSize] bytes. A client that doesn't read a large answer
// loses it. No connection
// is handed over, and the client's trace isn't continued.
func ServeGuest(ctx context.Context, conn net.Conn, s Session, begin func(size int) (end func(), err error)) {
	c := NewConn(impatient{conn})
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(requestTime))
	end := func() {}
	defer func() { end() }()
	asked, refused, size := false, error(nil), 0
	c.admit = func(n int) error {
		if asked {
			return frameOf(n)
		}
		asked, size = true, n
		if done, err := begin(n); err != nil {
			refused = err
		} else {
			end = done
		}
		return refused
	}
	kind, raw, err := c.Receive()
	if refused != nil {
		_ = c.SendJSON(FrameFailure, answer.AsError(refused))
		_, _ = io.CopyN(io.Discard, conn, int64(size)) // otherwise the client fails to send, and sees no answer
		return
	}
	var req Request
	if err != nil || kind != FrameRequest || json.Unmarshal(raw, &req) != nil || req.Op == opStop || req.Op == opMetrics || !take(ctx, c, req) {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	req.Trace, req.Conn, req.Look = nil, false, false
	(&Holder{opts: Options{Session: s}}).perform(ctx, c, req)
}

func frameOf(n int) error {
	if n > ChunkSize {
		return answer.Errorf(answer.TooLarge, "a frame has %d bytes; at most %d are taken", n, ChunkSize)
	}
	return nil
}

// answerTime is the time in which a guest must take each piece of a large answer, which is in memory meanwhile.
var answerTime = patience.For(time.Minute)

// impatient is a connection on which a large write ends when nobody reads. Small ones wait: a person may have paused
// the output of a program.
type impatient struct{ net.Conn }

// Write implements net.Conn.
func (c impatient) Write(p []byte) (n int, err error) {
	if len(p) <= ChunkSize {
		return c.Conn.Write(p)
	}
	for n < len(p) && err == nil {
		var m int
		_ = c.SetWriteDeadline(time.Now().Add(answerTime))
		m, err = c.Conn.Write(p[n:min(n+ChunkSize, len(p))])
		n += m
	}
	if err == nil { // else nothing more is sent
		_ = c.SetWriteDeadline(time.Time{})
	}
	return n, err
}

package page

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const (
	protocol    = "wisbox" // of the WebSocket; the page also sends its token
	maxKeys     = 1 << 20  // bytes of one message, e.g. of pasted text
	terminalTag = "page"   // tag of processes that the page started
	waitForView = 2 * time.Second
)

// said is a text message: from the page its window's size, from the server the terminal's process, its end, or an
// error. Other messages are bytes.
type said struct {
	Resize  *sandbox.WinSize `json:"resize,omitempty"`
	Process string           `json:"process,omitempty"`
	End     *sandbox.Result  `json:"end,omitempty"`
	Error   *tool.Error      `json:"error,omitempty"`
}

// terminal connects a WebSocket to a process of the session: the one of ?process=, with its earlier output, or a new
// shell. The process continues without it.
func (s *Server) terminal(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{protocol}, InsecureSkipVerify: true, // the guard has checked the origin
	})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxKeys)
	t := &terminal{conn: conn, size: sizeOf(r)}
	err = s.with(r, func(session *wisbox.Session) error { return t.run(r.Context(), session, r.URL.Query().Get("process")) })
	if err != nil && !errors.Is(err, wisbox.ErrDetached) {
		_ = t.say(said{Error: tool.AsError(err)})
	}
	_ = conn.Close(websocket.StatusNormalClosure, "")
	_ = conn.CloseNow()
	t.listening.Wait()
}

// terminal is a terminal that a page shows.
type terminal struct {
	conn      *websocket.Conn
	size      sandbox.WinSize
	listening sync.WaitGroup
}

func sizeOf(r *http.Request) sandbox.WinSize {
	number := func(name string, def uint16) uint16 {
		n, err := strconv.ParseUint(r.URL.Query().Get(name), 10, 16)
		if err != nil || n == 0 {
			return def
		}
		return uint16(n)
	}
	return sandbox.WinSize{Cols: number("cols", 80), Rows: number("rows", 24)}
}

// run runs until the process, the page or the session ends.
func (t *terminal) run(ctx context.Context, s *wisbox.Session, process string) error {
	open := ctx // a read whose context ends breaks the connection
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	fresh := process == ""
	if fresh {
		begun, err := s.StartProcess(ctx, sandbox.Cmd{Argv: []string{"bash", "-l"}, TTY: &t.size, Env: []string{"TERM=xterm-256color"}},
			&wisbox.ProcessOptions{KeepStdin: true, Tag: terminalTag, AtOnce: true})
		if err != nil {
			return err
		}
		process = begun.ProcessID
	}
	if err := t.say(said{Process: process}); err != nil {
		if fresh { // the page tries again, and never learns of this process
			_, failed := s.SignalProcess(context.WithoutCancel(ctx), process, "KILL")
			err = errors.Join(err, failed)
		}
		return err
	}
	keys, typed := io.Pipe()
	defer keys.Close()
	joined, err := s.AttachProcess(ctx, process, &wisbox.AttachOptions{Stdin: keys, Stdout: t, Stderr: t, Replay: -1, Hold: waitForView})
	if err != nil {
		return err
	}
	defer joined.Detach()
	_ = joined.Resize(t.size)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		end(s.AwaitEnd(ctx, nil))
	}()
	t.listening.Go(func() { end(t.listen(open, joined, typed)) })
	result, err := joined.Wait(ctx)
	if err == nil {
		err = t.say(said{End: &result})
	} else if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	end(nil)
	<-watching
	return err
}

// listen passes on the page's messages, until it disconnects.
func (t *terminal) listen(ctx context.Context, to *wisbox.Attachment, typed *io.PipeWriter) error {
	for {
		kind, raw, err := t.conn.Read(ctx)
		if err != nil {
			return wisbox.ErrDetached
		}
		var heard said
		switch {
		case kind == websocket.MessageBinary:
			if _, err := typed.Write(raw); err != nil {
				return wisbox.ErrDetached
			}
		case json.Unmarshal(raw, &heard) == nil && heard.Resize != nil:
			_ = to.Resize(*heard.Resize)
		}
	}
}

func (t *terminal) say(what said) error {
	raw, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return t.send(websocket.MessageText, raw)
}

// Write implements io.Writer: output of the process.
func (t *terminal) Write(p []byte) (int, error) { return len(p), t.send(websocket.MessageBinary, p) }

func (t *terminal) send(kind websocket.MessageType, raw []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	return t.conn.Write(ctx, kind, raw)
}

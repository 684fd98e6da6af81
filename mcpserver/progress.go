package mcpserver

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/internal/mcptask"
	"github.com/wisbox/wisbox/tool"
)

const maxProgressText = 2000 // characters of one notification's message

// reportProgress sends a call's own progress, or its running time, to a client that requested it, until the call
// becomes a task, which reports it itself. done returns when no more will be sent.
func (s *Server) reportProgress(ctx context.Context, req *mcp.CallToolRequest) (_ context.Context, done func()) {
	token := req.Params.GetProgressToken()
	if token == nil && mcptask.Begun(ctx) == nil {
		return ctx, func() {}
	}
	p := &progress{start: time.Now()}
	note := func(text string) {
		p.note(text)
		mcptask.Note(ctx, p.message())
	}
	if token == nil {
		return tool.WithProgress(ctx, note), func() {}
	}
	stop := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() { p.send(ctx, stop, s.opts.ProgressEvery, req, token) })
	return tool.WithProgress(ctx, note), func() {
		close(stop)
		sender.Wait()
	}
}

// progress is the last progress that a call reported.
type progress struct {
	start time.Time

	mu     sync.Mutex
	latest string
}

func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = lastCharacters(text, maxProgressText)
}

func (p *progress) send(ctx context.Context, stop <-chan struct{}, every time.Duration, req *mcp.CallToolRequest, token any) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-mcptask.Begun(ctx): // its request is answered
			return
		case <-tick.C:
		}
		if p.tell(ctx, every, req, token) != nil {
			return // the client is gone
		}
	}
}

// tell sends one notification, or drops it if the client is slow.
func (p *progress) tell(ctx context.Context, within time.Duration, req *mcp.CallToolRequest, token any) error {
	short, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var err error
	mcptask.Send(ctx, func() {
		err = req.Session.NotifyProgress(short, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: time.Since(p.start).Seconds(), Message: p.message(),
		})
	})
	if short.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (p *progress) message() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest != "" {
		return p.latest
	}
	return fmt.Sprintf("running for %d s", int(time.Since(p.start).Seconds()))
}

func lastCharacters(s string, most int) string {
	for over := utf8.RuneCountInString(s) - most; over > 0; over-- {
		_, n := utf8.DecodeRuneInString(s)
		s = s[n:]
	}
	return s
}

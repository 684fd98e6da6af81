package shelltool

import (
	"context"
	"io"
	"sync"

	"github.com/wisbox/wisbox/internal/capture"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// progressBytes is the size of the newest output in a progress report.
const progressBytes = 2000

// withProgress reports the newest output of both streams as the call's progress, if the caller
// wants it.
func withProgress(ctx context.Context, cmd *sandbox.Cmd) {
	report := tool.Progress(ctx)
	if report == nil || cmd.Stdout == nil {
		return
	}
	p := &progress{report: report}
	cmd.Stdout, cmd.Stderr = teller{cmd.Stdout, p}, teller{cmd.Stderr, p}
}

type progress struct {
	report func(string)

	mu     sync.Mutex
	newest []byte
}

// teller is a stream whose output is reported.
type teller struct {
	io.Writer
	to *progress
}

func (t teller) Write(b []byte) (int, error) {
	t.to.add(b)
	return t.Writer.Write(b)
}

func (p *progress) add(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest = append(p.newest, b[max(0, len(b)-progressBytes):]...)
	p.newest = p.newest[max(0, len(p.newest)-progressBytes):]
	p.report(capture.Text(p.newest))
}

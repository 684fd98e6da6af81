package shelltool

import (
	"context"
	"fmt"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// DefaultPortWait is how long a start waits for a port by default.
const DefaultPortWait = 30 * time.Second

// Pauses between two looks at a port: the first ones are short, for most servers begin
// at once.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// PortWait says on which TCP port of the sandbox a program is expected to listen, and
// how long a start waits for that; the zero PortWait waits for none.
type PortWait struct {
	Port uint16        // 0 waits for none
	Time time.Duration // default [DefaultPortWait], at most 60 s
}

func (w PortWait) time() time.Duration {
	if w.Time <= 0 {
		return DefaultPortWait
	}
	return min(w.Time, maxWait)
}

// lookAtPort returns the look of a start that waits for a port. There must be nobody
// who listens yet: one who does would be taken for the program.
func (s *Shell) lookAtPort(ctx context.Context, w PortWait) (func(context.Context, *process) ProcessInfo, error) {
	runner, err := s.opts.Runner(ctx)
	if err != nil {
		return nil, err
	}
	finder, ok := sandbox.As[sandbox.PortFinder](runner)
	if !ok {
		return nil, tool.Errorf(tool.Unsupported, "nobody can look at ports of this sandbox; leave wait_port out").In("wait_port")
	}
	switch taken, err := finder.Listens(ctx, w.Port); {
	case err != nil:
		return nil, toolerr.Of(err)
	case taken:
		return nil, tool.Errorf(tool.Conflict, "another program of the session listens on port %d already; end it (process_list, process_signal) or take another port", w.Port).In("wait_port")
	}
	return func(ctx context.Context, p *process) ProcessInfo { return p.awaitPort(ctx, finder, w) }, nil
}

// awaitPort waits until somebody listens, the process has ended, or the time is over.
func (p *process) awaitPort(ctx context.Context, finder sandbox.PortFinder, w PortWait) ProcessInfo {
	short, cancel := context.WithTimeout(ctx, w.time())
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		running := p.running()
		listens, err := finder.Listens(ctx, w.Port)
		switch {
		case err != nil:
			info := p.info()
			info.Notices = append(info.Notices, fmt.Sprintf("nobody could look whether it listens on port %d: %s", w.Port, tool.AsError(toolerr.Of(err)).Message))
			return info
		case !running:
			return p.listening(false, fmt.Sprintf("the process ended before anything listened on port %d; process_read gives its output", w.Port))
		case listens:
			return p.listening(true, "")
		case short.Err() != nil:
			return p.listening(false, fmt.Sprintf("nothing listens on port %d after %v; the process goes on, and process_read gives its output", w.Port, w.time()))
		}
		select {
		case <-p.ended:
		case <-short.Done():
		case <-time.After(pause):
		}
	}
}

// listening is the process's state with what was found.
func (p *process) listening(listens bool, notice string) ProcessInfo {
	info := p.info()
	info.Listens = &listens
	if notice != "" {
		info.Notices = append(info.Notices, notice)
	}
	return info
}

package shelltool

import (
	"context"
	"fmt"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// DefaultPortWait is the default time that a start waits for a port.
const DefaultPortWait = 30 * time.Second

// Pauses between two checks of a port. The first ones are short, since most servers start quickly.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// PortWait is the TCP port of the sandbox on which a program is expected to listen, and how long a
// start waits for that. The zero PortWait doesn't wait.
type PortWait struct {
	Port uint16        // 0 doesn't wait
	Time time.Duration // default [DefaultPortWait], at most 60 s
}

func (w PortWait) time() time.Duration {
	if w.Time <= 0 {
		return DefaultPortWait
	}
	return min(w.Time, maxWait)
}

// lookAtPort returns the function of a start that waits for a port. It refuses a port on which
// another program listens already, since that would be taken for the started one.
func (s *Shell) lookAtPort(ctx context.Context, w PortWait) (func(context.Context, *process) ProcessInfo, error) {
	runner, err := s.opts.Runner(ctx)
	if err != nil {
		return nil, err
	}
	finder, ok := sandbox.As[sandbox.PortFinder](runner)
	if !ok {
		return nil, tool.Errorf(tool.Unsupported, "this sandbox can't check ports; leave wait_port out").In("wait_port")
	}
	switch taken, err := finder.Listens(ctx, w.Port); {
	case err != nil:
		return nil, toolerr.Of(err)
	case taken:
		return nil, tool.Errorf(tool.Conflict, "another program of the session already listens on port %d; end it (process_list, process_signal) or use another port", w.Port).In("wait_port")
	}
	return func(ctx context.Context, p *process) ProcessInfo { return p.awaitPort(ctx, finder, w) }, nil
}

// awaitPort waits until a program listens, the process has ended, or the time is over.
func (p *process) awaitPort(ctx context.Context, finder sandbox.PortFinder, w PortWait) ProcessInfo {
	short, cancel := context.WithTimeout(ctx, w.time())
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		running := p.running()
		listens, err := finder.Listens(ctx, w.Port)
		switch {
		case err != nil:
			info := p.info()
			info.Notices = append(info.Notices, fmt.Sprintf("port %d could not be checked: %s", w.Port, tool.AsError(toolerr.Of(err)).Message))
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

// listening returns the process's state with the result of the check.
func (p *process) listening(listens bool, notice string) ProcessInfo {
	info := p.info()
	info.Listens = &listens
	if notice != "" {
		info.Notices = append(info.Notices, notice)
	}
	return info
}

package shelltool

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Neither tool makes a step first: a program must not be able to delay its end.
var signalSpec = tool.Spec{
	Name: "process_signal", Title: "Signal a process", Destructive: true,
	Description: "Send a signal (TERM, INT, HUP, USR1, …) to a process. KILL ends it and all that it started.",
}

var resizeSpec = tool.Spec{
	Name: "process_resize", Title: "Resize a terminal", Idempotent: true,
	Description: "Change the size of the terminal of a process that was started with tty.",
}

// killGrace is the time that process_signal waits for the end of a killed process.
var killGrace = patience.For(5 * time.Second)

// SignalParams are the parameters of process_signal.
type SignalParams struct {
	ProcessID string `json:"process_id" jsonschema:"as process_start gave it"`
	Signal    string `json:"signal" jsonschema:"name without SIG: TERM, KILL, INT, HUP, USR1, …"`
}

// SignalProcess sends a signal. KILL kills the process with its descendants, and SignalProcess waits
// for their end. A process that has ended is not an error; the result has its state.
func (s *Shell) SignalProcess(ctx context.Context, p SignalParams) (*ProcessInfo, error) {
	if unix.SignalNum("SIG"+p.Signal) == 0 {
		return nil, invalid("signal", "unknown signal; give a name without SIG, such as TERM, KILL, INT, HUP or USR1")
	}
	proc, err := s.steered(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if err := proc.signal(ctx, p.Signal); err != nil {
		return nil, err
	}
	info := proc.info()
	return &info, nil
}

func (p *process) signal(ctx context.Context, name string) error {
	if !p.running() {
		return nil
	}
	if name != "KILL" {
		err := p.proc.Signal(name)
		if errors.Is(err, sandbox.ErrInvalid) {
			return invalid("signal", "the sandbox doesn't know this signal; use TERM, KILL, INT, HUP or USR1")
		}
		return toolerr.Of(err)
	}
	if err := p.kill(); err != nil {
		return toolerr.Of(err)
	}
	ctx, cancel := context.WithTimeout(ctx, killGrace)
	defer cancel()
	_ = p.await(ctx) // the state shows whether it is gone
	return nil
}

// ResizeParams are the parameters of process_resize.
type ResizeParams struct {
	ProcessID string `json:"process_id" jsonschema:"as process_start gave it"`
	Cols      int    `json:"cols" min:"1" max:"1000" jsonschema:"width of the terminal"`
	Rows      int    `json:"rows" min:"1" max:"1000" jsonschema:"height of the terminal"`
}

// ResizeProcess changes a terminal's size; a process without one is unsupported.
func (s *Shell) ResizeProcess(_ context.Context, p ResizeParams) (*ProcessInfo, error) {
	size, err := winSize(p.Cols, p.Rows)
	if err != nil {
		return nil, err
	}
	proc, err := s.steered(p.ProcessID)
	if err != nil {
		return nil, err
	}
	if !proc.tty {
		return nil, tool.Errorf(tool.Unsupported, "the process has no terminal; start it with tty").In("process_id")
	}
	if proc.running() {
		if err := proc.proc.Resize(size); err != nil {
			return nil, toolerr.Of(err)
		}
	}
	info := proc.info()
	return &info, nil
}

// winSize checks a terminal's size; zero takes the default.
func winSize(cols, rows int) (sandbox.WinSize, error) {
	if cols == 0 {
		cols = 80
	}
	if rows == 0 {
		rows = 24
	}
	if cols < 1 || cols > 1000 {
		return sandbox.WinSize{}, invalid("cols", "cols is %d; it must be from 1 to 1000", cols)
	}
	if rows < 1 || rows > 1000 {
		return sandbox.WinSize{}, invalid("rows", "rows is %d; it must be from 1 to 1000", rows)
	}
	return sandbox.WinSize{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

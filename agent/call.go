package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	// lastSignal is the highest signal that can be sent.
	lastSignal = 30
)

var (
	// grace is the time for the rest of a call that should be over: the agent's exit after a kill or a deadline, a
	// caller's Write after the exit.
	grace = patience.For(time.Second)
	// pulse is the time for a late agent to answer a ping.
	pulse = patience.For(2 * time.Second)
)

// call is one program, from its request to its exit. It is a sandbox.Process.
type call struct {
	conn   *Conn
	number uint32
	tty    bool
	keeps  bool                      // the agent keeps its end until we confirm it
	outs   [wire.Channels]*outStream // of the channels that are forwarded
	ins    [wire.Channels]*inStream

	// The reader's own until exited is closed.
	maxTail   int
	tails     [wire.Channels][]byte
	isStarted bool
	id        uint64 // of a detached program; set before started is closed, as pid is
	pid       int

	started chan struct{} // nil unless requested; closed just before the exec
	exited  chan struct{} // closed when the tree is gone, or the connection
	finish  sync.Once
	exit    wire.Exit // set before exited is closed
	lost    bool
}

// Run runs one program to its end, see [sandbox.Runner]. A Cmd.Dir that can't
// be entered is an error that wraps [sandbox.ErrInvalid] and [*StartError]; a
// program that can't be executed is exit code 126 or 127 with a line on stderr.
func (c *Conn) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	release, err := takeSlot(ctx)
	if err != nil {
		return sandbox.Result{Status: sandbox.StatusCancelled, ExitCode: sandbox.ExitSignalBase + int(unix.SIGKILL)}, nil //nolint:nilerr // ctx ended
	}
	defer release()
	call, err := c.begin(cmd, nil, 0)
	if err != nil {
		return sandbox.Result{}, err
	}
	stop := call.guard(cmd.Timeout)
	defer stop()
	for signals := cmd.Signals; ; {
		select {
		case <-call.exited:
			return call.result()
		case name, more := <-signals:
			if !more {
				signals = nil
				continue
			}
			_ = call.Signal(name) // an invalid name does nothing
		case <-ctx.Done():
			call.abandon()
			return call.result()
		}
	}
}

// Start begins a program, see [sandbox.Runner]; its errors are those of Run.
func (c *Conn) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	return c.start(ctx, cmd, 0)
}

// StartAgent starts another mode of the agent's own program like a program, with a program's rights and a monitor, in
// "/". Argv is that of the mode; Dir isn't used.
func (c *Conn) StartAgent(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	return c.start(ctx, cmd, wire.WithAgent)
}

func (c *Conn) start(ctx context.Context, cmd sandbox.Cmd, flags wire.Flags) (sandbox.Process, error) {
	release, err := takeSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	call, err := c.begin(cmd, make(chan struct{}), flags)
	if err != nil {
		return nil, err
	}
	stop := call.guard(cmd.Timeout)
	go func() {
		<-call.exited
		stop()
	}()
	select {
	case <-call.started:
	case <-call.exited:
		if call.exit.Error != nil {
			return nil, wrap(call.exit.Error)
		}
	case <-ctx.Done():
		call.abandon()
		return nil, fmt.Errorf("start the program: %w", ctx.Err())
	}
	return call, nil
}

// begin checks the Cmd, sends the request and starts the copying of stdin.
func (c *Conn) begin(cmd sandbox.Cmd, started chan struct{}, flags wire.Flags) (*call, error) {
	if cmd.Lifetime.Detaches() {
		drainBoth(&cmd)
	}
	req, err := newRequest(&cmd)
	if err != nil {
		return nil, err
	}
	req.Head.Flags |= flags
	if started != nil {
		req.Head.Flags |= wire.WithNotify
	}
	if cmd.Python != nil {
		key, err := c.teach(cmd.Python.Name, cmd.Python.Source)
		if err != nil {
			return nil, err
		}
		copy(req.Head.Python[:], key)
	}
	payload, err := encode(req)
	if err != nil {
		return nil, err
	}
	call := newCall(c, &cmd, started)
	if err := c.give(call); err != nil {
		return nil, err
	}
	if err := c.send(wire.Run, call.number, payload); err != nil {
		return nil, err
	}
	call.copyIns()
	return call, nil
}

func (c *call) copyIns() {
	for _, in := range c.ins {
		if in != nil {
			go in.copy()
		}
	}
}

func newCall(c *Conn, cmd *sandbox.Cmd, started chan struct{}) *call {
	call := &call{conn: c, tty: cmd.TTY != nil, keeps: cmd.Lifetime.Detaches(), started: started, exited: make(chan struct{})}
	if cmd.Capture != nil {
		call.maxTail = cmd.Capture.Tail
	}
	if cmd.Stdin != nil {
		call.ins[wire.Stdin] = newInStream(call, wire.Stdin, cmd.Stdin)
	}
	if cmd.Stdout != nil {
		call.outs[wire.Stdout] = newOutStream(call, wire.Stdout, cmd.Stdout)
	}
	if cmd.Stderr != nil && cmd.TTY == nil {
		call.outs[wire.Stderr] = newOutStream(call, wire.Stderr, cmd.Stderr)
	}
	if cmd.Control != nil && cmd.Control.In != nil {
		call.ins[wire.CtlIn] = newInStream(call, wire.CtlIn, cmd.Control.In)
	}
	if cmd.Control != nil && cmd.Control.Out != nil {
		call.outs[wire.CtlOut] = newOutStream(call, wire.CtlOut, cmd.Control.Out)
		call.outs[wire.CtlOut].first = call.outputs()
	}
	return call
}

// outputs returns the streams whose data precedes a message on the control channel.
func (c *call) outputs() []*outStream {
	var outs []*outStream
	for _, ch := range []wire.Channel{wire.Stdout, wire.Stderr} {
		if c.outs[ch] != nil {
			outs = append(outs, c.outs[ch])
		}
	}
	return outs
}

// guard backs up a deadline that the agent keeps: an agent that is late and doesn't answer a ping is lost.
func (c *call) guard(timeout time.Duration) (stop func() bool) {
	if timeout <= 0 {
		return func() bool { return true }
	}
	return time.AfterFunc(timeout+grace, c.probe).Stop
}

func (c *call) probe() {
	select {
	case <-c.exited:
		return
	default:
	}
	if c.conn.asleep.Load() {
		time.AfterFunc(grace, c.probe)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pulse)
	defer cancel()
	if c.conn.Ping(ctx) != nil {
		c.conn.end(fmt.Errorf("%w: the agent does not answer", sandbox.ErrLost))
	}
}

// abandon kills the call and waits for its exit, which comes even if a caller's Write blocks.
func (c *call) abandon() {
	go func() { _ = c.Kill() }() // it blocks if the agent reads nothing
	select {
	case <-c.exited:
		return
	case <-time.After(grace):
	}
	for _, out := range c.outs {
		if out != nil {
			out.discard()
		}
	}
	c.probe()
	<-c.exited
}

// Wait returns the result, or ctx's error.
func (c *call) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-c.exited:
		return c.result()
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
}

// Signal sends a signal to the program's process group.
func (c *call) Signal(name string) error {
	number := unix.SignalNum("SIG" + name)
	if number <= 0 || number > lastSignal {
		return fmt.Errorf("%w: %q is not a signal that can be sent, give a name as TERM", sandbox.ErrInvalid, name)
	}
	return c.tell(wire.Signal, []byte{byte(number)})
}

// Kill ends the program's whole tree.
func (c *call) Kill() error {
	return c.tell(wire.Kill, []byte(sandbox.StatusCancelled))
}

// Resize changes the terminal's size.
func (c *call) Resize(size sandbox.WinSize) error {
	if !c.tty {
		return fmt.Errorf("%w: the program has no terminal to resize", sandbox.ErrUnsupported)
	}
	payload := binary.BigEndian.AppendUint16(nil, size.Cols)
	return c.tell(wire.Resize, binary.BigEndian.AppendUint16(payload, size.Rows))
}

// tell sends a frame about a call, unless it has ended.
func (c *call) tell(typ wire.Type, payload []byte) error {
	select {
	case <-c.exited:
		return nil
	default:
		err := c.conn.send(typ, c.number, payload)
		if errors.Is(err, sandbox.ErrLost) {
			return nil
		}
		return err
	}
}

// takeExit handles the exit frame of a call, the last one.
func (c *call) takeExit(payload []byte) error {
	var report wire.Exit
	if err := json.NewDecoder(bytes.NewReader(payload)).Decode(&report); err != nil || !valid(&report) {
		c.lose()
		return wire.Errorf("an exit that makes no sense")
	}
	if c.keeps {
		_ = c.conn.send(wire.Taken, c.number, nil) // before anybody lists the programs
	}
	c.finish.Do(func() { c.exit = report; c.close() })
	return nil
}

// lose ends a call whose connection has ended.
func (c *call) lose() {
	c.finish.Do(func() { c.lost = true; c.close() })
}

func (c *call) close() {
	for _, in := range c.ins {
		if in != nil {
			in.close()
		}
	}
	for _, out := range c.outs {
		if out != nil {
			out.close()
		}
	}
	close(c.exited)
}

// result waits for the writers' remaining data.
func (c *call) result() (sandbox.Result, error) {
	for _, out := range c.outs {
		if out != nil {
			out.settle()
		}
	}
	if c.lost {
		return sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}, nil
	}
	if c.exit.Error != nil {
		return sandbox.Result{}, wrap(c.exit.Error)
	}
	return resultOf(&c.exit, c.tails), nil
}

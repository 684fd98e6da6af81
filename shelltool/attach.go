package shelltool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// OutputOptions are what [Shell.Output] writes and where to.
type OutputOptions struct {
	// Stdout and Stderr get the two streams; nil discards.
	Stdout, Stderr io.Writer
	// Tail is the number of the newest lines to begin with: 0 is all that is kept,
	// negative none.
	Tail int
	// Follow goes on until the process ends; else what is there now is all.
	Follow bool
}

// Output writes what is kept of a process's output. A slow writer holds up neither the
// program nor other readers: what it has not taken when it is over 8 MiB behind is
// dropped. DroppedBytes of the result counts that, and what wasn't kept before.
func (s *Shell) Output(ctx context.Context, id string, opts OutputOptions) (*ProcessInfo, error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	p, read, err := s.reader(id)
	if err != nil {
		return nil, err
	}
	defer read()
	from := int64(0)
	if opts.Tail != 0 {
		if from, err = p.log.tail(max(0, opts.Tail)); err != nil {
			return nil, unreadable(err)
		}
	}
	lost, err := p.follow(ctx, from, reading{goOn: opts.Follow, stdout: opts.Stdout, stderr: opts.Stderr, at: func(int64) {}})
	if err != nil {
		return nil, err
	}
	info := p.info()
	info.DroppedBytes = lost
	return &info, nil
}

func unreadable(err error) error {
	return tool.Errorf(tool.Internal, "the process's output can't be read").Because(err)
}

// followChunk is how much output is passed on at once.
const followChunk = 32 << 10

// reading is how output is passed on.
type reading struct {
	goOn           bool // to the end of the process; else only what is there now
	stdout, stderr io.Writer
	at             func(int64) // gets the offset after each piece
}

// follow passes output on from an offset, and counts what was dropped before it could
// be read.
func (p *process) follow(ctx context.Context, at int64, how reading) (lost int64, err error) {
	_, until := p.log.bounds()
	for {
		changed, over := p.changed(), !p.running()
		data, from, s, err := p.log.next(at, followChunk)
		if err != nil {
			return lost, unreadable(err)
		}
		lost += from - at
		if !how.goOn {
			data = data[:min(int64(len(data)), max(0, until-from))]
		}
		at = from + int64(len(data))
		switch {
		case ctx.Err() != nil:
			return lost, ctx.Err()
		case len(data) > 0:
			if err := pass(data, s, how.stdout, how.stderr); err != nil {
				return lost, tool.Errorf(tool.Closed, "the process's output can't be passed on: its reader is gone").Because(err)
			}
			how.at(at)
			continue
		case over, !how.goOn:
			return lost, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func pass(data []byte, s stream, stdout, stderr io.Writer) error {
	w := stdout
	if s == stderrStream {
		w = stderr
	}
	if w == nil {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// AttachOptions are what is joined with a process.
type AttachOptions struct {
	// Stdin goes to the program, where its input is open; nil sends nothing.
	Stdin io.Reader
	// CloseStdin closes the program's input at Stdin's end; else it stays open.
	CloseStdin bool
	// Stdout and Stderr get the streams from now on; nil discards.
	Stdout, Stderr io.Writer
	// Replay is the number of lines from before to begin with; negative is all that is
	// kept. Of a process that has ended there are at least the last ten.
	Replay int
	// Hold has the program wait where output would be dropped that this reader has not
	// taken yet: for each piece that long at most. One that is slower than that loses
	// output, and holds nobody up before it has caught up. 0 never does.
	Hold time.Duration
}

// endedReplay is how many lines an ended process shows.
const endedReplay = 10

// Attachment joins streams with a process. It is a [sandbox.Process] whose Kill only
// ends the attachment: the program goes on. Its methods may be called from many
// goroutines at once.
type Attachment struct {
	p      *process
	ctx    context.Context
	cancel context.CancelFunc

	done chan struct{} // closed when what follows is set
	lost int64
	err  error
}

// ErrLeft is what Wait returns when the attachment ended before the process.
var ErrLeft = tool.Errorf(tool.Closed, "the session ended, or was reset, while the process ran; `wisbox session list` shows the sessions that there are")

// Attach joins streams with a process until it ends, Kill, or Close of the Shell. Many
// may be attached to one process: each gets all output, and what they send is mixed
// as it comes. ctx bounds only the start.
func (s *Shell) Attach(_ context.Context, id string, opts AttachOptions) (*Attachment, error) {
	if _, err := s.steered(id); err != nil {
		return nil, err
	}
	p, read, err := s.reader(id)
	if err != nil {
		return nil, err
	}
	lines := opts.Replay
	if !p.running() && lines >= 0 {
		lines = max(lines, endedReplay)
	}
	from := int64(0)
	if lines >= 0 {
		if from, err = p.log.tail(lines); err != nil {
			read()
			return nil, unreadable(err)
		}
	}
	a := &Attachment{p: p, done: make(chan struct{})}
	at := func(int64) {}
	leave := func() {}
	if opts.Hold > 0 {
		at, leave = p.hold(from, opts.Hold)
		p.arrived()
	}
	a.ctx, a.cancel = context.WithCancel(s.ctx)
	go func() {
		defer close(a.done)
		defer a.cancel()
		defer read()
		defer leave()
		a.lost, a.err = p.follow(a.ctx, from, reading{goOn: true, stdout: opts.Stdout, stderr: opts.Stderr, at: at})
	}()
	if opts.Stdin != nil && p.stdin.open() {
		go a.feed(opts.Stdin, opts.CloseStdin)
	}
	return a, nil
}

// feed passes input on. Only its proper end closes the program's, not that of whoever
// sends it.
func (a *Attachment) feed(from io.Reader, closeAtEnd bool) {
	buf := make([]byte, followChunk)
	for {
		n, err := from.Read(buf)
		if n > 0 && !a.p.stdin.put(a.ctx, buf[:n]) {
			return
		}
		if err != nil {
			if closeAtEnd && errors.Is(err, io.EOF) && a.ctx.Err() == nil {
				a.p.stdin.add("", true)
			}
			return
		}
	}
}

// Wait returns how the process ended, once all its output was passed on, or [ErrLeft].
// Its notices say what output was dropped, because it was read too slowly.
func (a *Attachment) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-a.done:
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
	if a.err != nil {
		return sandbox.Result{}, ErrLeft
	}
	res := a.p.result
	if a.lost > 0 {
		res.Notices = append(slices.Clip(res.Notices),
			fmt.Sprintf("%d bytes of output are not shown: they came faster than they were read", a.lost))
	}
	return res, nil
}

// Kill ends the attachment and nothing else.
func (a *Attachment) Kill() error {
	a.cancel()
	return nil
}

// Signal implements [sandbox.Process].
func (a *Attachment) Signal(name string) error { return a.p.signal(context.Background(), name) }

// Resize implements [sandbox.Process]. Of several attachments the last one wins.
func (a *Attachment) Resize(size sandbox.WinSize) error {
	if !a.p.running() {
		return nil
	}
	return toolerr.Of(a.p.proc.Resize(size))
}

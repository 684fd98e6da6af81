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

// OutputOptions are options of [Shell.Output].
type OutputOptions struct {
	// Stdout and Stderr get the two streams; nil discards.
	Stdout, Stderr io.Writer
	// Tail is the number of the newest lines to begin with: 0 means all that is kept, a
	// negative number none.
	Tail int
	// Follow continues until the process ends, instead of ending with the current output.
	Follow bool
}

// Output writes the kept output of a process. A slow writer delays neither the program nor other
// readers: if it is more than 8 MiB behind, output is dropped. DroppedBytes of the result counts
// the dropped bytes, and those that weren't kept before.
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

// followChunk is the number of bytes passed on at once.
const followChunk = 32 << 10

// reading describes how output is passed on.
type reading struct {
	goOn           bool // to the end of the process; otherwise only the current output
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

// AttachOptions are options of [Shell.Attach].
type AttachOptions struct {
	// Stdin goes to the program if its input is open; nil sends nothing.
	Stdin io.Reader
	// CloseStdin closes the program's input at Stdin's end; otherwise it stays open.
	CloseStdin bool
	// Stdout and Stderr get the streams from now on; nil discards.
	Stdout, Stderr io.Writer
	// Replay is the number of earlier lines to begin with; a negative number means all that is
	// kept. For a process that has ended, it is at least ten.
	Replay int
	// Hold is how long the program waits, for each piece, before it drops output that this
	// reader has not taken yet. A reader that is slower loses output, and the program doesn't
	// wait for it again until it has caught up. 0 never waits.
	Hold time.Duration
}

// endedReplay is the number of lines that an ended process shows.
const endedReplay = 10

// Attachment connects streams to a process. It is a [sandbox.Process] whose Kill only
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

// ErrLeft is the error of Wait when the attachment ended before the process.
var ErrLeft = tool.Errorf(tool.Closed, "the session ended, or was reset, while the process ran; `wisbox ls` shows the sessions that there are")

// Attach connects streams to a process until it ends, or until Kill or Close of the Shell. Many
// clients may be attached to one process: each gets all output, and their input is mixed in the
// order of its arrival. ctx bounds only the start.
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

// feed passes input on. Only the end of the input closes the program's, not the loss of its sender.
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

// Wait returns the result of the process once all its output was passed on, or [ErrLeft]. The
// notices report output that was dropped because it was read too slowly.
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
			fmt.Sprintf("%d bytes of output were dropped: they came faster than they were read", a.lost))
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

// Resize implements [sandbox.Process]. If there are several attachments, the last call wins.
func (a *Attachment) Resize(size sandbox.WinSize) error {
	if !a.p.running() {
		return nil
	}
	return toolerr.Of(a.p.proc.Resize(size))
}

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// terminalFlags are docker's -i and -t.
type terminalFlags struct{ interactive, tty bool }

func (f *terminalFlags) register(flags *pflag.FlagSet, interactive string) {
	flags.BoolVarP(&f.interactive, "interactive", "i", false, interactive)
	flags.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
}

// check refuses a terminal that can't be connected to this one.
func (f *terminalFlags) check(a *app) error {
	if !f.tty {
		return nil
	}
	if a.json {
		return usageError{errors.New("--json shows both streams of a command, and a terminal has only one; leave --tty out")}
	}
	if _, ok := a.keyboard(); f.interactive && !ok {
		return usageError{errors.New("--interactive with --tty needs a terminal as its input; leave one of the two out")}
	}
	return nil
}

// keyboard returns this process's input if it is a terminal.
func (a *app) keyboard() (*os.File, bool) {
	f, ok := a.in.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// screen returns the terminal of this process's output.
func (a *app) screen() (fd int, ok bool) {
	f, ok := a.out.(interface{ Fd() uintptr })
	if !ok {
		return 0, false
	}
	return int(f.Fd()), term.IsTerminal(int(f.Fd()))
}

// atTerminal reports whether a person sits at this process.
func (a *app) atTerminal() bool {
	_, in := a.keyboard()
	_, out := a.screen()
	return in && out
}

// inForeground reports whether this process may read its terminal: in the background, as after
// `wisbox … &`, the terminal would stop it.
func (a *app) inForeground() bool {
	tty, ok := a.keyboard()
	if !ok {
		return false
	}
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// size returns the size of this process's terminal.
func (a *app) size() sandbox.WinSize {
	if tty, ok := a.keyboard(); ok {
		return sizeOf(int(tty.Fd()))
	}
	if fd, ok := a.screen(); ok {
		return sizeOf(fd)
	}
	return sandbox.WinSize{Cols: 80, Rows: 24}
}

func sizeOf(fd int) sandbox.WinSize {
	cols, rows, err := term.GetSize(fd)
	if err != nil || cols <= 0 || rows <= 0 {
		return sandbox.WinSize{Cols: 80, Rows: 24}
	}
	return sandbox.WinSize{Cols: uint16(cols), Rows: uint16(rows)}
}

// raw puts this terminal in raw mode; restore undoes it and may be called twice. Without a
// terminal, raw does nothing.
func (a *app) raw() (restore func(), err error) {
	tty, ok := a.keyboard()
	if !ok {
		return func() {}, nil
	}
	before, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return nil, tool.Errorf(tool.Unsupported, "this terminal has no raw mode").Because(err)
	}
	return func() { _ = term.Restore(int(tty.Fd()), before) }, nil
}

// resizing calls resize whenever this terminal's size changes, until stop.
func (a *app) resizing(resize func(sandbox.WinSize) error) (stop func()) {
	changed, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-changed:
				_ = resize(a.size())
			case <-ended:
				return
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(ended)
	}
}

// runTerminal connects this terminal, in raw mode, to the program's. If the input is no terminal,
// the program's terminal has no keyboard.
func (a *app) runTerminal(ctx context.Context, s *wisbox.Session, opts *programFlags, argv []string) error {
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	size := a.size()
	cmd := opts.cmd(argv)
	cmd.TTY, cmd.Stdout, cmd.Env = &size, a.out, append([]string{"TERM=" + termName()}, opts.env...)
	if _, ok := a.keyboard(); ok {
		cmd.Stdin = &keys{a.in, hangUp}
	} else {
		cmd.Stdin = noKeys{ctx}
	}
	restore, err := a.raw()
	if err != nil {
		return err
	}
	res, err := a.followTerminal(ctx, s, cmd)
	restore()
	if err != nil {
		return err
	}
	a.explain(ctx, *opts, res)
	return exitOf(ctx, res)
}

func (a *app) followTerminal(ctx context.Context, s *wisbox.Session, cmd sandbox.Cmd) (sandbox.Result, error) {
	p, err := s.Start(ctx, cmd)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer a.resizing(p.Resize)()
	defer context.AfterFunc(ctx, func() { _ = p.Kill() })()
	return p.Wait(context.WithoutCancel(ctx))
}

// keys are the keys of a terminal. In raw mode no key means the end of the file, so at the end of
// the file the terminal is gone, and its program must end, even if nobody sends us SIGHUP.
type keys struct {
	io.Reader
	hangUp func()
}

func (k *keys) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	if err != nil {
		k.hangUp()
	}
	return n, err
}

// noKeys is the input of a terminal without a keyboard.
type noKeys struct{ ctx context.Context }

func (k noKeys) Read([]byte) (int, error) {
	<-k.ctx.Done()
	return 0, io.EOF
}

// termName returns TERM, the only variable of this process that a program in the terminal gets, and
// only if its value is a plain name.
func termName() string {
	name := os.Getenv("TERM")
	for _, r := range name {
		if r > 'z' || r < '+' {
			return "xterm"
		}
	}
	if name == "" {
		return "xterm"
	}
	return name
}

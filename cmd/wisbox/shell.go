package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newShellCmd() *cobra.Command {
	opts := &programFlags{}
	cmd := &cobra.Command{
		Use:   "shell [flags] SESSION [-- CMD [ARG…]]",
		Short: "Open a terminal in a session",
		Long: `Runs bash, or the command given, in the session with a terminal of its own: keys
go to the program, Ctrl-C too, and the terminal's size follows this one's.`,
		Args: atLeast("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := args[1:]
			if len(argv) == 0 {
				argv = []string{"bash", "-l"}
			}
			return a.runShell(cmd.Context(), opts, args[0], argv)
		},
	}
	opts.register(cmd.Flags())
	return cmd
}

func (a *app) runShell(ctx context.Context, opts *programFlags, name string, argv []string) error {
	if err := opts.check(); err != nil {
		return err
	}
	tty, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(tty.Fd())) {
		return a.engineError(ctx, tool.Errorf(tool.Unsupported, "shell needs a terminal as its input; use: wisbox exec %s -- CMD", name))
	}
	return a.engineError(ctx, a.withSession(ctx, name, func(s *wisbox.Session) error {
		return a.runTerminal(ctx, s, tty, opts, argv)
	}))
}

// runTerminal joins this terminal, in raw mode, with the program's.
func (a *app) runTerminal(ctx context.Context, s *wisbox.Session, tty *os.File, opts *programFlags, argv []string) error {
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	size := sizeOf(tty)
	cmd := sandbox.Cmd{
		Argv: argv, Dir: opts.dir, Timeout: opts.timeout, TTY: &size, Stdin: &keys{a.in, hangUp}, Stdout: a.out,
		Env: []string{"TERM=" + termName()},
	}
	raw, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return tool.Errorf(tool.Unsupported, "this terminal has no raw mode").Because(err)
	}
	res, err := a.followTerminal(ctx, s, tty, cmd)
	_ = term.Restore(int(tty.Fd()), raw)
	if err != nil {
		return err
	}
	a.explain(ctx, *opts, res)
	return exitOf(ctx, res)
}

func (a *app) followTerminal(ctx context.Context, s *wisbox.Session, tty *os.File, cmd sandbox.Cmd) (sandbox.Result, error) {
	p, err := s.Start(ctx, cmd)
	if err != nil {
		return sandbox.Result{}, err
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-resized:
				_ = p.Resize(sizeOf(tty))
			case <-ctx.Done():
				_ = p.Kill()
				return
			case <-ended:
				return
			}
		}
	}()
	return p.Wait(context.WithoutCancel(ctx))
}

// keys are those of a terminal. In raw mode none is the end of the file, so where
// it ends the terminal has gone: its program goes with it, whether or not somebody
// sends us SIGHUP.
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

func sizeOf(tty *os.File) sandbox.WinSize {
	cols, rows, err := term.GetSize(int(tty.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return sandbox.WinSize{Cols: 80, Rows: 24}
	}
	return sandbox.WinSize{Cols: uint16(cols), Rows: uint16(rows)}
}

// termName is the one variable of ours that a program in the terminal gets: the
// kind of terminal, and only a plain name.
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

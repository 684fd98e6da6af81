package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/sandbox"
)

type attachOptions struct {
	noStdin bool
	eof     bool
	tail    int
	keys    string
}

func (a *app) newAttachCmd() *cobra.Command {
	opts := &attachOptions{}
	cmd := &cobra.Command{
		Use:   "attach [flags] SESSION PROCESS",
		Short: "Attach this terminal to a process of a session",
		Long: `Shows the process's output from now on, and passes this input on to it if its input
is open: wisbox exec --detach needs --interactive or --tty for that, the tool
process_start leaves it open. When the process ends, attach exits with its exit code;
see: wisbox help exit-codes. If the process has already ended, attach shows its last lines.
A process with a terminal gets each key, including Ctrl-C, and this terminal's size.
Ctrl-P Ctrl-Q leaves it running, and so does any other end of this command. The end
of this input closes the process's input only with --eof.
Several terminals may attach at once: each shows all output, their keys are mixed,
and the process's terminal has the size that was set last.`,
		Example: `  wisbox attach box 01jzx3k9v5m2q8w4r7t1y6u0pd`,
		Args:    exactArgs("SESSION", "PROCESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runAttach(cmd.Context(), opts, args[0], args[1])
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.noStdin, "no-stdin", false, "send nothing")
	flags.BoolVar(&opts.eof, "eof", false, "close the process's input at the end of this one")
	flags.IntVarP(&opts.tail, "tail", "n", 0, "begin with the last `N` lines")
	flags.StringVar(&opts.keys, "detach-keys", defaultDetachKeys, "`KEYS` that detach, e.g. ctrl-a,d; empty for none")
	return cmd
}

func (a *app) runAttach(ctx context.Context, opts *attachOptions, session, process string) error {
	sequence, err := parseKeys(opts.keys)
	switch {
	case err != nil:
		return usageError{err}
	case opts.tail < 0:
		return usageError{fmt.Errorf("--tail is %d; it can't be negative", opts.tail)}
	case opts.noStdin && opts.eof:
		return usageError{errors.New("--eof ends the input, and --no-stdin has none; give one of the two")}
	}
	return a.engineError(ctx, a.withSession(ctx, session, func(s *wisbox.Session) error {
		p, err := processOf(ctx, s, process)
		if err != nil {
			return err
		}
		return a.join(ctx, s, p, opts, sequence)
	}))
}

// join attaches this process's streams to a process.
func (a *app) join(ctx context.Context, s *wisbox.Session, p wisbox.ProcessInfo, opts *attachOptions, sequence []byte) error {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	o := &wisbox.AttachOptions{Stdin: a.in, CloseStdin: opts.eof, Stdout: a.out, Stderr: a.err, Replay: opts.tail}
	_, typed := a.keyboard()
	typed = typed && p.TTY && p.ExitCode == nil && !opts.noStdin
	restore := func() {}
	switch {
	case opts.noStdin:
		o.Stdin = nil
	case typed:
		out := func() { leave(wisbox.ErrDetached) }
		o.Stdin = &detachKeys{from: &keys{a.in, out}, sequence: sequence, found: out}
		var err error
		if restore, err = a.raw(); err != nil {
			return err
		}
	}
	res, err := a.attached(ctx, s, p, o, typed)
	restore()
	switch {
	case errors.Is(context.Cause(ctx), wisbox.ErrDetached):
		fmt.Fprintf(a.err, "\nwisbox: detached; the process goes on: wisbox attach %s %s\n", s.ID(), p.ProcessID)
		return nil
	case err != nil:
		return err
	}
	if p.ExitCode != nil {
		fmt.Fprintf(a.err, "wisbox: the process has ended: %s\n", ending(p))
	} else {
		a.explain(ctx, programFlags{}, res)
	}
	for _, notice := range res.Notices {
		fmt.Fprintf(a.err, "wisbox: note: %s\n", streams.Printable(notice))
	}
	return exitOf(ctx, res)
}

// attached waits until the process or ctx ends.
func (a *app) attached(ctx context.Context, s *wisbox.Session, p wisbox.ProcessInfo, o *wisbox.AttachOptions, typed bool) (sandbox.Result, error) {
	at, err := s.AttachProcess(ctx, p.ProcessID, o)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer at.Detach()
	if typed {
		size := a.size()
		_ = at.Resize(sandbox.WinSize{Cols: size.Cols, Rows: size.Rows + 1}) // a changed size makes the program redraw
		_ = at.Resize(size)
		defer a.resizing(at.Resize)()
	}
	res, err := at.Wait(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return res, err
}

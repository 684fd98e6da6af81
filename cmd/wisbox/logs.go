package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/capture"
)

type logsOptions struct {
	follow bool
	tail   string
}

func (a *app) newLogsCmd() *cobra.Command {
	opts := &logsOptions{}
	cmd := &cobra.Command{
		Use:   "logs [flags] SESSION PROCESS",
		Short: "Show the output of a process or service of a session",
		Long: `Shows the output of a process that wisbox exec --detach or the tool process_start
started: the newest 8 MiB, which wisbox keeps. Its stdout goes to stdout and its stderr
to stderr. Reading doesn't slow the process down. With the name of a service (--service)
it shows the newest MiB of the service's output. To see the record of a session's
calls, use wisbox log.
With --json each piece of output is an object on a line of its own, and the last
line is the process's state.`,
		Example: `  wisbox logs -f --tail 20 box 01jzx3k9v5m2q8w4r7t1y6u0pd
  wisbox logs box db`,
		Args: exactArgs("SESSION", "PROCESS"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runLogs(cmd.Context(), opts, args[0], args[1]) },
	}
	cmd.Flags().BoolVarP(&opts.follow, "follow", "f", false, "follow the output until the process ends")
	cmd.Flags().StringVarP(&opts.tail, "tail", "n", "all", "begin with the last `N` lines, 0 for none")
	return cmd
}

// lines returns the number of lines for the library, which takes 0 for all lines; docker takes 0
// for none.
func (o *logsOptions) lines() (int, error) {
	if o.tail == "all" {
		return 0, nil
	}
	n, err := strconv.ParseInt(o.tail, 10, 32)
	switch {
	case err != nil || n < 0:
		return 0, usageError{fmt.Errorf("--tail is %q; it must be a number of lines, or all", o.tail)}
	case n == 0:
		return -1, nil
	}
	return int(n), nil
}

func (a *app) runLogs(ctx context.Context, opts *logsOptions, session, process string) error {
	lines, err := opts.lines()
	if err != nil {
		return err
	}
	if isService(process) {
		return a.runServiceLogs(ctx, opts.follow, lines, session, process)
	}
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		p, err := processOf(ctx, s, process)
		if err != nil {
			return err
		}
		o := &wisbox.OutputOptions{Stdout: a.out, Stderr: a.err, Tail: lines, Follow: opts.follow}
		if a.json {
			o.Stdout, o.Stderr = &pieces{a: a, stream: "stdout"}, &pieces{a: a, stream: "stderr"}
		}
		info, err := s.ProcessOutput(ctx, p.ProcessID, o)
		switch {
		case err != nil:
			return err
		case a.json:
			return a.printJSON(info)
		case info.DroppedBytes > 0:
			fmt.Fprintf(a.err, "wisbox: %d bytes of output are not shown: they are no longer kept\n", info.DroppedBytes)
		}
		return nil
	})
}

// pieces writes a stream as objects. An incomplete character waits for its rest, which always
// comes: the session keeps only whole characters.
type pieces struct {
	a      *app
	stream string
	held   []byte
}

func (p *pieces) Write(b []byte) (int, error) {
	all := slices.Concat(p.held, b)
	whole := capture.WholePrefix(all)
	p.held = append([]byte(nil), all[whole:]...)
	if whole == 0 {
		return len(b), nil
	}
	return len(b), p.a.printJSON(map[string]string{"stream": p.stream, "text": capture.Text(all[:whole])})
}

var _ io.Writer = (*pieces)(nil)

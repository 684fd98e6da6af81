package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newKillCmd() *cobra.Command {
	name := "KILL"
	cmd := &cobra.Command{
		Use:   "kill [flags] SESSION PROCESS…",
		Short: "Kill processes of a session, or send them a signal",
		Long: `Kills processes that wisbox exec --detach or the tool process_start started, with all
that they started, and prints how they ended. Another signal goes to the process
and its group. A process that has already ended is not an error.`,
		Example: `  wisbox kill -s TERM box 01jzx3k9v5m2q8w4r7t1y6u0pd`,
		Args:    atLeast("SESSION", "PROCESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runKill(cmd.Context(), name, args[0], args[1:])
		},
	}
	cmd.Flags().StringVarP(&name, "signal", "s", name, "`SIGNAL` to send, e.g. TERM, SIGTERM or 15")
	return cmd
}

func (a *app) runKill(ctx context.Context, signal, session string, ids []string) error {
	name, err := signalOf(signal)
	if err != nil {
		return err
	}
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		done, failed := []*wisbox.ProcessInfo{}, []error(nil)
		for _, id := range ids {
			info, err := killOne(ctx, s, id, name)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			done = append(done, info)
		}
		if len(done) > 0 {
			err = a.print(map[string]any{"processes": done}, func(w io.Writer) {
				for _, p := range done {
					fmt.Fprintf(w, "%s  %s\n", p.ProcessID, ending(*p))
				}
			})
		}
		if len(failed) == 0 {
			return err
		}
		for _, err := range failed[1:] {
			a.printError(tool.AsError(err))
		}
		return errors.Join(failed[0], err)
	})
}

func killOne(ctx context.Context, s *wisbox.Session, id, signal string) (*wisbox.ProcessInfo, error) {
	p, err := processOf(ctx, s, id)
	if err != nil {
		return nil, err
	}
	return s.SignalProcess(ctx, p.ProcessID, signal)
}

// ending describes the state of a process.
func ending(p wisbox.ProcessInfo) string {
	switch {
	case p.ExitCode == nil:
		return p.State
	case p.Signal != "":
		return fmt.Sprintf("%s by %s, exit code %d", p.State, p.Signal, *p.ExitCode)
	}
	return fmt.Sprintf("%s, exit code %d", p.State, *p.ExitCode)
}

// signalOf returns a signal's name without SIG.
func signalOf(text string) (string, error) {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if n, err := strconv.Atoi(name); err == nil {
		name = strings.TrimPrefix(unix.SignalName(syscall.Signal(n)), "SIG")
	}
	if unix.SignalNum("SIG"+name) == 0 {
		return "", usageError{fmt.Errorf("--signal is %q, which is not a signal; the signals are %s", text, strings.Join(signalNames(), " "))}
	}
	return name, nil
}

func signalNames() (names []string) {
	const last = 31 // later signals have no names
	for n := syscall.Signal(1); n <= last; n++ {
		names = append(names, strings.TrimPrefix(unix.SignalName(n), "SIG"))
	}
	return names
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newSessionStopCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stop SESSION…",
		Short: "End the programs and the container of sessions; the files stay",
		Long: `Ends what runs in sessions: programs, interpreters with what they keep, services, the
container. Files, snapshots and the log stay, and the next command starts a container
again. Values of secrets that stand in no file are given up: give them anew with
wisbox session secret. A session in which nothing runs is no error.`,
		Example: `  wisbox stop box`,
		Args:    atLeast("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachSession(cmd.Context(), "stopped", args, func(m *wisbox.Manager, name string) error { return m.Stop(cmd.Context(), name) })
		},
	}
}

func (a *app) newSessionStartCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "start SESSION…",
		Short: "Start the container of sessions, with their services",
		Long: `Starts what a session's programs run in, so that the first one does not wait for it.
It ends as it always does, ten minutes after the last use.`,
		Example: `  wisbox start box`,
		Args:    atLeast("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachSession(cmd.Context(), "started", args, func(m *wisbox.Manager, name string) error { return a.startSession(cmd.Context(), m, name) })
		},
	}
}

// startSession has the container made by a program that does nothing.
func (a *app) startSession(ctx context.Context, m *wisbox.Manager, name string) error {
	s, err := m.Attach(ctx, name)
	if err != nil {
		return err
	}
	_, err = s.Run(ctx, sandbox.Cmd{Argv: []string{"true"}})
	return errors.Join(err, a.closeSession(ctx, s))
}

// errNothingDone leaves a session out of those that are printed, and is no failure.
var errNothingDone = errors.New("there was nothing to do")

// eachSession does something with sessions by their names, and prints those with which it was
// done. Failures are reported, and the others are done.
func (a *app) eachSession(ctx context.Context, done string, names []string, do func(*wisbox.Manager, string) error) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	good, failed := []string{}, []error{}
	for _, name := range names {
		switch err := do(m, name); {
		case errors.Is(err, errNothingDone):
		case err != nil:
			failed = append(failed, err)
		default:
			good = append(good, name)
		}
	}
	if len(good) > 0 {
		err = a.print(map[string]any{done: good}, func(w io.Writer) {
			for _, name := range good {
				fmt.Fprintln(w, name)
			}
		})
	}
	if len(failed) == 0 {
		return err
	}
	last := len(failed) - 1
	for _, err := range failed[:last] {
		a.printError(tool.AsError(err))
	}
	return errors.Join(asUsage(failed[last]), err)
}

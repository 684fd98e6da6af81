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
		Short: "Stop sessions: end their programs and containers; the files stay",
		Long: `Stops sessions: ends their programs, interpreters, services and containers. Files,
snapshots and the log stay, and the next command starts a container again. Secrets
without a file are lost; set them again with wisbox secret. Stopping a stopped
session succeeds.`,
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
		Short: "Start the containers of sessions, with their services",
		Long: `Starts the containers of sessions, so that their first programs don't wait for them. A
container ends as usual, ten minutes after its last use.`,
		Example: `  wisbox start box`,
		Args:    atLeast("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachSession(cmd.Context(), "started", args, func(m *wisbox.Manager, name string) error { return a.startSession(cmd.Context(), m, name) })
		},
	}
}

// startSession starts a session's container by running a program that does nothing.
func (a *app) startSession(ctx context.Context, m *wisbox.Manager, name string) error {
	s, err := m.Attach(ctx, name)
	if err != nil {
		return err
	}
	_, err = s.Run(ctx, sandbox.Cmd{Argv: []string{"true"}})
	return errors.Join(err, a.closeSession(ctx, s))
}

// errNothingDone means that a session needed no action. It isn't printed and isn't a failure.
var errNothingDone = errors.New("there was nothing to do")

// eachSession calls do for each session, prints the names of the successful ones, and reports the
// errors of the others.
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

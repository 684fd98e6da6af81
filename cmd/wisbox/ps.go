package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newPsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "ps [SESSION]",
		Short: "List the processes of a session, or of all sessions",
		Long: `Lists the commands that outlive the call that started them: those of wisbox exec
--detach and of the tool process_start. It includes the last 16 that ended, until
nobody has used the session for ten minutes; later, wisbox history shows how they ended.
Without SESSION, it lists those of all kept sessions.
wisbox logs, attach and kill take an id, or enough of its beginning to be unique.`,
		Example: `  wisbox ps
  wisbox ps box`,
		Args: exactArgs("[SESSION]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.runPsAll(cmd.Context())
			}
			return a.runPs(cmd.Context(), args[0])
		},
	}
}

func (a *app) runPs(ctx context.Context, session string) error {
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		all, err := s.Processes(ctx)
		if err != nil {
			return err
		}
		return a.print(map[string]any{"processes": all}, func(w io.Writer) {
			tw := newTable(w, processColumns...)
			for _, p := range all {
				tw.row(processCells(p)...)
			}
			_ = tw.Flush()
		})
	})
}

// sessionProcesses are the processes of one session, as ps prints them if no session is given.
type sessionProcesses struct {
	Session   string               `json:"session"`
	Processes []wisbox.ProcessInfo `json:"processes"`
}

// runPsAll asks all sessions that may have processes. It reports sessions that don't answer, and
// lists the others.
func (a *app) runPsAll(ctx context.Context) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	entries, err := m.List(ctx)
	if err != nil {
		return err
	}
	found := []sessionProcesses{}
	for _, e := range entries {
		if !e.State.Kept || !e.InUse && !e.Held {
			continue
		}
		all, err := processesIn(ctx, m, e.ID)
		if err != nil {
			a.printError(tool.AsError(err))
			continue
		}
		if len(all) > 0 {
			found = append(found, sessionProcesses{e.ID, all})
		}
	}
	return a.print(map[string]any{"sessions": found}, func(w io.Writer) {
		tw := newTable(w, append([]any{"SESSION"}, processColumns...)...)
		for _, of := range found {
			for _, p := range of.Processes {
				tw.row(append([]any{printable(of.Session)}, processCells(p)...)...)
			}
		}
		_ = tw.Flush()
	})
}

func processesIn(ctx context.Context, m *wisbox.Manager, name string) ([]wisbox.ProcessInfo, error) {
	s, err := m.Attach(ctx, name)
	if err != nil {
		return nil, err
	}
	all, err := s.Processes(ctx)
	return all, errors.Join(err, s.Close(ctx))
}

// shownCommand is the maximum length of a command line in the table.
const shownCommand = 60

var processColumns = []any{"PROCESS", "PID", "STATE", "EXIT", "AGE", "COMMAND"}

func processCells(p wisbox.ProcessInfo) []any {
	pid, exit := "-", "-"
	if p.PID != 0 {
		pid = strconv.Itoa(p.PID)
	}
	if p.ExitCode != nil {
		exit = strconv.Itoa(*p.ExitCode)
	}
	line := []rune(oneLine(strings.Join(p.Command, " ")))
	if len(line) > shownCommand {
		line = append(line[:shownCommand-1], '…')
	}
	return []any{p.ProcessID, pid, p.State, exit, age(p), string(line)}
}

// processOf finds a process by its id or the beginning of it. If there is none, it returns a record
// with only the given id, so that the session's error applies.
func processOf(ctx context.Context, s *wisbox.Session, id string) (wisbox.ProcessInfo, error) {
	all, err := s.Processes(ctx)
	if err != nil {
		return wisbox.ProcessInfo{}, err
	}
	var found []wisbox.ProcessInfo
	for _, p := range all {
		if p.ProcessID == id {
			return p, nil
		}
		if id != "" && strings.HasPrefix(p.ProcessID, id) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return wisbox.ProcessInfo{ProcessID: id}, nil
	case 1:
		return found[0], nil
	}
	return wisbox.ProcessInfo{}, tool.Errorf(tool.Ambiguous, "the ids of %d processes begin with %s; give more characters", len(found), id).In("process_id")
}

// age returns the time since a process was started, in docker's words.
func age(p wisbox.ProcessInfo) string {
	at, err := time.Parse(time.RFC3339, p.StartedAt)
	if err != nil {
		return "-"
	}
	return strings.ToLower(units.HumanDuration(max(0, time.Since(at))))
}

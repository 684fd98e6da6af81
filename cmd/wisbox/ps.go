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
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
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
wisbox logs, attach and kill take an id, or enough of its beginning to be unique.
It also lists the calls that run now, such as a wisbox exec in another terminal. They end
with their caller, and logs, attach and kill don't take their ids.`,
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
		all, err := processesOf(ctx, s)
		if err != nil {
			return err
		}
		return a.print(all, func(w io.Writer) {
			tw := newTable(w, processColumns...)
			for _, cells := range all.rows() {
				tw.row(cells...)
			}
			_ = tw.Flush()
		})
	})
}

// sessionProcesses has the processes and running calls of a session.
type sessionProcesses struct {
	Session   string               `json:"session,omitempty"`
	Processes []wisbox.ProcessInfo `json:"processes"`
	Calls     []wisbox.Event       `json:"calls,omitempty"` // that run now
}

func processesOf(ctx context.Context, s *wisbox.Session) (all sessionProcesses, err error) {
	if all.Processes, err = s.Processes(ctx); err != nil {
		return all, err
	}
	all.Calls, err = s.Running(ctx)
	return all, err
}

func (all *sessionProcesses) rows() (rows [][]any) {
	for _, p := range all.Processes {
		rows = append(rows, processCells(p))
	}
	for _, e := range all.Calls {
		rows = append(rows, callCells(e))
	}
	return rows
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
		if len(all.Processes)+len(all.Calls) > 0 {
			all.Session = e.ID
			found = append(found, all)
		}
	}
	return a.print(map[string]any{"sessions": found}, func(w io.Writer) {
		tw := newTable(w, append([]any{"SESSION"}, processColumns...)...)
		for _, of := range found {
			for _, cells := range of.rows() {
				tw.row(append([]any{streams.Printable(of.Session)}, cells...)...)
			}
		}
		_ = tw.Flush()
	})
}

func processesIn(ctx context.Context, m *wisbox.Manager, name string) (sessionProcesses, error) {
	s, err := m.Attach(ctx, name)
	if err != nil {
		return sessionProcesses{}, err
	}
	all, err := processesOf(ctx, s)
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
	return []any{p.ProcessID, pid, p.State, exit, age(p.StartedAt), shortLine(strings.Join(p.Command, " "))}
}

// callCells shows a call that runs.
func callCells(e wisbox.Event) []any {
	what := whatIs(e.Tool, e)
	if e.Tool == "run" || e.Tool == "start" {
		what = whatIs("", e) // as of processes
	}
	return []any{oneLine(e.Call), "-", "running", "-", age(e.Time.Format(time.RFC3339)), shortLine(what)}
}

func shortLine(text string) string {
	line := []rune(oneLine(text))
	if len(line) > shownCommand {
		line = append(line[:shownCommand-1], '…')
	}
	return string(line)
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
		return wisbox.ProcessInfo{ProcessID: id}, refuseCall(ctx, s, id)
	case 1:
		return found[0], nil
	}
	return wisbox.ProcessInfo{}, tool.Errorf(tool.Ambiguous, "the ids of %d processes begin with %s; give more characters", len(found), id).In("process_id")
}

// refuseCall explains that a call which ps lists isn't a process.
func refuseCall(ctx context.Context, s *wisbox.Session, id string) error {
	calls, err := s.Running(ctx)
	for _, e := range calls {
		if id != "" && err == nil && strings.HasPrefix(e.Call, id) {
			return tool.Errorf(tool.Conflict, "%s is a call of %s that runs now: its input and output are its caller's, and it ends with its caller; "+
				"to end it, interrupt the caller, or stop the session with `wisbox stop %s`", id, oneLine(e.Caller), s.ID()).In("process_id")
		}
	}
	return nil
}

// age returns the time since a start, in docker's words.
func age(started string) string {
	at, err := time.Parse(time.RFC3339, started)
	if err != nil {
		return "-"
	}
	return strings.ToLower(units.HumanDuration(max(0, time.Since(at))))
}

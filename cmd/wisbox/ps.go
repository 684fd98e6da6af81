package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
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
		Long: `Lists the commands that outlive the call that began them: those of wisbox exec
--detach and of the tool process_start. Of those that ended the last 16 are known,
until nobody has used the session for ten minutes; wisbox log knows how they ended.
Without SESSION, those of all kept sessions.
wisbox logs, attach and kill take an id, or as much of its beginning as is of one.`,
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
			tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, processHeader)
			printProcesses(tw, "", all)
			_ = tw.Flush()
		})
	})
}

// sessionProcesses are those of one session, as ps without a session prints them.
type sessionProcesses struct {
	Session   string               `json:"session"`
	Processes []wisbox.ProcessInfo `json:"processes"`
}

// runPsAll asks the sessions in which something may run. One that doesn't answer is reported,
// and keeps no other from being listed.
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
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "SESSION\t"+processHeader)
		for _, of := range found {
			printProcesses(tw, printable(of.Session)+"\t", of.Processes)
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

// shownCommand is how much of a command line the table has.
const shownCommand = 60

const processHeader = "PROCESS\tPID\tSTATE\tEXIT\tAGE\tCOMMAND"

func printProcesses(w io.Writer, before string, all []wisbox.ProcessInfo) {
	for _, p := range all {
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
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\t%s\n", before, p.ProcessID, pid, p.State, exit, age(p), string(line))
	}
}

// processOf finds a process by its id or the beginning of it. Of one that isn't there
// it gives only what was asked for: the session says what to do.
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
	return wisbox.ProcessInfo{}, tool.Errorf(tool.Ambiguous, "the ids of %d processes begin with %s; give more of it", len(found), id).In("process_id")
}

// age is the time since a process was started, as docker says it.
func age(p wisbox.ProcessInfo) string {
	at, err := time.Parse(time.RFC3339, p.StartedAt)
	if err != nil {
		return "-"
	}
	return strings.ToLower(units.HumanDuration(max(0, time.Since(at))))
}

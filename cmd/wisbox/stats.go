package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newStatsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats [SESSION…]",
		Short: "Show the resource usage of sessions: processor time, memory, processes, disk",
		Long: `Shows the resources that the named sessions, or all kept ones, use now, and their
limits: the container's processor time so far, its memory including files in /tmp, its
processes and threads, and the disk of the workspace. A dash means absent or not
counted. It starts nothing.`,
		Example: `  wisbox stats
  wisbox stats box`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runStats(cmd.Context(), args) },
	}
}

// sessionUsage is one row of stats.
type sessionUsage struct {
	Session string `json:"session"`
	State   string `json:"state"` // as in ls
	*wisbox.Usage
}

func (a *app) runStats(ctx context.Context, names []string) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	states, kept, err := statesOf(ctx, m)
	if err != nil {
		return err
	}
	asked := len(names) > 0
	if !asked {
		names = kept
	}
	found := []sessionUsage{}
	for _, name := range names {
		u, err := usageOf(ctx, m, name)
		switch {
		case err == nil:
			state := states[name]
			if far.IsKube(a.far) && state == "running" && !u.Running { // a Pod has its session open even when nothing runs in it
				state = "stopped"
			}
			found = append(found, sessionUsage{name, state, u})
			if u.Problem != "" && !a.json {
				fmt.Fprintf(a.err, "wisbox: %s: %s\n", name, streams.Printable(u.Problem))
			}
		case asked:
			return asUsage(err)
		default: // a session that can't be asked doesn't hide the others
			a.printError(tool.AsError(err))
		}
	}
	return a.print(map[string]any{"sessions": found}, func(w io.Writer) {
		tw := newTable(w, "SESSION", "STATE", "CPU TIME", "MEMORY", "PROCESSES", "DISK")
		for _, s := range found {
			tw.row(s.cells()...)
		}
		_ = tw.Flush()
	})
}

// statesOf returns the states of the sessions, wherever they are, and the names of those that stay.
func statesOf(ctx context.Context, m *wisbox.Manager) (states map[string]string, kept []string, err error) {
	entries, err := m.List(ctx)
	states = map[string]string{}
	for _, e := range entries {
		states[e.ID] = e.Shown()
		if e.State.Kept {
			kept = append(kept, e.ID)
		}
	}
	return states, kept, err
}

func usageOf(ctx context.Context, m *wisbox.Manager, name string) (*wisbox.Usage, error) {
	s, err := m.Attach(ctx, name)
	if err != nil {
		return nil, err
	}
	defer s.Close(ctx)
	return s.Usage(ctx)
}

func (s sessionUsage) cells() []any {
	cpu := "-"
	if s.Gauge != nil {
		cpu = s.Gauge.CPU.Round(10 * time.Millisecond).String()
	}
	memory, processes := s.takes()
	return []any{streams.Printable(s.Session), streams.Printable(s.State), cpu, memory, processes, bytesOf(s.Disk, s.Limits.Disk)}
}

// takes returns the container's memory and processes, each with its limit.
func (s sessionUsage) takes() (memory, processes string) {
	if s.Gauge == nil {
		return "-", "-"
	}
	return bytesOf(s.Gauge.Memory, s.Limits.Memory), strconv.FormatInt(s.Gauge.Processes, 10) + " of " + strconv.FormatInt(s.Limits.PIDs, 10)
}

func bytesOf(n, most int64) string {
	return units.BytesSize(float64(n)) + " of " + units.BytesSize(float64(most))
}

package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newStatsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats [SESSION…]",
		Short: "Show what sessions take: processor time, memory, processes, disk",
		Long: `Shows, for the sessions named or all kept ones, what they take at this moment and what
they may: the processor time that their container has used so far, its memory with the
files in /tmp, its processes and threads, and the disk of the workspace. A dash is what
isn't there or isn't counted. It starts nothing.`,
		Example: `  wisbox stats
  wisbox stats box`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runStats(cmd.Context(), args) },
	}
}

// sessionUsage is one line of stats.
type sessionUsage struct {
	Session string `json:"session"`
	*wisbox.Usage
}

func (a *app) runStats(ctx context.Context, names []string) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	asked := len(names) > 0
	if !asked {
		names = a.sessionNames(ctx)
	}
	found := []sessionUsage{}
	for _, name := range names {
		u, err := usageOf(ctx, m, name)
		switch {
		case err == nil:
			found = append(found, sessionUsage{name, u})
			if u.Problem != "" && !a.json {
				fmt.Fprintf(a.err, "wisbox: %s: %s\n", name, printable(u.Problem))
			}
		case asked:
			return asUsage(err)
		default: // one that can't be asked keeps no other from being shown
			a.printError(tool.AsError(err))
		}
	}
	return a.print(map[string]any{"sessions": found}, func(w io.Writer) {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "SESSION\tSTATE\tCPU TIME\tMEMORY\tPROCESSES\tDISK")
		for _, s := range found {
			fmt.Fprintln(tw, s.line())
		}
		_ = tw.Flush()
	})
}

func usageOf(ctx context.Context, m *wisbox.Manager, name string) (*wisbox.Usage, error) {
	s, err := m.Attach(ctx, name)
	if err != nil {
		return nil, err
	}
	defer s.Close(ctx)
	return s.Usage(ctx)
}

func (s sessionUsage) line() string {
	cpu := "-"
	if s.Gauge != nil {
		cpu = s.Gauge.CPU.Round(10 * time.Millisecond).String()
	}
	memory, processes := s.takes()
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", printable(s.Session), s.state(), cpu, memory, processes, bytesOf(s.Disk, s.Limits.Disk))
}

func (s sessionUsage) state() string {
	switch {
	case s.Running:
		return "running"
	case s.Problem != "":
		return "unknown"
	}
	return "stopped"
}

// takes is what the container has of what it may have.
func (s sessionUsage) takes() (memory, processes string) {
	if s.Gauge == nil {
		return "-", "-"
	}
	return bytesOf(s.Gauge.Memory, s.Limits.Memory), strconv.FormatInt(s.Gauge.Processes, 10) + " of " + strconv.FormatInt(s.Limits.PIDs, 10)
}

func bytesOf(n, most int64) string {
	return units.BytesSize(float64(n)) + " of " + units.BytesSize(float64(most))
}

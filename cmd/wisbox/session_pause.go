package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/overlay"
)

func (a *app) newSessionPauseCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "pause SESSION",
		Short: "Pause a session's programs until resume",
		Long: `Freezes the session's programs: they keep their memory, use no processor time, and
their time limits stop. Commands and tools that run or control programs fail at once
meanwhile; files can be read and changed, also by snapshot, undo and cp. Services keep
running. The pause lasts until wisbox resume, even if processes of wisbox end in
between; --idle doesn't count, --ttl does. Memory doesn't survive a reboot: after one,
resume creates another container over the same files.`,
		Example: `  wisbox pause box
  wisbox undo box
  wisbox resume box`,
		Args: exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runSessionPause(cmd.Context(), args[0]) },
	}
}

func (a *app) runSessionPause(ctx context.Context, name string) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		if err := s.Pause(ctx); err != nil {
			return err
		}
		if err := a.print(map[string]any{"id": name, "state": overlay.StatePaused}, func(w io.Writer) { fmt.Fprintln(w, name) }); err != nil {
			return err
		}
		if ttl := s.Options().TTL; ttl > 0 {
			in, err := s.Inspect(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.err, "wisbox: the session ends at %s by its --ttl, paused or not\n", in.Created.Add(ttl).Local().Format(time.DateTime))
		}
		return nil
	})
}

func (a *app) newSessionResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "resume SESSION",
		Short: "Resume the programs of a paused session",
		Long: `Resumes the programs that wisbox pause stopped. If the container is gone, e.g.
after a reboot, wisbox creates another one over the same files, and reports that.`,
		Args: exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runSessionResume(cmd.Context(), args[0]) },
	}
}

func (a *app) runSessionResume(ctx context.Context, name string) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		done, err := s.Resume(ctx)
		if err != nil {
			return err
		}
		if done.Lost {
			fmt.Fprintln(a.err, "wisbox: the container was lost meanwhile, with its programs and what was in /tmp and in the home directory; the session has another one, over the same files")
		}
		return a.print(map[string]any{"id": name, "state": overlay.StateReady, "lost": done.Lost}, func(w io.Writer) { fmt.Fprintln(w, name) })
	})
}

package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

func (a *app) newUpdateCmd() *cobra.Command {
	var l sandbox.Limits
	cmd := &cobra.Command{
		Use:   "update [flags] SESSION",
		Short: "Change the limits of a session that stays",
		Long: `Changes limits of a session, records them, and prints all limits as wisbox inspect does.
--cpus, --memory and --pids change at once, also for programs that run, and so do --disk
and --inodes, except that a disk that is an image (see wisbox inspect) only grows and
keeps its entries. --tmp and --shm-size are those of a container: stop the session
first. An error changes nothing.`,
		Example: `  wisbox update box --memory 4g --cpus 2
  wisbox update box --shm-size 1g`,
		Args: exactArgs("SESSION"),
	}
	flags := cmd.Flags()
	flags.Float64Var(&l.CPUs, "cpus", 0, "processors, `N` from 0.01 to 4096")
	flags.Int64Var(&l.PIDs, "pids", 0, "processes and threads, `N` from 32 to 4194304")
	flags.Int64Var(&l.Inodes, "inodes", 0, "entries of the workspace, `N` from 100 to 4294967295")
	flags.Var(sizeFlag{&l.Memory}, "memory", "`SIZE` of memory without swap")
	flags.Var(sizeFlag{&l.Tmp}, "tmp", "`SIZE` of /tmp and, where it fits, of the home directory")
	flags.Var(sizeFlag{&l.Shm}, "shm-size", "`SIZE` of /dev/shm")
	flags.Var(sizeFlag{&l.Disk}, "disk", "`SIZE` of the workspace")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range []string{"cpus", "pids", "inodes"} {
			if flag := flags.Lookup(name); flag.Changed && flag.Value.String() == "0" {
				return usageError{errors.New("--" + name + " is 0; leave it out to keep the limit")}
			}
		}
		if l == (sandbox.Limits{}) {
			return usageError{errors.New("no limit is given; give at least one of --cpus, --memory, --pids, --disk, --inodes, --tmp and --shm-size")}
		}
		if err := a.runUpdate(cmd.Context(), args[0], l); err != nil {
			return asUsage(named(err, flags))
		}
		return nil
	}
	return cmd
}

func (a *app) runUpdate(ctx context.Context, name string, l sandbox.Limits) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		in, err := s.SetLimits(ctx, l)
		if err != nil {
			return err
		}
		return a.print(map[string]any{"id": in.ID, "limits": in.Limits}, func(w io.Writer) { printLimits(w, in.Limits, in.Sandbox != nil) })
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
)

func (a *app) newMountCmd() *cobra.Command {
	flags := &sessionFlags{}
	var dry bool
	cmd := &cobra.Command{
		Use:   "mount --dry-run --mount HOST[:DEST][,…] [--allow-root DIR]",
		Short: "Show what a mount would copy and what it would skip",
		Long: `Shows what --mount would copy. Mounts are copies, made when a session opens: see
wisbox run --mount and wisbox create --mount.`,
		Example: `  wisbox mount --dry-run --mount ./project:project,exclude=**/*.log`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !dry {
				return usageError{fmt.Errorf("--dry-run is missing; use `wisbox run` or `wisbox create` to mount")}
			}
			if len(flags.mounts) == 0 {
				return usageError{errors.New("--mount is missing; give the mount to try")}
			}
			return a.runMountDry(cmd.Context(), flags)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "list the files, and copy nothing")
	cmd.Flags().StringArrayVar(&flags.mounts, "mount", nil, "host file or folder, `HOST[:DEST]` and options, as for wisbox run; repeatable")
	cmd.Flags().Var(sizeFlag{&flags.given.Limits.Disk}, "disk", "`SIZE` of the workspace into which it must fit (default 2g)")
	cmd.Flags().Int64Var(&flags.given.Limits.Inodes, "inodes", 0, "`N` files and directories that the workspace may have (default 200000)")
	cmd.Flags().StringArrayVar(&flags.allowRoots, "allow-root", nil, "`DIR`, as for wisbox run; repeatable")
	return cmd
}

func (a *app) runMountDry(ctx context.Context, flags *sessionFlags) error {
	opts := &wisbox.SessionOptions{}
	if err := flags.addMounts(opts); err != nil {
		return err
	}
	report, err := hostmount.Preview(ctx, opts.Mounts, &hostmount.Options{AllowedRoots: opts.AllowedRoots, MaxBytes: flags.given.Limits.Disk, MaxFiles: flags.given.Limits.Inodes})
	if err != nil {
		return flags.mountError(err)
	}
	return a.print(report, func(w io.Writer) { printPreview(w, report) })
}

func printPreview(w io.Writer, report *hostmount.Report) {
	tw := newTable(w)
	var left int64
	for _, m := range report.Mounts {
		for _, e := range m.Entries {
			switch {
			case e.Skipped != "":
				tw.row(e, "left out: "+e.Skipped.Text())
			case e.Kind == "symlink":
				tw.row(e, "link")
			case e.Kind != "directory":
				tw.row(e, e.Size)
			}
		}
		for _, n := range m.Skipped {
			left += n
		}
		if m.Truncated {
			tw.row("…")
		}
	}
	_ = tw.Flush()
	fmt.Fprintf(w, "%s, %d bytes; %d left out\n", quantity(report.Files, "file", "files"), report.Bytes, left)
}

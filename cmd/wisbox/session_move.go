package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
)

func (a *app) newSessionCloneCmd() *cobra.Command {
	var again bool
	cmd := &cobra.Command{
		Use:   "clone SESSION NAME",
		Short: "Copy a session with its files and settings",
		Args:  exactArgs("SESSION", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSessionClone(cmd.Context(), args[0], wisbox.CloneOptions{Name: args[1], Kept: true, Remount: again})
		},
	}
	cmd.Flags().BoolVar(&again, "remount", false, "copy the session's mounts again, over the files that it has now")
	return cmd
}

func (a *app) runSessionClone(ctx context.Context, name string, opts wisbox.CloneOptions) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		opts.OnLeft = a.sayNotKept
		c, err := s.Clone(ctx, &opts)
		if err != nil {
			return asUsage(err)
		}
		return a.leave(ctx, c)
	})
}

// sayNotKept reports on stderr what a snapshot doesn't have of a workspace.
func (a *app) sayNotKept(skipped, unkept []string) {
	const most = 10 // paths in a message
	for _, l := range []struct {
		what  string
		paths []string
	}{{"left out, as no regular files", skipped}, {"copied without some attributes, such as access lists", unkept}} {
		if len(l.paths) == 0 {
			continue
		}
		more := ""
		if n := len(l.paths) - most; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(a.err, "wisbox: %s: %s%s\n", l.what, streams.Printable(strings.Join(l.paths[:min(len(l.paths), most)], ", ")), more)
	}
}

// leave prints a new session and leaves it for later commands.
func (a *app) leave(ctx context.Context, s *wisbox.Session) error {
	in, err := s.Inspect(ctx)
	if err = errors.Join(err, a.closeSession(ctx, s)); err != nil {
		return err
	}
	return a.print(in, func(w io.Writer) { fmt.Fprintln(w, in.ID) })
}

func (a *app) newSessionResetCmd() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "reset SESSION",
		Short: "Reset a session: end its programs, empty the workspace, copy the mounts again",
		Long: `Ends the session's programs and interpreters, gives it an empty workspace and
copies its mounts again. Its snapshots and its log stay, and a snapshot named
"before reset" has the files that were there. If the mounts can't be copied, nothing
changes. On a terminal, it asks before it removes changes that went nowhere.`,
		Args: exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSessionReset(cmd.Context(), args[0], force)
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "don't ask")
	return cmd
}

func (a *app) runSessionReset(ctx context.Context, name string, force bool) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if !force && !a.mayLose(ctx, m, name, "reset it") {
		return errKept
	}
	s, err := m.Attach(ctx, name)
	if err != nil {
		return asUsage(err)
	}
	if err := errors.Join(s.Reset(ctx), a.closeSession(ctx, s)); err != nil {
		return err
	}
	return a.print(map[string]string{"reset": name}, func(w io.Writer) {
		fmt.Fprintln(w, name)
		fmt.Fprintf(a.err, "wisbox: the files that were there: wisbox snapshot restore %s \"before reset\"\n", name)
	})
}

func (a *app) newSessionSaveCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "save SESSION FILE|-",
		Short: "Write a session's workspace, snapshots and settings to a file",
		Long: `Writes an archive from which wisbox load creates a session, here or on another
machine. It includes the variables of the session's programs (--env). wisbox replaces
FILE only once the archive is complete; - is stdout.`,
		Example: `  wisbox save box box.wisbox
  wisbox save box - | ssh ci wisbox load - box`,
		Args: exactArgs("SESSION", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSessionSave(cmd.Context(), args[0], args[1])
		},
	}
}

func (a *app) runSessionSave(ctx context.Context, name, file string) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		if file == "-" {
			bar := a.newProgress(unknown)
			defer bar.end()
			info, err := s.Save(ctx, io.MultiWriter(a.out, bar))
			if err == nil {
				a.sayNotKept(info.Skipped, info.Unkept)
			}
			return err
		}
		info, err := a.saveTo(ctx, s, file)
		if err != nil {
			return err
		}
		return a.print(info, func(w io.Writer) { fmt.Fprintf(w, "%s: %d files, %d bytes\n", file, info.Files, info.Bytes) })
	})
}

// saved is the output of save.
type saved struct {
	File  string `json:"file"`
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
}

// saveTo writes the archive to a file that gets its name when it is complete.
func (a *app) saveTo(ctx context.Context, s *wisbox.Session, file string) (saved, error) {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return saved{}, fileError(file, err)
	}
	defer root.Close()
	const own = 0o600 // it has the variables of programs
	f, err := newWholeFile(root, filepath.Base(file), own)
	if err != nil {
		return saved{}, fileError(file, err)
	}
	defer f.discard()
	bar := a.newProgress(unknown)
	info, err := s.Save(ctx, io.MultiWriter(f, bar))
	bar.end()
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = fileError(file, path)
	}
	if err != nil {
		return saved{}, err
	}
	if err := f.place(); err != nil {
		return saved{}, fileError(file, err)
	}
	a.sayNotKept(info.Skipped, info.Unkept)
	return saved{File: file, Files: info.Files, Bytes: info.Bytes}, nil
}

// fileError describes an error of the file that a person named for writing, even if it is about the
// temporary file.
func fileError(file string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return hostError(&fs.PathError{Op: opWrite, Path: file, Err: err})
}

const opWrite = "write" // a write to a file that a person named

// sizeOfFile returns the size of a regular file, and 0 for anything else.
func sizeOfFile(r any) int64 {
	f, ok := r.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

type loadOptions struct {
	limits   sessionFlags
	settings bool
}

func (a *app) newSessionLoadCmd() *cobra.Command {
	opts := &loadOptions{}
	cmd := &cobra.Command{
		Use:   "load FILE|- [NAME]",
		Short: "Create a session from a file of wisbox save",
		Long: `Creates a kept session with the archive's workspace and snapshots. Checks every part
of the archive first. Prints the session's name.

The session has wisbox's defaults or the settings of the flags. For an archive of your
own, --with-settings takes its settings too: image, variables, digest and so on, but no
limit above the session's and no path of the host. stderr names the settings of the
archive that the session doesn't have.`,
		Example: `  wisbox load box.wisbox
  wisbox load --image localhost/mine box.wisbox
  wisbox load --with-settings --memory 4g box.wisbox again`,
		Args: exactArgs("FILE", "[NAME]"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runSessionLoad(cmd.Context(), args, opts) },
	}
	opts.limits.flags = cmd.Flags()
	opts.limits.registerLimits(cmd.Flags())
	opts.limits.registerImage(cmd.Flags())
	cmd.Flags().BoolVar(&opts.settings, "with-settings", false, "take the archive's settings, within the limits of the session")
	return cmd
}

func (a *app) runSessionLoad(ctx context.Context, args []string, flags *loadOptions) error {
	settings, err := flags.limits.options()
	if err != nil {
		return err
	}
	settings.Kept, settings.AutoSnapshot = true, true
	if len(args) == 2 {
		settings.Name = args[1]
	}
	if err := settings.Check(); err != nil {
		return asUsage(err)
	}
	in, err := a.openInput(ctx, args[0])
	if err != nil {
		return err
	}
	defer in.Close()
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	bar := a.newProgress(func() int64 { return sizeOfFile(in) })
	s, err := m.Load(ctx, io.TeeReader(in, bar), &wisbox.LoadOptions{Settings: settings, WithSettings: flags.settings, OnLeftOut: func(left []string) {
		fmt.Fprintf(a.err, "wisbox: settings of the archive that the session doesn't have: %s; see wisbox load --help\n", strings.Join(left, ", "))
	}})
	bar.end()
	if err != nil {
		return err
	}
	return a.leave(ctx, s)
}

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/devcontainer"
	"github.com/wisbox/wisbox/sandbox"
)

// takeDevcontainer gives the flags what a project's devcontainer.json says, where they
// don't say it. It builds the image if there is one to build.
func (a *app) takeDevcontainer(ctx context.Context, f *sessionFlags, dir string) (*devcontainer.File, error) {
	file, err := devcontainer.Read(dir)
	if err != nil {
		return nil, asUsage(err)
	}
	if len(file.Unused) > 0 {
		fmt.Fprintf(a.err, "wisbox: %s: not used: %s\n", file.Path, printable(strings.Join(file.Unused, ", ")))
	}
	f.flags.Lookup("mount").Changed = true // wisbox.toml's own mounts would be the same folder again
	var vars []string
	for name, value := range file.Env {
		vars = append(vars, name+"="+value)
	}
	f.env.vars = append(vars, f.env.vars...)
	if f.flags.Changed("image") || f.flags.Changed("template") {
		return file, nil
	}
	image := file.Image
	if file.Build != nil {
		if image, err = a.buildDevcontainer(ctx, dir, file.Build); err != nil {
			return nil, err
		}
	}
	if image == "" {
		return file, nil
	}
	return file, f.flags.Set("image", image)
}

// mountProject puts the project before what the flags mount.
func (f *sessionFlags) mountProject(opts *wisbox.SessionOptions, dir string, file *devcontainer.File) {
	mounts := []hostmount.Mount{{HostPath: dir, MountPath: "."}}
	for _, m := range file.Mounts {
		mounts = append(mounts, hostmount.Mount{HostPath: filepath.Join(dir, m.Source), MountPath: m.Dest})
	}
	opts.Mounts = append(mounts, opts.Mounts...)
	if len(f.allowRoots) == 0 {
		opts.AllowedRoots = append(opts.AllowedRoots, dir)
	}
}

func (a *app) buildDevcontainer(ctx context.Context, dir string, b *devcontainer.Build) (image string, err error) {
	err = withBackend(ctx, a, func(_ *wisbox.Manager, builder images.Builder) error {
		report, err := images.BuildFile(ctx, builder, &images.FileOptions{
			File: filepath.Join(dir, b.File), Context: filepath.Join(dir, b.Context), Args: b.Args,
			Progress: func(line string) { fmt.Fprintln(a.err, printable(line)) },
		})
		if err != nil {
			return buildError(err)
		}
		image = report.Image
		return nil
	})
	return image, err
}

// ready runs the commands that make a session of a devcontainer ready; what they write
// goes to stderr. The session stays if one fails.
func (a *app) ready(ctx context.Context, s *wisbox.Session, file *devcontainer.File) error {
	for _, c := range file.Commands {
		fmt.Fprintf(a.err, "wisbox: %s: %s\n", printable(c.Name), printable(strings.Join(c.Argv, " ")))
		res, err := s.Run(ctx, sandbox.Cmd{Argv: c.Argv, Stdout: a.err, Stderr: a.err})
		switch {
		case err != nil:
			return err
		case res.Status != sandbox.StatusExited:
			fmt.Fprintf(a.err, "wisbox: %s ended: %s; the session stays, see: wisbox log %s\n", printable(c.Name), res.Status, s.ID())
			return exitCode(exitError)
		case res.ExitCode != 0:
			fmt.Fprintf(a.err, "wisbox: %s exited with code %d; the session stays: go on in it with wisbox shell %s, or remove it\n", printable(c.Name), res.ExitCode, s.ID())
			return exitCode(exitError)
		}
	}
	return nil
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/devcontainer"
	"github.com/wisbox/wisbox/sandbox"
)

// devcontainerFlags are the flags of session create for a project.
type devcontainerFlags struct {
	dir   string // "" if not given
	build bool
}

// takeDevcontainer sets the flags that weren't given from a project's devcontainer.json. It creates
// nothing.
func (a *app) takeDevcontainer(f *sessionFlags, d *devcontainerFlags) (*devcontainer.File, error) {
	switch {
	case d.dir == "" && d.build:
		return nil, usageError{errors.New("--build goes with --devcontainer only; leave it out")}
	case d.dir == "":
		return &devcontainer.File{}, nil
	}
	var err error
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return nil, hostError(err)
	}
	file, err := devcontainer.Read(d.dir)
	if err != nil {
		return nil, asUsage(err)
	}
	if len(file.Unused) > 0 {
		fmt.Fprintf(a.err, "wisbox: %s: not used: %s\n", file.Path, clip.Text(oneLine(strings.Join(file.Unused, ", "))))
	}
	f.flags.Lookup("mount").Changed = true // mounts of wisbox.toml would mount the same folder again
	var vars []string
	for name, value := range file.Env {
		vars = append(vars, name+"="+value)
	}
	f.env.vars = append(vars, f.env.vars...)
	switch {
	case f.flags.Changed("image") || f.flags.Changed("containerfile") || f.flags.Changed("template"):
		file.Image, file.Build = "", nil
	case file.Build != nil && !d.build:
		return nil, usageError{fmt.Errorf("%s builds an image from %s; its steps run as root in a container with this machine's network: read that file and add --build, or name an image with --image", file.Path, oneLine(file.Build.File))}
	case file.Build != nil:
		f.flags.Lookup("containerfile").Changed = true // wisbox.toml's is another image
	case file.Image != "" && images.Registry(file.Image) != "" && !f.flags.Changed("pull"):
		if err := f.flags.Set("pull", "never"); err != nil { // a project's file must not make wisbox download images
			return nil, err
		}
		fallthrough
	case file.Image != "":
		return file, f.flags.Set("image", file.Image)
	}
	return file, nil
}

// mountProject puts the project before the mounts of the flags.
func (f *sessionFlags) mountProject(opts *wisbox.SessionOptions, dir string, file *devcontainer.File) {
	opts.ExpandEnv = true
	mounts := []hostmount.Mount{{HostPath: dir, MountPath: ".", GitFolders: len(f.allowRoots) == 0}}
	for _, m := range file.Mounts {
		mounts = append(mounts, hostmount.Mount{HostPath: filepath.Join(dir, m.Source), MountPath: m.Dest})
	}
	opts.Mounts = append(mounts, opts.Mounts...)
	if len(f.allowRoots) == 0 {
		opts.AllowedRoots = append(opts.AllowedRoots, dir)
	}
}

// buildDevcontainer builds the image, if there is one to build, as the last step before the
// session.
func (a *app) buildDevcontainer(ctx context.Context, dir string, b *devcontainer.Build, opts *wisbox.SessionOptions) error {
	if b == nil {
		return nil
	}
	return withBackend(ctx, a, func(_ *wisbox.Manager, builder images.Builder) error {
		report, err := a.buildFile(ctx, builder, &images.FileOptions{
			File: filepath.Join(dir, b.File), Context: filepath.Join(dir, b.Context), Args: b.Args,
		})
		if err != nil {
			return buildError(err)
		}
		opts.Image = report.Image
		return nil
	})
}

// ready runs the commands that prepare a session of a devcontainer; their output goes to stderr. If
// one fails, the session stays.
func (a *app) ready(ctx context.Context, s *wisbox.Session, file *devcontainer.File) error {
	env := sync.OnceValue(func() []string { return environ(ctx, s) })
	for _, c := range file.Commands {
		for i, word := range c.Argv {
			if strings.Contains(word, "${containerEnv:") {
				c.Argv[i] = sandbox.ExpandEnv(word, env())
			}
		}
		name := clip.Text(oneLine(c.Name))
		fmt.Fprintf(a.err, "wisbox: %s: %s\n", name, clip.Text(oneLine(strings.Join(c.Argv, " "))))
		shown := &shownLines{w: a.err}
		res, err := s.Run(ctx, sandbox.Cmd{Argv: c.Argv, Stdout: shown, Stderr: shown})
		if err = errors.Join(err, shown.flush()); err != nil {
			return err
		}
		switch {
		case res.Status != sandbox.StatusExited:
			fmt.Fprintf(a.err, "wisbox: %s ended: %s; the session stays, see: wisbox history %s\n", name, res.Status, s.ID())
			return exitCode(exitError)
		case res.ExitCode != 0:
			fmt.Fprintf(a.err, "wisbox: %s exited with code %d; the session stays: go on in it with wisbox shell %s, or remove it\n", name, res.ExitCode, s.ID())
			return exitCode(exitError)
		}
	}
	return nil
}

// environ returns the environment of a session's programs, empty if its image can't print it.
func environ(ctx context.Context, s *wisbox.Session) []string {
	var out bytes.Buffer
	res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"env", "-0"}, Stdout: &out, Stderr: io.Discard})
	if err != nil || res.ExitCode != 0 {
		return nil
	}
	return strings.Split(out.String(), "\x00")
}

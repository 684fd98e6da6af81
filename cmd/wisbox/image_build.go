package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/tool"
)

// imageBuildOptions are the flags of all three builds: the default image, presets on it, and the user's own image.
type imageBuildOptions struct {
	tag, base, mirror   string
	baseArchive         string
	rebuild             bool
	with, wheels, index string
	python              string
	file, context       string
	maxContext          int64
	args                []string

	flags *pflag.FlagSet
}

func (a *app) newImageBuildCmd() *cobra.Command {
	opts := &imageBuildOptions{}
	cmd := &cobra.Command{
		Use:   "build [CONTEXT]",
		Short: "Build the default image, one with presets, or one of your own",
		Long: `Builds the default image of sessions, unless it exists: Python 3.12, pip, bash, git,
curl, jq, ripgrep, SBCL. If a container registry answers, it is based on
docker.io/library/python:3.12-slim, else on Debian's packages and a relocatable CPython.

With --with it adds presets to that image:

` + presetsHelp() + `
With -f or CONTEXT it builds your own Containerfile, which may begin FROM
localhost/wisbox. COPY takes files from CONTEXT (default: the folder of the Containerfile),
except those that its .containerignore or .dockerignore lists. RUN steps run as root in
a container with the host's network: build only what you trust.

It prints the image's name, for --image of other commands.`,
		Example: `  wisbox image build
  wisbox image build --with node,build
  wisbox image build --with data --wheels ./wheels
  wisbox image build --with data --python debian
  wisbox image build -f Containerfile -t mine
  wisbox image build -t mine ./project
  wisbox run --image localhost/mine -- node --version`,
		Args: exactArgs("[CONTEXT]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				opts.context = args[0]
			}
			return a.runImageBuild(cmd.Context(), opts)
		},
	}
	opts.flags = cmd.Flags()
	opts.flags.StringVarP(&opts.tag, "tag", "t", "", "`NAME` of the image, below localhost/ unless it begins with a registry (default: derived from the content)")
	opts.flags.BoolVar(&opts.rebuild, "rebuild", false, "build even if the image exists, with fresh packages")
	opts.flags.StringVar(&opts.base, "base", "", "`KIND` of the default image's base: registry or debian (default: registry if one answers)")
	opts.flags.StringVar(&opts.mirror, "mirror", "", "`URL` of a Debian mirror, for the debian base")
	opts.flags.StringVar(&opts.baseArchive, "base-archive", "", "`FILE` of the debian base, made beforehand by images/mkbase")
	_ = opts.flags.MarkHidden("base-archive") // for make demo
	opts.flags.StringVar(&opts.with, "with", "", "`PRESETS` to add, e.g. node,build; all are "+strings.Join(images.PresetNames(), ", "))
	opts.flags.StringVar(&opts.python, "python", "", "`KIND` of Python: wisbox (3.12), or debian (Debian's own, with --with data from Debian) (default wisbox)")
	opts.flags.StringVar(&opts.wheels, "wheels", "", "`DIR` of wheels for Python 3.12, to install --with data from")
	opts.flags.StringVar(&opts.index, "pip-index", "", "`URL` of an index of Python packages for --with data (default: pip's own)")
	opts.flags.StringVarP(&opts.file, "file", "f", "", "`CONTAINERFILE` to build, or - for stdin (default: Containerfile or Dockerfile in CONTEXT)")
	opts.flags.StringArrayVar(&opts.args, "build-arg", nil, "set an ARG of the Containerfile: `NAME=VALUE`; it stays readable in the image; repeatable")
	opts.flags.Var(sizeFlag{&opts.maxContext}, "max-context", "maximum `SIZE` of CONTEXT (default 1g)")
	return cmd
}

func presetsHelp() string {
	var b strings.Builder
	for _, p := range images.Presets {
		fmt.Fprintf(&b, "  %-9s %s\n", p.Name, p.What)
	}
	return b.String()
}

// The flags that apply to only one of the three builds.
var (
	presetFlags  = []string{"wheels", "pip-index"}
	defaultFlags = []string{"base", "base-archive", "mirror", "python"}
	fileFlags    = []string{"build-arg", "max-context"}
)

func (a *app) runImageBuild(ctx context.Context, opts *imageBuildOptions) error {
	own := opts.flags.Changed("file") || opts.context != ""
	if err := opts.check(own); err != nil {
		return err
	}
	if opts.python == "debian" {
		opts.with = strings.TrimPrefix(opts.with+","+images.DebianPython, ",")
	}
	make := opts.makeDefault
	switch {
	case own:
		make = func(ctx context.Context, b images.Builder, say func(string)) (images.Report, error) {
			return a.makeFile(ctx, b, opts, say)
		}
	case opts.with != "":
		make = opts.makePreset
	}
	return withBackend(ctx, a, func(_ *wisbox.Manager, b images.Builder) error {
		var report images.Report
		err := a.watched(func(say func(string)) (err error) {
			report, err = make(ctx, b, say)
			return err
		})
		if err != nil {
			return buildError(err)
		}
		return a.print(report, func(w io.Writer) { printBuilt(w, report) })
	})
}

func printBuilt(w io.Writer, r images.Report) {
	base := ""
	if r.Base != "" {
		base = ", base " + string(r.Base)
	}
	fmt.Fprintf(w, "%s  %s%s, %s\n", r.Image, units.HumanSize(float64(r.Size)), base, r.Duration.Round(time.Second))
}

// check refuses flags without effect, and invalid values.
func (o *imageBuildOptions) check(own bool) error {
	switch images.Base(o.base) {
	case images.BaseAuto, images.BaseRegistry, images.BaseDebian:
	default:
		return usageError{fmt.Errorf("--base is %q; it must be registry or debian", o.base)}
	}
	if err := checkImage("--tag", o.tag); err != nil {
		return err
	}
	if o.python != "" && o.python != "wisbox" && o.python != "debian" {
		return usageError{fmt.Errorf("--python is %q; it must be wisbox or debian", o.python)}
	}
	refuse := func(names []string, needs string) error {
		for _, name := range names {
			if o.flags.Changed(name) {
				return usageError{fmt.Errorf("--%s goes with %s only; leave it out", name, needs)}
			}
		}
		return nil
	}
	if own && o.flags.Changed("with") {
		return usageError{errors.New("--with and a Containerfile of your own exclude each other; build the preset, and begin the Containerfile FROM its name")}
	}
	if own {
		return errors.Join(refuse(defaultFlags, "the default image"), refuse(presetFlags, "--with data"))
	}
	if err := refuse(fileFlags, "-f or CONTEXT"); err != nil {
		return err
	}
	if o.flags.Changed("with") {
		if _, err := images.ParseWith(o.with); err != nil {
			return asUsage(named(err, o.flags))
		}
		return nil
	}
	return refuse(presetFlags, "--with data")
}

func (o *imageBuildOptions) makeDefault(ctx context.Context, b images.Builder, say func(string)) (images.Report, error) {
	return images.Build(ctx, b, &images.Options{Tag: o.tag, Base: images.Base(o.base), Rebuild: o.rebuild, Mirror: o.mirror, BaseArchive: o.baseArchive, Progress: say})
}

func (o *imageBuildOptions) makePreset(ctx context.Context, b images.Builder, say func(string)) (images.Report, error) {
	with, err := images.ParseWith(o.with)
	if err != nil {
		return images.Report{}, err
	}
	report, err := images.BuildPreset(ctx, b, &images.PresetOptions{
		With: with, Tag: o.tag, Base: images.Base(o.base), Mirror: o.mirror, Rebuild: o.rebuild,
		Wheels: o.wheels, Index: o.index, Progress: say,
	})
	if err != nil {
		err = asUsage(named(err, o.flags))
	}
	return report, err
}

func (a *app) makeFile(ctx context.Context, b images.Builder, o *imageBuildOptions, say func(string)) (images.Report, error) {
	opts := &images.FileOptions{Context: o.context, File: o.file, Tag: o.tag, Rebuild: o.rebuild, Progress: say, Args: map[string]string{}}
	if o.flags.Changed("file") && o.file == "" {
		return images.Report{}, usageError{errors.New("--file is empty; name a Containerfile")}
	}
	if o.file == "-" {
		opts.File, opts.Stdin = "", a.stdin(ctx)
	}
	opts.MaxContext = o.maxContext
	for _, pair := range o.args {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return images.Report{}, usageError{fmt.Errorf("--build-arg is %q; write it as NAME=VALUE", pair)}
		}
		opts.Args[name] = value
	}
	return images.BuildFile(ctx, b, opts)
}

// buildError keeps the text of a failed build: the user needs the package manager's or the network's own words.
func buildError(err error) error {
	if usage := (usageError{}); errors.As(err, &usage) {
		return err
	}
	if known := toolerr.Of(err); tool.KindOf(known) != tool.Internal {
		return known
	}
	return tool.Errorf(tool.Unavailable, "%s", err.Error()).Because(err)
}

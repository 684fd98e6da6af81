package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/config"
	"github.com/wisbox/wisbox/tool"
)

// files returns the configuration files that apply, in order of precedence.
func (a *app) files() (found []*config.File, err error) {
	without, err := a.withoutConfig()
	if without || err != nil {
		return nil, err
	}
	project, err := project()
	if err != nil {
		return nil, err
	}
	if project != nil {
		trusted, err := project.Trusted()
		if err != nil {
			return nil, hostError(err)
		}
		if !trusted {
			return nil, tool.Errorf(tool.Permission, "%s is not trusted, or was changed since, or the Containerfile that it names was; see what it sets and trust it with: wisbox trust %s; or leave it out with --no-config", project.Path, project.Dir())
		}
		found = append(found, project)
	}
	user, err := config.User()
	if err != nil {
		return nil, asUsage(hostError(err))
	}
	if user != nil {
		found = append(found, user)
	}
	return found, nil
}

// withoutConfig reports whether configuration files are turned off.
func (a *app) withoutConfig() (bool, error) {
	text := os.Getenv("WISBOX_NO_CONFIG")
	if a.noConfig || text == "" {
		return a.noConfig, nil
	}
	without, err := strconv.ParseBool(text)
	if err != nil {
		return false, usageError{fmt.Errorf("$WISBOX_NO_CONFIG is %q; set it to 1, or leave it out", text)}
	}
	return without, nil
}

func project() (*config.File, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, nil //nolint:nilerr // a deleted directory belongs to no project
	}
	f, err := config.Project(dir)
	return f, asUsage(hostError(err))
}

// configure sets, from the configuration, the flags of a new session that weren't given, and its
// tools.
func (a *app) configure(f *sessionFlags) error {
	if f.alone {
		return nil
	}
	files, err := a.files()
	if err != nil {
		return err
	}
	for _, c := range config.Merge(files) {
		if err := f.take(c); err != nil {
			return err
		}
	}
	return nil
}

// take sets a flag that wasn't given from files; it adds to deny.
func (f *sessionFlags) take(c config.Chosen) error {
	if c.Flag == "tools" {
		f.fileTools = &c
		return nil
	}
	flag := f.flags.Lookup(c.Flag)
	switch {
	case flag == nil:
		return nil
	case c.Flag == "deny":
		c.Values = slices.Concat(f.given.Deny, c.Values)
	case c.Flag == "image" && f.flags.Changed("containerfile"), c.Flag == "containerfile" && f.flags.Changed("image"):
		return nil
	case flag.Changed, c.Flag == "isolation" && flag.DefValue != "":
		return nil
	}
	if err := setFlag(flag, c.Setting); err != nil {
		return usageError{fmt.Errorf("%s is %q; %s", c.Source(), strings.Join(c.Values, " "), wanted[flag.Value.Type()])}
	}
	if f.taken == nil {
		f.taken = map[string]*config.Chosen{}
	}
	if !flag.Changed {
		f.taken[c.Flag] = &c
	}
	return nil
}

// mountsIn returns the file that the mounts come from; nil if they are flags.
func (f *sessionFlags) mountsIn() *config.File {
	if c := f.taken["mount"]; c != nil {
		return c.Files[0]
	}
	return nil
}

// origin returns where a flag's value comes from: the flag, or a file and its key.
func (f *sessionFlags) origin(flag string) string {
	if c := f.taken[flag]; c != nil {
		return c.Source()
	}
	return "--" + flag
}

// blamed adds the file and its key to an error of a value that no flag gave.
func (f *sessionFlags) blamed(err error) error {
	if err == nil {
		return nil
	}
	inner, usage := err, usageError{}
	if errors.As(err, &usage) {
		inner = usage.error
	}
	kind, words, field := tool.Invalid, inner.Error(), ""
	if e := (*tool.Error)(nil); errors.As(inner, &e) {
		kind, words = e.Kind, e.Message
		field, _, _ = strings.Cut(strings.ReplaceAll(e.Field, "_", "-"), "[")
	}
	for flag, c := range f.taken {
		rest, ok := strings.CutPrefix(words, "--"+flag+" ")
		switch {
		case ok:
			return asUsage(tool.Errorf(kind, "%s %s", c.Source(), rest).Because(err))
		case field == flag && !strings.HasPrefix(words, c.Source()):
			return asUsage(tool.Errorf(kind, "%s: %s", c.Source(), words).Because(err))
		}
	}
	return err
}

func setFlag(flag *pflag.Flag, s config.Setting) error {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return list.Replace(s.Values)
	}
	return flag.Value.Set(s.Values[0])
}

// configured is one setting and its source.
type configured struct {
	config.Setting
	Source string `json:"source"`
}

func (a *app) newConfigCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Show the settings of new sessions and where each comes from",
		Long: `Shows each setting that a configuration file can have, its value and its source.
A command's flag overrides $WISBOX_ISOLATION, which overrides the project's wisbox.toml,
which overrides your own file, wisbox/config.toml in $XDG_CONFIG_HOME (~/.config).
A project can't loosen restrictions of your own file: the deny lists are joined, and
strict, isolation, paths and limits.egress-out take the stricter value. wisbox looks
for wisbox.toml in this directory and those above it, and uses it once you have
trusted it: wisbox trust.
With $WISBOX_NO_CONFIG=1 or --no-config, wisbox reads neither file.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.runConfig() },
	}
}

func (a *app) runConfig() error {
	files, err := a.files()
	if err != nil {
		return err
	}
	flags := &sessionFlags{}
	all := pflag.NewFlagSet("config", pflag.ContinueOnError)
	flags.register(all)
	flags.undoByDefault()
	if _, err := a.sessionOptions(flags); err != nil { // an error in a value is reported here too
		return err
	}
	chosen := config.Merge(files)
	rows := []configured{}
	for _, key := range config.Keys() {
		row := configured{key, "default"}
		if flag := all.Lookup(key.Flag); key.Flag == "isolation" && flag.DefValue != "" {
			row.Values, row.Source = []string{flag.DefValue}, "$WISBOX_ISOLATION"
		} else {
			for _, c := range chosen {
				if c.Key == key.Key {
					row.Values, row.Source = c.Values, c.From()
				}
			}
		}
		row.Values = append([]string{}, row.Values...)
		rows = append(rows, row)
	}
	return a.print(map[string]any{"settings": rows}, func(w io.Writer) { printSettings(w, rows) })
}

func printSettings(w io.Writer, rows []configured) {
	tw := newTable(w, "KEY", "VALUE", "SOURCE")
	for _, r := range rows {
		value := "-"
		if len(r.Values) > 0 {
			value = oneLine(strings.Join(r.Values, " "))
		}
		tw.row(r.Key, value, oneLine(r.Source))
	}
	_ = tw.Flush()
}

func (a *app) newTrustCmd() *cobra.Command {
	var yes, remove bool
	cmd := &cobra.Command{
		Use:   "trust [DIR]",
		Short: "Trust the present content of a project's wisbox.toml",
		Long: `Shows the settings of a project's wisbox.toml, asks, and records the hash of its content.
New sessions in the project then have these settings. When the file changes, or the
Containerfile that it names, you must trust it again. The file is the one in DIR
(default: the working directory) or the nearest above it. --yes doesn't ask, and takes
only the file in DIR itself. --remove ends the trust.`,
		Example: `  wisbox trust
  wisbox trust --yes ./project
  wisbox trust --remove ./project`,
		Args: exactArgs("[DIR]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := append(args, ".")[0]
			switch {
			case yes && remove:
				return usageError{errors.New("--yes and --remove exclude each other; give one of them")}
			case remove:
				return a.runDistrust(dir)
			}
			return a.runTrust(cmd.Context(), dir, yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "trust DIR's own file without asking")
	cmd.Flags().BoolVar(&remove, "remove", false, "end the trust in the file")
	return cmd
}

func (a *app) runDistrust(dir string) error {
	path, err := config.Forget(dir)
	switch {
	case err != nil:
		return hostError(err)
	case path == "":
		return tool.Errorf(tool.NotFound, "no %s of %s is trusted", config.Name, dir)
	}
	return a.print(map[string]string{"removed": path}, func(w io.Writer) { fmt.Fprintln(w, streams.Printable(path)) })
}

func (a *app) runTrust(ctx context.Context, dir string, yes bool) error {
	f, err := config.Project(dir)
	if err != nil {
		return asUsage(hostError(err))
	}
	if f == nil {
		return tool.Errorf(tool.NotFound, "%s not found in %s or above it; wisbox init writes one", config.Name, dir)
	}
	if own, err := filepath.Abs(dir); yes && (err != nil || own != f.Dir()) {
		return tool.Errorf(tool.NotFound, "%s not found in %s itself, and --yes trusts no file above it; to trust that one: wisbox trust --yes %s", config.Name, dir, f.Dir())
	}
	rows := make([]configured, 0, len(f.Settings))
	for _, s := range f.Settings {
		rows = append(rows, configured{s, f.Path})
	}
	printSettings(a.err, rows)
	if f.Containerfile != nil {
		fmt.Fprintf(a.err, "\nthe image is built by these steps, which run as root in a container with this machine's network:\n%s\n", shownText(string(f.Containerfile)))
	}
	seen := "" // the files that such steps may copy and run
	if f.CopiesFiles() {
		if seen, err = images.ContextDigest(ctx, projectBuild(f)); err != nil {
			return err
		}
		fmt.Fprintf(a.err, "it may copy files of %s, which are trusted with their present content\n\n", streams.Printable(f.Dir()))
	}
	if !yes && !a.agrees(ctx, "trust "+f.Path+" with these settings?") {
		fmt.Fprintln(a.err, "wisbox: it is not trusted")
		return exitCode(exitError)
	}
	if err := f.Trust(seen); err != nil {
		return hostError(err)
	}
	return a.print(map[string]string{"trusted": f.Path, "sha256": f.Hash()}, func(w io.Writer) { fmt.Fprintln(w, streams.Printable(f.Path)) })
}

// shownText returns a text with each line printable and indented.
func shownText(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + streams.Printable(strings.TrimRight(line, "\r\n")) + "\n")
	}
	return b.String()
}

const initText = `# Settings of sessions that wisbox opens in this project; flags override them.
# wisbox config shows the effective settings. After a change, run wisbox trust.

# image = "docker.io/library/python:3.12-slim"
# containerfile = "Containerfile"   # to build, in place of image
mounts = [".,exclude=.env"]
# allow = ["python"]                # hosts, or what python, node, debian, git, go, rust need
# tools = ["files", "shell"]        # of wisbox mcp

[limits]
memory = "1g"
cpus = 1
`

func (a *app) newInitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Write a wisbox.toml for the project in this directory",
		Long: `Writes a wisbox.toml with comments into this directory, and trusts it. It has
the settings of sessions that wisbox run, session create, eval and mcp open in this
directory and below. Edit it, then trust it again: wisbox trust.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.runInit() },
	}
}

func (a *app) runInit() error {
	dir, err := os.Getwd()
	if err != nil {
		return hostError(err)
	}
	if err := config.CheckInit(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, config.Name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return tool.Errorf(tool.Exists, "%s already exists here; edit it, or remove it first", config.Name)
	}
	if err != nil {
		return hostError(err)
	}
	_, err = f.WriteString(initText)
	if err = errors.Join(err, f.Close()); err != nil {
		return hostError(err)
	}
	if err := (&config.File{Path: path, Raw: []byte(initText)}).Trust(""); err != nil {
		return hostError(err)
	}
	return a.print(map[string]string{"file": path}, func(w io.Writer) { fmt.Fprintln(w, streams.Printable(path)) })
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/sessions"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newSessionCreateCmd() *cobra.Command {
	flags, project, profile := &sessionFlags{}, &devcontainerFlags{}, ""
	cmd := &cobra.Command{
		Use:   "create [NAME] [flags]",
		Short: "Create a session that stays until it is removed",
		Long: `Creates the session's workspace and copies the mounts in. The first program starts the
container. Prints the session's name. The session keeps --profile:
wisbox call and wisbox mcp --session use the tools of that profile.

--devcontainer takes image, build, containerEnv, remoteEnv, mounts, onCreateCommand,
updateContentCommand and postCreateCommand from a project's devcontainer.json, copies the
project to /workspace, and prints the settings that it ignores. The file can't use paths
outside of the project or variables of this machine. wisbox builds an image only with
--build, and pulls one only with --pull missing.`,
		Example: `  wisbox create box --mount ./project:project --memory 2g
  wisbox create agent --profile anthropic
  wisbox create shop --service db=docker.io/library/redis:7
  wisbox create box --devcontainer . --build --allow node
  wisbox create --ttl 2h`,
		Args: exactArgs("[NAME]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runSessionCreate(cmd.Context(), flags, project, profile, args)
		},
	}
	cmd.Flags().StringVar(&project.dir, "devcontainer", "", "`DIR` of a project with .devcontainer/devcontainer.json or .devcontainer.json")
	cmd.Flags().BoolVar(&project.build, "build", false, "build the image that devcontainer.json describes; its steps run as root in a container, with this machine's network")
	flags.register(cmd.Flags())
	flags.undoByDefault()
	flags.registerRecord(cmd.Flags())
	registerProfile(cmd.Flags(), &profile, `"wisbox"`)
	return cmd
}

func (a *app) runSessionCreate(ctx context.Context, flags *sessionFlags, project *devcontainerFlags, profile string, args []string) error {
	if err := checkProfile(profile); err != nil {
		return err
	}
	name := strings.Join(args, "")
	if len(args) == 1 && name == "" {
		return usageError{errors.New("the name is empty; leave it out to get one")}
	}
	file, err := a.takeDevcontainer(flags, project)
	if err != nil {
		return err
	}
	opts, err := a.sessionOptions(flags)
	if err != nil {
		return err
	}
	opts.Kept, opts.Profile, opts.Name = true, profile, name
	if project.dir != "" {
		flags.mountProject(opts, project.dir, file)
	}
	if err := a.buildDevcontainer(ctx, project.dir, file.Build, opts); err != nil {
		return err
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := a.open(ctx, m, flags, opts)
	if err != nil {
		return err
	}
	if !opts.Strict {
		a.sayUnenforced()
	}
	failed := a.ready(ctx, s, file)
	if code := exitCode(0); failed != nil && !errors.As(failed, &code) { // none of its commands could run
		return errors.Join(failed, a.closeSession(ctx, s), m.Remove(context.WithoutCancel(ctx), s.ID()))
	}
	return cmp.Or(a.leave(ctx, s), failed)
}

func (a *app) newSessionListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the sessions",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runSessionList(cmd.Context()) },
	}
}

func (a *app) runSessionList(ctx context.Context) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	entries, err := m.List(ctx)
	if err != nil {
		return err
	}
	rows := sessions.Rows(entries)
	return a.print(map[string]any{"sessions": rows}, func(w io.Writer) { sessions.Print(w, rows) })
}

func (a *app) newSessionInspectCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect SESSION",
		Short: "Show a session's settings, container and limits",
		Args:  exactArgs("SESSION"),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.runSessionInspect(cmd.Context(), args[0]) },
	}
}

func (a *app) runSessionInspect(ctx context.Context, name string) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	states, _, err := statesOf(ctx, m) // before this command has the session open
	if err := errors.Join(err, m.Close()); err != nil {
		return err
	}
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		in, err := s.Inspect(ctx)
		if err != nil {
			return err
		}
		in.State = cmp.Or(states[in.ID], in.State)
		return a.print(in, func(w io.Writer) { a.printInspection(w, in) })
	})
}

func (a *app) printInspection(w io.Writer, in *wisbox.Inspection) {
	fmt.Fprintf(w, "session    %s (%s)\nworkspace  %s\nimage      %s\n", in.ID, in.State, in.Workspace, in.Image)
	if in.Profile != "" {
		fmt.Fprintf(w, "profile    %s\n", in.Profile)
	}
	if in.Paths != "" {
		fmt.Fprintf(w, "paths      %s\n", in.Paths)
	}
	printGiven(w, in)
	if in.Paused != nil {
		fmt.Fprintf(w, "paused     since %s; go on with: wisbox resume %s\n", in.Paused.Local().Format(time.DateTime), in.ID)
	}
	switch {
	case in.Sandbox == nil && in.Paused != nil:
		fmt.Fprintln(w, "container  not looked at, as the session is paused")
	case in.Sandbox == nil:
		fmt.Fprintln(w, "container  not started: it comes with the first program, or with wisbox start")
	default:
		fmt.Fprintf(w, "container  %.12s (%s, %s)\n", in.Sandbox.Object, in.Sandbox.State, in.Sandbox.Runtime)
	}
	if s := in.Snapshots; s != nil {
		steps := "; no steps for undo"
		if in.AutoSnapshot {
			steps = fmt.Sprintf(", %d of them steps for undo", s.Steps)
		}
		fmt.Fprintf(w, "snapshots  %d%s; %s of %s\n", s.Snapshots, steps, units.BytesSize(float64(s.Bytes)), units.BytesSize(float64(s.Limit)))
	}
	switch {
	case in.Egress != nil:
		printEgress(w, in.Egress)
	case far.IsKube(a.far):
		fmt.Fprintln(w, "network    the Pod's; wisbox opens it to nothing")
	default:
		fmt.Fprintln(w, "network    none; wisbox allow opens it to a host")
	}
	printLimits(w, in.Limits, in.Sandbox != nil)
	if in.Sandbox != nil && len(in.Sandbox.Lacks) > 0 {
		fmt.Fprintf(w, "note: the image has no %s\n", strings.Join(in.Sandbox.Lacks, ", "))
	}
	for _, c := range in.Services {
		state := c.State
		if c.State == "exited" {
			state = fmt.Sprintf("exited with code %d", c.ExitCode)
			if c.ExitCode == sandbox.ExitSignalBase+int(syscall.SIGKILL) {
				state += ": it was killed, most likely because it ran out of memory; memory=SIZE of --service gives more"
			}
		}
		fmt.Fprintf(w, "service    %s (%s): %s\n", c.Name, streams.Printable(c.Image), state)
		if c.Gap != "" {
			fmt.Fprintf(w, "note: service %s: %s\n", c.Name, c.Gap)
		}
	}
	for _, gap := range in.Gaps {
		fmt.Fprintf(w, "note: %s\n", streams.Printable(gap))
	}
}

// printGiven writes the settings that the session was created with.
func printGiven(w io.Writer, in *wisbox.Inspection) {
	for _, m := range in.Mounts {
		filters := ""
		for _, g := range m.Include {
			filters += ", include " + g
		}
		for _, g := range m.Exclude {
			filters += ", exclude " + g
		}
		fmt.Fprintf(w, "mount      %s\n", oneLine(m.HostPath+" copied to "+path.Join(sandbox.WorkspaceDir, m.MountPath)+filters))
	}
	for _, line := range []struct{ name, text string }{
		{"env", strings.Join(in.Env, ", ")}, {"secrets", strings.Join(in.Secrets, ", ")}, {"ends", lifeOf(in)},
	} {
		if line.text != "" {
			fmt.Fprintf(w, "%-10s %s\n", line.name, oneLine(line.text))
		}
	}
}

// lifeOf describes when a session ends by itself.
func lifeOf(in *wisbox.Inspection) string {
	var when []string
	if in.TTL > 0 {
		when = append(when, in.Created.Add(in.TTL).Local().Format(time.DateTime)+" (--ttl "+shortTime(in.TTL)+")")
	}
	if in.Idle > 0 {
		when = append(when, shortTime(in.Idle)+" after its last use (--idle)")
	}
	return strings.Join(when, ", or ")
}

// shortTime formats a duration without the parts that are zero.
func shortTime(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// printLimits writes a table of the limits. Limits of programs aren't enforced before there is a
// container.
func printLimits(w io.Writer, limits []sandbox.LimitState, started bool) {
	tw := newTable(w, "LIMIT", "ASKED", "ENFORCED", "BY")
	for _, l := range limits {
		holds := map[bool]string{true: "yes", false: "no"}[l.Enforced]
		if !started && !l.Enforced {
			holds, l.By = "not started", "-"
		}
		tw.row(l.Name, l.Asked, holds, l.By)
	}
	_ = tw.Flush()
}

func (a *app) newSessionRmCmd() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm SESSION…",
		Short: "Remove sessions: their containers and their files",
		Long: `Removes sessions with their programs, files, snapshots and logs, and prints the
names of the removed ones. If one can't be removed, wisbox reports that and continues.

On a terminal, it asks before it removes changes that went nowhere: files that were
neither mounted nor brought out by apply, branch, diff --patch, cp, or session save.`,
		Example: `  wisbox rm box twin`,
		Args:    atLeast("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachSession(cmd.Context(), "removed", args, func(m *wisbox.Manager, name string) error {
				if !force && !a.mayLose(cmd.Context(), m, name, "remove it") {
					return errKept
				}
				err := m.Remove(cmd.Context(), name)
				if force && tool.KindOf(err) == tool.NotFound {
					return errNothingDone
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "don't ask, and ignore sessions that don't exist (running programs are ended even without this)")
	return cmd
}

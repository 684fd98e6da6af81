package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
)

func (a *app) newTemplateCmd() *cobra.Command {
	return group("template", "Create, list and remove templates, which new sessions can start from",
		&cobra.Command{
			Use: "create SESSION [NAME]", Short: "Create a template of a session's files", Args: exactArgs("SESSION", "[NAME]"),
			Long: `Keeps the session's files as they are now, its image and its variables, and prints the
template's ID. It stays when the session is removed, and shares disk space with the session's
snapshots. If several templates have the same NAME, it refers to the newest.`,
			Example: `  wisbox template create box python-ready
  wisbox create --template python-ready`,
			RunE: func(cmd *cobra.Command, args []string) error {
				name := ""
				if len(args) > 1 {
					name = args[1]
				}
				return a.runTemplateCreate(cmd.Context(), args[0], name)
			},
		},
		&cobra.Command{
			Use: "list", Aliases: []string{"ls"}, Short: "List the templates", Args: noArgs,
			Long: `Lists the templates, the newest first. OWNER is the owner of a key of wisbox serve whose
client made it; DISK is the most space that it can take, because others may share it.`,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.runTemplateList(cmd.Context()) },
		},
		&cobra.Command{
			Use: "rm TEMPLATE…", Short: "Remove templates; sessions created from them stay", Args: atLeast("TEMPLATE"),
			RunE: func(cmd *cobra.Command, args []string) error { return a.runTemplateRm(cmd.Context(), args) },
		})
}

func (a *app) runTemplateCreate(ctx context.Context, session, name string) error {
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		made, err := s.CreateTemplate(ctx, &wisbox.TemplateOptions{Name: name})
		if err != nil {
			return asUsage(err)
		}
		a.sayNotKept(made.Skipped, made.Unkept)
		return a.print(made, func(w io.Writer) { fmt.Fprintln(w, made.ID) })
	})
}

func (a *app) runTemplateList(ctx context.Context) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	all, err := m.Templates()
	if all == nil {
		all = []wisbox.Template{}
	}
	return errors.Join(err, a.print(map[string]any{"templates": all}, func(w io.Writer) { printTemplates(w, all) }))
}

func printTemplates(w io.Writer, all []wisbox.Template) {
	if len(all) == 0 {
		fmt.Fprintln(w, "there are no templates; make one with: wisbox template create SESSION NAME")
		return
	}
	tw := newTable(w, "TEMPLATE", "NAME", "CREATED", "FILES", "SIZE", "DISK", "OWNER")
	for _, t := range all {
		tw.row(t.ID, streams.Printable(t.Name), t.Created.Local().Format(time.DateTime), t.Files,
			units.HumanSize(float64(t.Bytes)), units.HumanSize(float64(t.Disk)), streams.Printable(t.Owner))
	}
	_ = tw.Flush()
}

func (a *app) runTemplateRm(ctx context.Context, refs []string) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	var removed []string
	for _, ref := range refs {
		var t wisbox.Template
		if t, err = m.FindTemplate(ref, ""); err == nil || t.ID != "" { // an unreadable template can be removed
			err = m.RemoveTemplate(ctx, t.ID)
		}
		if err != nil {
			break
		}
		removed = append(removed, t.ID)
	}
	printed := a.print(map[string]any{"removed": removed}, func(w io.Writer) {
		for _, id := range removed {
			fmt.Fprintln(w, id)
		}
	})
	return errors.Join(asUsage(err), printed)
}

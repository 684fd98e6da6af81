package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/evaltool"
)

func (a *app) newContextCmd() *cobra.Command {
	cmd := group("context", "Create, list and remove contexts: a session's named interpreters",
		a.newContextCreateCmd(), a.newContextLsCmd(),
		a.newContextChangeCmd("restart SESSION NAME", "Restart a context's interpreter; its names are lost", (*wisbox.Session).RestartContext),
		a.newContextChangeCmd("rm SESSION NAME", "Remove a context", (*wisbox.Session).RemoveContext))
	cmd.Long = `A context is a kept interpreter (Python, bash or Node.js) with its own names, directory
and variables. It ends with the process that holds the session, which stays for
ten minutes after its last use. A session has a default context, and up to seven
with names.`
	cmd.Example = `  wisbox lab context create box shell --language bash --dir src
  wisbox eval python --session box --context plots -f plots.py
  wisbox repl --context plots box`
	return cmd
}

type contextOptions struct {
	language string
	dir      string
	env      envFlags
}

func (a *app) newContextCreateCmd() *cobra.Command {
	opts := &contextOptions{}
	cmd := &cobra.Command{
		Use:   "create [flags] SESSION NAME",
		Short: "Create a context; its interpreter starts with the first evaluation",
		Args:  exactArgs("SESSION", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pairs, err := opts.env.list()
			if err != nil {
				return err
			}
			c := evaltool.Context{Name: args[1], Language: opts.language, Dir: opts.dir, Env: map[string]string{}}
			for _, pair := range pairs {
				name, value, _ := strings.Cut(pair, "=")
				c.Env[name] = value
			}
			return a.withSession(cmd.Context(), args[0], func(s *wisbox.Session) error { return s.CreateContext(cmd.Context(), c) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.language, "language", evaltool.LanguagePython, "`NAME`: python, bash, or javascript if the image has Node.js")
	flags.StringVar(&opts.dir, "dir", "", "`DIR` to start in, relative to the workspace or absolute (default: the workspace)")
	opts.env.register(flags, "its code")
	return cmd
}

func (a *app) newContextLsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "ls SESSION",
		Short: "List the contexts with names",
		Args:  exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd.Context(), args[0], func(s *wisbox.Session) error { return a.listContexts(cmd.Context(), s) })
		},
	}
}

func (a *app) listContexts(ctx context.Context, s *wisbox.Session) error {
	all, err := s.Contexts(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(all)
	}
	tw := newTable(a.out, "NAME", "LANGUAGE", "DIR")
	for _, c := range all {
		tw.row(c.Name, c.Language, streams.Printable(c.Dir))
	}
	return tw.Flush()
}

func (a *app) newContextChangeCmd(use, short string, change func(*wisbox.Session, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  exactArgs("SESSION", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd.Context(), args[0], func(s *wisbox.Session) error { return change(s, cmd.Context(), args[1]) })
		},
	}
}

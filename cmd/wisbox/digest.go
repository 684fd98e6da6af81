package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/llm"
	"github.com/wisbox/wisbox/tool"
)

// digestOptions choose a digest.
type digestOptions struct {
	session string
	global  bool
	tag     string
	level   string
	file    string
	model   modelFlags
}

func (a *app) newDigestCmd() *cobra.Command {
	return group("digest", "Show or replace the digest, a summary of the workspace for a model",
		a.newDigestShowCmd(), a.newDigestSetCmd(), a.newDigestClearCmd(), a.newDigestOptimizeCmd())
}

func (a *app) newDigestShowCmd() *cobra.Command {
	opts := &digestOptions{}
	cmd := &cobra.Command{
		Use:   "show --session NAME|--global",
		Short: "Show the digest that a model gets",
		Long: `Shows a session's digest: its own if one was set, else that of all sessions, else one
made from its files. --global shows that of all sessions; with --tag TAG, that of the
sessions created with this tag.`,
		Example: `  wisbox lab digest show --session box
  wisbox lab digest show --session box --level summary
  wisbox lab digest show --global`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDigestShow(cmd.Context(), opts) },
	}
	opts.registerPlace(cmd)
	cmd.Flags().StringVar(&opts.level, "level", string(digest.Full), "how much to show, `summary|full`")
	return cmd
}

func (a *app) newDigestSetCmd() *cobra.Command {
	opts := &digestOptions{}
	cmd := &cobra.Command{
		Use:   "set --session NAME|--global TEXT|--file FILE",
		Short: "Replace the digest of a session or of all sessions",
		Long: `Replaces a session's digest with your own Markdown, or with --global that of all
sessions that have none of their own, and prints it.`,
		Example: `  wisbox lab digest set --session box -f digest.md
  wisbox lab digest set --global 'Run the tests with: make check'
  wisbox lab digest set --global --tag review -f review.md
  wisbox create box --tag review --mount .`,
		Args: func(cmd *cobra.Command, args []string) error {
			if opts.file != "" {
				return noArgs(cmd, args)
			}
			return exactArgs("TEXT")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.runDigestSet(cmd.Context(), opts, args) },
	}
	opts.registerPlace(cmd)
	cmd.Flags().StringVarP(&opts.file, "file", "f", "", "read the text from this `FILE`, - is stdin")
	return cmd
}

func (a *app) newDigestClearCmd() *cobra.Command {
	opts := &digestOptions{}
	cmd := &cobra.Command{
		Use:   "clear --session NAME|--global",
		Short: "Delete a digest that was set",
		Long: `Deletes a session's own digest and prints the one that applies then; --global deletes
that of all sessions.`,
		Example: `  wisbox lab digest clear --session box
  wisbox lab digest clear --global`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDigestClear(cmd.Context(), opts) },
	}
	opts.registerPlace(cmd)
	return cmd
}

func (a *app) newDigestOptimizeCmd() *cobra.Command {
	opts := &digestOptions{}
	cmd := &cobra.Command{
		Use:   "optimize --session NAME [--global] --model MODEL [--base-url URL]",
		Short: "Ask a model to improve the digest of a session's workspace",
		Long: `Shows a model the digest, the names of files and the beginnings of README, manifests
and the like, and keeps its answer as the session's digest, or with --global as
the digest of all sessions that have none of their own. --json prints the model's whole
response too. The key is read from the environment.`,
		Example: `  wisbox lab digest optimize --session box --model gpt-5-mini
  wisbox lab digest optimize --session box --base-url http://127.0.0.1:8000/v1 --model local`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDigestOptimize(cmd.Context(), opts) },
	}
	cmd.Flags().StringVar(&opts.session, "session", "", "`NAME` of a kept session")
	cmd.Flags().BoolVar(&opts.global, "global", false, "keep it for all sessions that have none of their own")
	opts.model.register(cmd.Flags())
	return cmd
}

func (o *digestOptions) registerPlace(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.session, "session", "", "`NAME` of a kept session")
	cmd.Flags().BoolVar(&o.global, "global", false, "use the digest of all sessions that have none of their own")
	cmd.Flags().StringVar(&o.tag, "tag", digest.DefaultTag, "with --global: of the sessions that were created with this `TAG`")
}

// check requires flags that choose exactly one digest.
func (o *digestOptions) check() error {
	if (o.session == "") == !o.global {
		return usageError{errors.New("give --session NAME or --global; see: wisbox lab digest --help")}
	}
	if o.session != "" && o.tag != digest.DefaultTag {
		return usageError{errors.New("--tag is for --global; a session has the tag that it was created with")}
	}
	return asUsage(digest.CheckTag(o.tag))
}

func (a *app) runDigestShow(ctx context.Context, opts *digestOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	if opts.session != "" {
		return a.runTool(ctx, opts.session, "workspace_digest", map[string]any{"level": opts.level})
	}
	return a.withAllDigest(ctx, opts.tag, func(d *digest.Digester) error {
		answer, err := d.Answer(ctx, digest.Level(opts.level))
		if err == nil && answer.Source == digest.FromPlaceholder {
			err = tool.Errorf(tool.NotFound, "no digest is set for all sessions with the tag %s; set one with: wisbox lab digest set --global --tag %[1]s TEXT", opts.tag)
		}
		if err != nil {
			return err
		}
		return a.print(answer, func(w io.Writer) { fmt.Fprintln(w, streams.Printable(answer.Digest)) })
	})
}

// withAllDigest calls do with the digest of all sessions with a tag.
func (a *app) withAllDigest(ctx context.Context, tag string, do func(*digest.Digester) error) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	return asUsage(do(m.DigestTagged(tag)))
}

func (a *app) runDigestSet(ctx context.Context, opts *digestOptions, args []string) error {
	if err := opts.check(); err != nil {
		return err
	}
	text := ""
	if len(args) == 1 {
		text = args[0]
	} else {
		var err error
		if text, err = a.readText(ctx, opts.file); err != nil {
			return err
		}
	}
	if text == "" {
		return usageError{errors.New("the digest is empty; to delete one see: wisbox lab digest clear --help")}
	}
	if opts.session != "" {
		return a.runTool(ctx, opts.session, "workspace_digest", map[string]any{"set": text})
	}
	return a.withAllDigest(ctx, opts.tag, func(d *digest.Digester) error {
		if err := d.Set(ctx, digest.Text{Full: text}, digest.Global); err != nil {
			return err
		}
		return a.runDigestShow(ctx, &digestOptions{global: true, tag: opts.tag, level: string(digest.Full)})
	})
}

func (a *app) runDigestClear(ctx context.Context, opts *digestOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	if opts.session != "" {
		return a.runTool(ctx, opts.session, "workspace_digest", map[string]any{"set": ""})
	}
	return a.withAllDigest(ctx, opts.tag, func(d *digest.Digester) error {
		if err := d.Clear(ctx, digest.Global); err != nil {
			return err
		}
		return a.print(map[string]digest.Scope{"cleared": digest.Global}, func(io.Writer) {})
	})
}

func (a *app) runDigestOptimize(ctx context.Context, opts *digestOptions) error {
	for _, need := range []struct{ flag, value string }{{"--session", opts.session}, {"--model", opts.model.name()}} {
		if need.value == "" {
			return usageError{fmt.Errorf("%s is missing; see: wisbox lab digest optimize --help", need.flag)}
		}
	}
	model, err := opts.model.endpoint(opts.model.name())
	if err != nil {
		return err
	}
	scope := digest.Session
	if opts.global {
		scope = digest.Global
	}
	return a.withSession(ctx, opts.session, func(s *wisbox.Session) error {
		done, err := optimize(ctx, s, model, scope)
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) { fmt.Fprint(w, streams.Printable(done.Digest.Full)) })
	})
}

// optimize lets a model write the digest of a session's workspace.
func optimize(ctx context.Context, s *wisbox.Session, model llm.Model, scope digest.Scope) (digest.Optimized, error) {
	d := s.Digest()
	return d.Optimize(ctx, d.Written(func(ctx context.Context, prompt string) (string, error) {
		return model.Complete(ctx, []llm.Message{{Role: llm.User, Content: prompt}})
	}), scope)
}

// digestOptimizer returns the tool for an MCP server that has a model for it.
func digestOptimizer(s *wisbox.Session, model llm.Model) tool.Tool {
	return tool.New(tool.Spec{
		Name: "digest_optimize", Title: "Have a model write a better summary",
		Description: "Have the model that the server was given write a better summary of the workspace, and keep it as this session's digest. " +
			"The model sees the digest, the names of files and the beginnings of README, manifests and the like.",
	}, func(ctx context.Context, _ struct{}) (digest.Optimized, error) {
		return optimize(ctx, s, model, digest.Session)
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newBranchCmd() *cobra.Command {
	opts := &wisbox.BranchOptions{}
	cmd := &cobra.Command{
		Use:   "branch SESSION [PATH]",
		Short: "Make a git branch of a session's changes, in the repository that was mounted",
		Long: `Makes a commit of what the session has changed since it was created, on top of HEAD,
and a branch for it in the repository of the host that its mounts were copied from;
a linked worktree is fine too. The working tree, the index and HEAD stay as they are.
With PATH, a file or folder of the workspace, only what lies there.

New files that the repository ignores are left out. Where the commit has other content
than what was mounted, that is a conflict: every one is listed with what to do, and
nothing is made. No hook, filter or setting of the repository runs, and nothing is
checked out. Read the branch before you check it out.`,
		Example: `  wisbox branch box
  wisbox branch box src --name fix-parser -m 'Fix the parser'
  git log -p HEAD..wisbox/box`,
		Args: exactArgs("SESSION", "[PATH]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				opts.Path = args[1]
			}
			return a.runBranch(cmd.Context(), args[0], opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Name, "name", "", "`NAME` of the branch (default wisbox/SESSION)")
	flags.StringVar(&opts.From, "from", "", "`COMMIT` that the branch begins at (default HEAD)")
	flags.StringVarP(&opts.Message, "message", "m", "", "`TEXT` of the commit")
	flags.BoolVar(&opts.Ignored, "ignored", false, "take new files that the repository ignores too")
	flags.BoolVar(&opts.All, "all", false, "take what programs write by themselves too")
	flags.BoolVarP(&opts.DryRun, "dry-run", "n", false, "show what the branch would get, and make none")
	return cmd
}

func (a *app) runBranch(ctx context.Context, session string, opts *wisbox.BranchOptions) error {
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		done, err := s.Branch(ctx, opts)
		if tool.KindOf(err) == tool.Conflict && done != nil && !a.json {
			a.sayConflicts(done.Conflicts, "in the commit")
			return exitCode(exitError)
		}
		if err != nil && (done == nil || !a.json) {
			return asUsage(err)
		}
		if !a.json {
			a.sayLeftOutOf(done.Git, done.Byproducts)
			if done.Ignored > 0 {
				fmt.Fprintf(a.err, "wisbox: left out %s that the repository ignores (--ignored takes them)\n", quantity(done.Ignored, "new file", "new files"))
			}
		}
		return errors.Join(a.print(done, func(w io.Writer) { a.writeBranched(w, done) }), err)
	})
}

func (a *app) writeBranched(w io.Writer, done *wisbox.Branched) {
	switch {
	case done.DryRun:
		a.writeChanges(w, &done.Applied, "would be on branch "+done.Branch)
	case done.Commit == "":
		a.writeChanges(w, &done.Applied, "to commit; no branch was made")
	default:
		a.writeChanges(w, &done.Applied, fmt.Sprintf("on branch %s, commit %.12s; look: git log -p %.12s..%s", done.Branch, done.Commit, done.Base, done.Branch))
	}
}

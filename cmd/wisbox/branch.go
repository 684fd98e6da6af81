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
		Short: "Commit a session's changes to a new git branch of the mounted repository",
		Long: `Commits the session's changes since its creation on top of HEAD, and creates a branch
for the commit in the host repository that its mounts were copied from; a linked
worktree works too. The working tree, the index and HEAD stay as they are.
PATH, a file or folder of the workspace, limits it to the changes there.

New files that the repository ignores are skipped. A file whose content in the commit
differs from what was mounted is a conflict: wisbox lists each with what to do, and makes
no branch. No hook, filter or setting of the repository runs, and nothing is
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
	flags.StringVar(&opts.From, "from", "", "`COMMIT` to start the branch at (default HEAD)")
	flags.StringVarP(&opts.Message, "message", "m", "", "`TEXT` of the commit")
	flags.BoolVar(&opts.Ignored, "ignored", false, "include new files that the repository ignores")
	flags.BoolVar(&opts.All, "all", false, "include by-products of programs, such as __pycache__")
	flags.BoolVarP(&opts.DryRun, "dry-run", "n", false, "show what the branch would contain, and create none")
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
			a.sayLeftOutOf(done.Git, done.Byproducts, 0)
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

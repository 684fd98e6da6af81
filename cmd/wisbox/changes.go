package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

type diffOptions struct {
	wisbox.DiffOptions
	patch, stat, names bool
}

func (a *app) newDiffCmd() *cobra.Command {
	opts := &diffOptions{}
	cmd := &cobra.Command{
		Use:   "diff SESSION [SNAPSHOT [SNAPSHOT]] [--] [PATH]",
		Short: "Show a session's changes, as a list or as a patch",
		Long: `Compares the workspace with the session's state at its creation: its mounts, or
nothing. With one SNAPSHOT it compares the workspace with that; with two, the first
with the second. PATH, a file or folder of the workspace, limits it to the changes
there; write -- before it if there is also a SNAPSHOT of that name.

Lists the files that were added (A), changed (M), removed (D) and renamed (R).
--patch prints a patch for git apply, with binary files, modes, links and renames.
It skips the directories of version control systems (.git, .hg …) and, without --all,
files that the mounted .gitignore ignores and by-products of programs such as
__pycache__; stderr reports how many files it skipped.`,
		Example: `  wisbox diff box
  wisbox diff box src
  wisbox diff box --patch | git apply --3way
  wisbox diff box before-upgrade --stat -- docs`,
		Args: exactArgs("SESSION", "[SNAPSHOT]", "[SNAPSHOT]", "[PATH]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runDiff(cmd.Context(), opts, args, cmd.ArgsLenAtDash())
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&opts.patch, "patch", "p", false, "write a patch that git apply takes")
	flags.BoolVar(&opts.stat, "stat", false, "count the lines that were added and removed")
	flags.BoolVar(&opts.names, "name-only", false, "print only the paths, one per line")
	flags.BoolVar(&opts.All, "all", false, "include ignored files and by-products of programs, such as __pycache__")
	return cmd
}

// runDiff takes its arguments as git diff does: dash is the number of those before a "--", or -1.
func (a *app) runDiff(ctx context.Context, opts *diffOptions, args []string, dash int) error {
	if opts.patch && opts.stat || opts.patch && opts.names || opts.stat && opts.names {
		return usageError{errors.New("--patch, --stat and --name-only exclude each other; give one of them")}
	}
	if opts.patch && a.json {
		return usageError{errors.New("--patch is text; give it without --json")}
	}
	if dash == 0 || dash > 0 && len(args) != dash+1 || dash < 0 && len(args) > maxDiffArgs {
		return usageError{errors.New("after SESSION come at most two snapshots, then one path; write diff SESSION [SNAPSHOT [SNAPSHOT]] [--] [PATH]")}
	}
	opts.Lines = opts.stat
	words := args[1:]
	asPath := dash > 0 || len(words) > 2 // the last word
	return a.withSession(ctx, args[0], func(s *wisbox.Session) error {
		opts.choose(words, asPath)
		err := a.showDiff(ctx, s, opts)
		if known := tool.AsError(err); err == nil || asPath || len(words) == 0 || known.Field != [...]string{"", "from", "to"}[len(words)] ||
			known.Kind != tool.NotFound && known.Kind != tool.Invalid {
			return asUsage(err)
		}
		opts.choose(words, true)
		rel, err := vfs.Any.Parse(opts.Path)
		if err != nil {
			return asUsage(err)
		}
		if _, missing := fs.Stat(s.Files(), path.Join(".", rel)); missing != nil {
			diff, err := s.Diff(ctx, &opts.DiffOptions)
			if err != nil || len(diff.Changes) == 0 {
				return asUsage(errors.Join(err, tool.Errorf(tool.NotFound, "%q is neither a snapshot nor a path of the workspace with changes; wisbox snapshot list shows the snapshots", opts.Path)))
			}
		}
		return asUsage(a.showDiff(ctx, s, opts))
	})
}

const maxDiffArgs = 4 // SESSION, two snapshots and a path

// choose takes the words after SESSION: snapshots and, if asPath is set, a path at the end.
func (o *diffOptions) choose(words []string, asPath bool) {
	o.From, o.To, o.Path = "", "", ""
	if asPath {
		o.Path, words = words[len(words)-1], words[:len(words)-1]
	}
	for i, to := range []*string{&o.From, &o.To} {
		if i < len(words) {
			*to = words[i]
		}
	}
}

func (a *app) showDiff(ctx context.Context, s *wisbox.Session, opts *diffOptions) error {
	if opts.patch {
		return a.writePatch(ctx, s, &opts.DiffOptions)
	}
	diff, err := s.Diff(ctx, &opts.DiffOptions)
	if err != nil {
		return err
	}
	if !a.json {
		a.sayLeftOutOf(diff.Git, diff.Byproducts, diff.Ignored)
	}
	return a.print(diff, func(w io.Writer) { opts.write(w, diff) })
}

// writePatch writes the bytes as they are. It refuses a terminal, because programs chose them.
func (a *app) writePatch(ctx context.Context, s *wisbox.Session, opts *wisbox.DiffOptions) error {
	w, flush := a.out, func() error { return nil }
	if isTerminal(a.out) {
		shown := &shownLines{w: a.out}
		w, flush = shown, shown.flush
	}
	diff, err := s.Patch(ctx, w, opts)
	if err = errors.Join(err, flush()); err != nil {
		return err
	}
	a.sayLeftOutOf(diff.Git, diff.Byproducts, diff.Ignored)
	return nil
}

// shownLines writes whole lines, made printable for a terminal.
type shownLines struct {
	w    io.Writer
	line []byte
}

const longestLine = 64 << 10 // bytes that wait for the end of their line

// Write implements io.Writer.
func (s *shownLines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		s.line = append(s.line, line...)
		if strings.HasSuffix(line, "\n") || len(s.line) > longestLine {
			if err := s.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

func (s *shownLines) flush() error {
	_, err := io.WriteString(s.w, streams.Printable(string(s.line)))
	s.line = s.line[:0]
	return err
}

// sayLeftOutOf reports on stderr what a list of changes leaves out.
func (a *app) sayLeftOutOf(git, byproducts, ignored int64) {
	if git > 0 {
		fmt.Fprintf(a.err, "wisbox: left out %s of version control, in .git or the like\n", quantity(git, "file", "files"))
	}
	var left []string
	if ignored > 0 {
		left = append(left, quantity(ignored, "file", "files")+" that the mounted .gitignore ignores")
	}
	if byproducts > 0 {
		left = append(left, quantity(byproducts, "file", "files")+" that programs write by themselves")
	}
	if len(left) > 0 {
		fmt.Fprintf(a.err, "wisbox: left out %s; --all includes them\n", strings.Join(left, ", and "))
	}
}

var statusLetters = map[string]string{"added": "A", "changed": "M", "removed": "D", "renamed": "R"}

func (o *diffOptions) write(w io.Writer, diff *wisbox.Diff) {
	out := bufio.NewWriter(w)
	defer out.Flush()
	for _, c := range diff.Changes {
		switch {
		case o.names:
			fmt.Fprintln(out, shownPath(c.Path))
		case o.stat:
			writeStat(out, c)
		default:
			writeChange(out, c)
		}
	}
	if diff.More > 0 {
		fmt.Fprintf(out, "and %s; --patch has them all\n", quantity(diff.More, "more", "more"))
	}
	if o.stat {
		fmt.Fprintf(out, "%s, %s added, %s removed\n", quantity(int64(len(diff.Changes))+diff.More, "file", "files"),
			quantity(diff.AddedLines, "line", "lines"), quantity(diff.RemovedLines, "line", "lines"))
	}
}

func writeStat(w io.Writer, c wisbox.FileChange) {
	count := fmt.Sprintf("+%d\t-%d", c.AddedLines, c.RemovedLines)
	if c.Binary {
		count = "binary\t"
	}
	fmt.Fprintf(w, "%s\t%s\n", count, namesOf(c))
}

func writeChange(w io.Writer, c wisbox.FileChange) {
	mode := ""
	if c.OldMode != c.Mode && c.OldMode != "" && c.Mode != "" {
		mode = fmt.Sprintf(" (mode %s to %s)", c.OldMode, c.Mode)
	}
	fmt.Fprintf(w, "%s  %s%s\n", statusLetters[string(c.Status)], namesOf(c), mode)
}

func namesOf(c wisbox.FileChange) string {
	if c.From == "" {
		return shownPath(c.Path)
	}
	return shownPath(c.From) + " -> " + shownPath(c.Path)
}

// shownPath returns a path on one line, in quotes if it isn't plain text.
func shownPath(path string) string {
	if quoted := strconv.Quote(path); quoted != `"`+path+`"` || streams.Printable(path) != path {
		return streams.Printable(quoted)
	}
	return path
}

func (a *app) newApplyCmd() *cobra.Command {
	opts := &wisbox.ApplyOptions{}
	cmd := &cobra.Command{
		Use:   "apply SESSION [PATH]",
		Short: "Write a session's changes to the mounted folder",
		Long: `Writes the session's changes since its creation to the host folders that its mounts
were copied from: all of them, or none. PATH, a file or folder of the workspace,
limits it to the changes there.

If a host file has changed since it was mounted, that is a conflict: wisbox lists each
with what to do, and writes nothing. --3way merges text files that both sides changed,
line by line, with the mounted file as the common ancestor. If both changed the same
lines, the file gets both versions between markers (<<<<<<< host), and the exit code
is 1. Other conflicts are still refused. wisbox never writes .git directories, paths
that the mount's filters leave out, or links that could lead out of the folder. It
runs no host program. Review the changes before you run them.`,
		Example: `  wisbox apply box --dry-run
  wisbox apply box src
  wisbox apply box --3way --dry-run`,
		Args: exactArgs("SESSION", "[PATH]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				opts.Path = args[1]
			}
			return a.runApply(cmd.Context(), args[0], opts)
		},
	}
	cmd.Flags().BoolVarP(&opts.DryRun, "dry-run", "n", false, "show what would be written, and write nothing")
	cmd.Flags().BoolVar(&opts.ThreeWay, "3way", false, "merge text files that also changed on the host")
	cmd.Flags().BoolVar(&opts.All, "all", false, "include ignored files and by-products of programs, such as __pycache__")
	return cmd
}

func (a *app) runApply(ctx context.Context, session string, opts *wisbox.ApplyOptions) error {
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		done, err := s.Apply(ctx, opts)
		if tool.KindOf(err) == tool.Conflict && done != nil && !a.json {
			a.sayConflicts(done.Conflicts, "of the host")
			return exitCode(exitError)
		}
		if err != nil && (done == nil || !a.json) {
			return asUsage(err)
		}
		if !a.json {
			a.sayLeftOutOf(done.Git, done.Byproducts, done.Ignored)
		}
		if err := errors.Join(a.print(done, func(w io.Writer) { a.writeApplied(w, done) }), err); err != nil || done.Marked == 0 {
			return err
		}
		if !a.json {
			fmt.Fprintf(a.err, "wisbox: %s; edit them before you go on\n", quantity(done.Marked, "file "+marked(done)+" conflict markers", "files "+marked(done)+" conflict markers"))
		}
		return exitCode(exitError)
	})
}

// sayConflicts lists the paths whose content in some place differs from the mounted content.
func (a *app) sayConflicts(all []wisbox.Obstacle, where string) {
	for _, c := range all {
		fmt.Fprintf(a.err, "conflict  %s: %s\n", shownPath(c.Path), c.Reason)
	}
	fmt.Fprintf(a.err, "wisbox: conflict: %s; nothing was written\n",
		quantity(int64(len(all)), "file "+where+" differs from the mounted content", "files "+where+" differ from the mounted content"))
}

func marked(done *wisbox.Applied) string {
	if done.DryRun {
		return "would get"
	}
	return "got"
}

func (a *app) writeApplied(w io.Writer, done *wisbox.Applied) {
	for _, m := range done.Merged {
		how := "cleanly"
		if m.Conflicts > 0 {
			how = "with " + quantity(int64(m.Conflicts), "conflict", "conflicts")
		}
		fmt.Fprintf(a.err, "merged  %s: %s\n", shownPath(m.Path), how)
	}
	verb := "written"
	if done.DryRun {
		verb = "would be written"
	}
	a.writeChanges(w, done, verb)
}

// writeChanges writes a list of changes, and below it their number and what happened to them.
func (a *app) writeChanges(w io.Writer, done *wisbox.Applied, verb string) {
	out := bufio.NewWriter(w)
	defer out.Flush()
	for _, c := range done.LeftOut {
		fmt.Fprintf(a.err, "left out  %s: %s\n", shownPath(c.Path), c.Reason)
	}
	for _, c := range done.Changes {
		writeChange(out, c)
	}
	fmt.Fprintf(out, "%s %s\n", quantity(int64(len(done.Changes))+done.More, "change", "changes"), verb)
}

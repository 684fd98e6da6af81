package changes

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/plumbing"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// BranchOptions are the options of [Set.Branch].
type BranchOptions struct {
	Name    string // of the branch
	From    string // the parent commit; default HEAD
	Message string // of the commit
	Ignored bool   // also take new files that the repository ignores
	DryRun  bool
}

// Branched reports the result of [Set.Branch], or of a dry run.
type Branched struct {
	Branch string `json:"branch"`
	Base   string `json:"base"`             // the parent commit
	Commit string `json:"commit,omitempty"` // absent if nothing was written
	// Ignored counts the new files that were left out because the repository ignores them.
	Ignored int64 `json:"ignored_left_out,omitempty"`
	Applied
}

// Branch creates a commit of the changes in the repository that the mounts were copied from, and a
// branch that refers to it. It leaves the index and the working tree unchanged, and runs nothing
// that the repository's configuration or the session's files could name. If a path of the base has
// neither its content at the time of the mount nor the session's, that is a conflict, and Branch
// creates nothing.
func (s *Set) Branch(b *budget.Budget, homes []*hostmount.Home, opts BranchOptions) (*Branched, error) {
	r := &brancher{
		applier: applier{set: s, budget: b, ctx: b.Context(), homes: homes, freed: map[spot]bool{}, bare: map[spot]bool{}},
		opts:    opts, repos: map[*hostmount.Home]*plumbing.Repo{}, base: map[string]plumbing.Entry{}, puts: map[string]pair{},
	}
	defer r.close()
	r.out = &Applied{DryRun: opts.DryRun, Changes: []Change{}, Hidden: s.diff.Hidden}
	done := &Branched{Branch: opts.Name}
	err := r.branch(b.Context(), done)
	if err != nil {
		return nil, tool.AsError(err)
	}
	done.Applied, done.Ignored = *r.out, r.ignored
	return done, nil
}

type brancher struct {
	applier
	opts    BranchOptions
	repos   map[*hostmount.Home]*plumbing.Repo
	repo    *plumbing.Repo            // the repository of the changes
	base    map[string]plumbing.Entry // the base's entries at and above the changes, by the path from the top
	puts    map[string]pair
	ignored int64
}

func (r *brancher) close() {
	for _, repo := range r.repos {
		repo.Close()
	}
}

func (r *brancher) branch(ctx context.Context, done *Branched) (err error) {
	for _, p := range r.set.pairs {
		if err := r.assign(ctx, p); err != nil {
			return err
		}
	}
	if r.repo == nil {
		return nil
	}
	if err := r.repo.CheckBranch(ctx, r.opts.Name); err != nil {
		return err
	}
	if done.Base, err = r.repo.Resolve(ctx, cmp.Or(r.opts.From, "HEAD")); err != nil {
		return err
	}
	if err := r.compareBase(ctx, done.Base); err != nil {
		return err
	}
	if r.opts.DryRun || r.conflicts > 0 || len(r.todo) == 0 {
		return nil
	}
	commit, err := r.repo.Commit(ctx, done.Base, r.opts.Message, r.write)
	if err == nil {
		err = r.repo.CreateBranch(ctx, r.opts.Name, commit)
	}
	done.Commit = commit
	return err
}

// assign finds the repository of a change, and the path in it.
func (r *brancher) assign(ctx context.Context, p pair) error {
	at, why := r.place(p)
	if why != "" {
		r.note(&r.out.LeftOut, p.Path, why)
		return nil
	}
	repo, err := r.repoOf(ctx, at.home)
	if err != nil {
		return err
	}
	if r.repo == nil {
		r.repo = repo
	}
	if !r.repo.Same(repo) {
		return tool.Errorf(tool.Ambiguous, "the changes lie in several repositories of the host; name a folder of the workspace that is in one of them").In("path")
	}
	r.puts[repo.Prefix+at.rel] = p
	return nil
}

func (r *brancher) repoOf(ctx context.Context, h *hostmount.Home) (*plumbing.Repo, error) {
	if repo := r.repos[h]; repo != nil {
		return repo, nil
	}
	dir, err := sys.PathOf(h.Dir())
	if err != nil {
		return nil, err
	}
	repo, err := plumbing.Open(ctx, dir)
	if err == nil {
		r.repos[h] = repo
	}
	return repo, err
}

const rules = ".gitignore"

// compareBase decides, for each change, how to make it on the base.
func (r *brancher) compareBase(ctx context.Context, base string) (err error) {
	above := map[string]bool{}
	for at := range r.puts {
		for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
			above[dir] = true
		}
	}
	ignores := map[string]plumbing.Entry{}
	r.base, err = r.repo.Entries(ctx, base, func(at, _ string) bool {
		_, changed := r.puts[at]
		dir, name := path.Split(at)
		return changed || above[at] || name == rules && (dir == "" || above[strings.TrimSuffix(dir, "/")])
	})
	if err != nil {
		return err
	}
	var paths, fresh []string
	for at := range r.puts {
		paths = append(paths, at)
		if _, has := r.base[at]; !has && r.puts[at].New != nil {
			fresh = append(fresh, at)
		}
	}
	for at, e := range r.base {
		if path.Base(at) == rules {
			ignores[at] = e
		}
	}
	ignored := map[string]bool{}
	if !r.opts.Ignored && len(fresh) > 0 {
		if ignored, err = r.repo.Ignored(ctx, ignores, fresh); err != nil {
			return err
		}
	}
	slices.Sort(paths)
	for _, at := range paths {
		if ignored[at] {
			r.ignored++
			continue
		}
		if err := r.decide(at); err != nil {
			return err
		}
	}
	return nil
}

// The reasons of conflicts with the base of a branch.
const (
	otherInBase = "the commit's content differs from the mounted content; commit that first, or name the commit that has it with --from (git stash create makes one of uncommitted work)"
	fileInBase  = "the commit has something else of that name; rename one of the two"
	inSubmodule = "it lies in another repository, a submodule; mount that by itself"
)

func (r *brancher) decide(at string) error {
	p := r.puts[at]
	has, there := r.base[at]
	if reason := r.blocked(at, has); reason != "" {
		r.conflict(p, reason)
		return nil
	}
	old, err := r.is(p.Old, has)
	if err != nil {
		return err
	}
	if !old && p.brought { // an apply wrote it, and a person committed it
		if old, err = r.is(p.was, has); err != nil {
			return err
		}
	}
	now, err := r.is(p.New, has)
	switch {
	case err != nil:
		return err
	case !there && p.New == nil, there && now && has.Mode == modeOf(p.New):
		r.out.Already++
	case !there, old, now:
		r.add(&work{spot: spot{rel: at}, pair: p, base: p.last()})
	case p.Old == nil:
		r.conflict(p, fileInBase)
	default:
		r.conflict(p, otherInBase)
	}
	return nil
}

func (r *brancher) conflict(p pair, reason string) {
	r.conflicts++
	r.note(&r.out.Conflicts, p.Path, reason)
}

// blocked returns the reason why a path of the base can't be written: another entry is in the way.
func (r *brancher) blocked(at string, has plumbing.Entry) string {
	if has.Mode == plumbing.ModeSubmodule {
		return inSubmodule
	}
	for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
		e, is := r.base[dir]
		switch {
		case !is:
		case e.Mode == plumbing.ModeSubmodule:
			return inSubmodule
		case r.puts[dir].New != nil && r.puts[at].New == nil: // replaced by what the session has there, or that is the conflict
		case r.puts[dir].New != nil || r.puts[dir].Old == nil:
			return fileInBase
		}
	}
	return ""
}

// is reports whether an entry of a snapshot has the content and the kind of an entry of the base.
func (r *brancher) is(e *snapshot.Entry, has plumbing.Entry) (bool, error) {
	if e == nil || has.Hash == "" || (has.Mode == "120000") != e.Link {
		return false, nil
	}
	sum := r.repo.BlobHash()
	fmt.Fprintf(sum, "blob %d\x00", e.Size)
	err := copyContent(r.ctx, r.budget, r.set.between, e, sum)
	return hex.EncodeToString(sum.Sum(nil)) == has.Hash, err
}

// write writes the changes; removals come first, because they may free the way for additions.
func (r *brancher) write(to *plumbing.Import) error {
	for _, w := range r.todo {
		if w.pair.New == nil {
			to.Remove(w.rel)
		}
	}
	for _, w := range r.todo {
		if w.pair.New == nil {
			continue
		}
		err := to.Put(w.rel, modeOf(w.pair.New), w.pair.New.Size, func(out io.Writer) error {
			return copyContent(r.ctx, r.budget, r.set.between, w.pair.New, out)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

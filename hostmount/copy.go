package hostmount

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// Copy copies the mounts into the workspace, in order: of two files with one path the later mount's wins, and
// directories merge. If a file is in the place of a directory or the reverse, among the mounts or in the workspace, the
// error is exists. After any error, and if ctx ends, the workspace is unchanged; errors name the mount.
func Copy(ctx context.Context, mounts []Mount, opts *Options) (*Report, error) {
	o := opts.withDefaults()
	if len(mounts) == 0 {
		return &Report{Mounts: []MountReport{}}, nil
	}
	if o.Dest == nil || o.Staging == nil {
		return nil, tool.Errorf(tool.Internal, "a mount was copied without a workspace")
	}
	plans, err := planAll(ctx, mounts, o, false)
	defer closePlans(plans)
	if err != nil {
		return nil, err
	}
	tree, err := layOut(plans)
	if err != nil {
		return nil, err
	}
	if err := stageAndPlace(ctx, tree, o); err != nil {
		return nil, err
	}
	return report(plans), nil
}

// Preview reports the files that Copy would copy, and the reasons for the others, without writing anything. With an
// error it returns the report up to that point.
func Preview(ctx context.Context, mounts []Mount, opts *Options) (*Report, error) {
	plans, err := planAll(ctx, mounts, opts.withDefaults(), true)
	defer closePlans(plans)
	if err == nil {
		_, err = layOut(plans)
	}
	return report(plans), err
}

// planAll opens and walks the sources. The caller closes the plans, also after
// an error.
func planAll(ctx context.Context, mounts []Mount, opts Options, all bool) ([]*plan, error) {
	for i, m := range mounts {
		if err := m.check(mountName(i)); err != nil {
			return nil, err
		}
	}
	roots, err := openRoots(mounts, opts)
	if err != nil {
		return nil, err
	}
	defer closeRoots(roots)
	var plans []*plan
	total := &budget{maxBytes: opts.MaxBytes, maxFiles: opts.MaxFiles, progress: opts.looking()}
	for i, m := range mounts {
		p := &plan{mount: m, at: mountName(i), budget: total, all: all, roots: roots, firsts: map[uint64]*item{}}
		if p.src, err = openSource(m, roots, p.at); err != nil {
			return plans, err
		}
		plans = append(plans, p)
		if p.filter, err = m.filter(p.at); err != nil {
			return plans, err
		}
		before := weight{total.bytes, total.files}
		if err := p.walk(ctx); err != nil {
			return plans, p.explained(ctx, err, before)
		}
		if err := p.within(); err != nil {
			return plans, p.explained(ctx, err, before)
		}
	}
	return plans, nil
}

// explained explains an error about a limit; before is the size of earlier mounts.
func (p *plan) explained(ctx context.Context, err error, before weight) error {
	switch limit := p.mount.MaxBytes; {
	case tool.KindOf(err) == tool.Limit:
		return p.explain(ctx, err, weight{entries: max(p.budget.maxFiles-before.entries, 1)})
	case tool.KindOf(err) == tool.TooLarge && limit > 0 && p.report.Bytes > limit:
		return p.explain(ctx, err, weight{bytes: limit})
	case tool.KindOf(err) == tool.TooLarge:
		return p.explain(ctx, err, weight{bytes: max(p.budget.maxBytes-before.bytes, 1)})
	}
	return err
}

// looking returns a function that reports the progress of planning, at most ten times a second; nil if nobody wants it.
func (o *Options) looking() func(files, bytes int64) {
	if o.Progress == nil {
		return nil
	}
	told := time.Now()
	return func(files, bytes int64) {
		if files%256 != 0 || time.Since(told) < progressEvery {
			return
		}
		told = time.Now()
		o.Progress(Progress{TotalFiles: files, TotalBytes: bytes})
	}
}

func mountName(i int) string { return fmt.Sprintf("mounts[%d]", i) }

func closePlans(plans []*plan) {
	for _, p := range plans {
		closePlans(p.parts)
		p.src.close()
	}
}

func report(plans []*plan) *Report {
	r := &Report{Mounts: []MountReport{}}
	for _, p := range plans {
		p.finish()
		for _, part := range p.parts {
			p.merge(part)
		}
		r.Files += p.report.Files
		r.Dirs += p.report.Dirs
		r.Bytes += p.report.Bytes
		r.Mounts = append(r.Mounts, p.report)
	}
	return r
}

// merge adds the report of a part.
func (p *plan) merge(part *plan) {
	part.finish()
	p.report.Files += part.report.Files
	p.report.Dirs += part.report.Dirs
	p.report.Bytes += part.report.Bytes
	for why, n := range part.report.Skipped {
		p.report.Skipped[why] += n
	}
	p.report.Entries = append(p.report.Entries, part.report.Entries...)
	p.report.Truncated = p.report.Truncated || part.report.Truncated
	sum := sha256.Sum256([]byte(p.report.Fingerprint + part.report.Fingerprint))
	p.report.Fingerprint = hex.EncodeToString(sum[:])
}

// finish counts what the plan copies and takes its fingerprint.
func (p *plan) finish() {
	p.items = slices.DeleteFunc(p.items, func(it *item) bool { return it.dropped })
	slices.SortFunc(p.items, func(a, b *item) int { return strings.Compare(a.dst, b.dst) })
	sum := sha256.New()
	for _, it := range p.items {
		kind := "file"
		switch {
		case it.link != "":
			kind = "symlink"
			p.report.Files++
			fmt.Fprintf(sum, "%q link %q\n", it.dst, it.link)
		case it.dir:
			kind = "directory"
			p.report.Dirs++
			fmt.Fprintf(sum, "%q directory %o\n", it.dst, it.mode)
		default:
			p.report.Files++
			if it.first != nil {
				fmt.Fprintf(sum, "%q name of %q\n", it.dst, it.first.dst)
			}
			fmt.Fprintf(sum, "%q %d %d.%d %o\n", it.dst, it.size, it.mtime.Sec, it.mtime.Nsec, it.mode)
		}
		if p.all {
			p.list(Entry{Path: it.dst, Kind: kind, Size: it.size})
		}
	}
	slices.SortFunc(p.report.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	p.report.Fingerprint = hex.EncodeToString(sum.Sum(nil))
}

package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	units "github.com/docker/go-units"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// addMounts parses the mounts. A mount that a person typed allows its own path; with --allow-root,
// every mount must be below one of these.
func (f *sessionFlags) addMounts(opts *wisbox.SessionOptions) error {
	opts.AllowedRoots = f.allowRoots
	file := f.mountsIn()
	if file != nil && len(f.allowRoots) > 0 {
		return usageError{fmt.Errorf("--allow-root needs --mount, and the mounts come from %s; add --mount, or --no-config", file.Path)}
	}
	for i, spec := range f.mounts {
		m, err := hostmount.Parse(spec)
		if err != nil {
			e := tool.AsError(err)
			return f.mountError(e.In(fmt.Sprintf("mounts[%d]", i) + strings.TrimPrefix(e.Field, "mount")))
		}
		if file != nil && filepath.IsLocal(m.HostPath) { // the path stays in that directory, even through links
			opts.AllowedRoots = append(opts.AllowedRoots, file.Dir())
			m.HostPath, m.GitFolders = filepath.Join(file.Dir(), m.HostPath), true
			opts.Mounts = append(opts.Mounts, m)
			continue
		}
		if m.HostPath, err = filepath.Abs(m.HostPath); err != nil {
			return tool.Errorf(tool.Invalid, "the host path of --mount can't be made absolute").Because(err)
		}
		m.GitFolders = len(f.allowRoots) == 0
		opts.Mounts = append(opts.Mounts, m)
		if len(f.allowRoots) == 0 {
			opts.AllowedRoots = append(opts.AllowedRoots, m.HostPath)
		}
	}
	return nil
}

var indexed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(mounts|allowed_roots)\[([0-9]+)\]`) })

// mountError names the flag of the mount that an error is about: people don't know the fields.
func (f *sessionFlags) mountError(err error) error {
	e := tool.AsError(err)
	if e == nil {
		return nil
	}
	at := indexed().FindStringSubmatch(e.Field)
	if at == nil {
		return asUsage(err)
	}
	flag, typed := "mount", f.mounts
	if at[1] == "allowed_roots" {
		flag, typed = "allow-root", f.allowRoots
	}
	i, _ := strconv.Atoi(at[2])
	if i >= len(typed) {
		return err
	}
	return asUsage(tool.Errorf(e.Kind, "%s %q: %s", f.origin(flag), typed[i], e.Message).In(flag + e.Field[len(at[0]):]).Because(err))
}

// open opens a session with the options. On a terminal it shows the progress of copying the mounts;
// it reports on stderr what they leave out.
func (a *app) open(ctx context.Context, m *wisbox.Manager, f *sessionFlags, opts *wisbox.SessionOptions) (*wisbox.Session, error) {
	if err := a.buildImage(ctx, m, f, opts); err != nil {
		return nil, err
	}
	a.sayWhere(opts.Mounts)
	shown := a.showMounts(opts)
	opts.OnMounted = func(report *hostmount.Report) {
		shown()
		f.sayLeftOut(a.err, report)
	}
	s, err := m.Open(ctx, opts)
	if err != nil {
		shown()
	}
	return s, f.mountError(err)
}

// sayWhere names the places of mounts whose destination reads like a path outside of the workspace, as Docker's do.
func (a *app) sayWhere(mounts []hostmount.Mount) {
	for _, m := range mounts {
		to := path.Clean(m.MountPath)
		if path.IsAbs(to) && to != "/" && to != sandbox.WorkspaceDir && !strings.HasPrefix(to, sandbox.WorkspaceDir+"/") {
			fmt.Fprintf(a.err, "wisbox: mounts go into the workspace: programs see %s as %s\n", streams.Printable(to), streams.Printable(sandbox.WorkspaceDir+to))
		}
	}
}

// showMounts shows on a terminal the progress of copying the mounts.
func (a *app) showMounts(opts *wisbox.SessionOptions) (end func()) {
	s := a.newStatus()
	if !s.live || len(opts.Mounts) == 0 {
		return func() {}
	}
	opts.OnMount = func(p hostmount.Progress) {
		if p.Files == 0 { // the sources are looked at
			s.draw(fmt.Sprintf("found %d files to copy, %s", p.TotalFiles, units.HumanSize(float64(p.TotalBytes))))
			return
		}
		s.draw(bar(p.Bytes, max(p.TotalBytes, 1), progressWidth) + fmt.Sprintf("copying %d of %d files, %s of %s", p.Files, p.TotalFiles, units.HumanSize(float64(p.Bytes)), units.HumanSize(float64(p.TotalBytes))))
	}
	return func() { s.end(nil) }
}

const leftOutNames = 3 // shown for each reason

// sayLeftOut prints a line for each mount that left entries out, other than by a glob.
func (f *sessionFlags) sayLeftOut(w io.Writer, report *hostmount.Report) {
	for i, m := range report.Mounts {
		names := map[hostmount.Reason][]string{}
		var reasons []hostmount.Reason
		for _, e := range m.Entries {
			if e.Skipped == "" || e.Skipped.Asked() {
				continue
			}
			if names[e.Skipped] == nil {
				reasons = append(reasons, e.Skipped)
			}
			if len(names[e.Skipped]) < leftOutNames {
				names[e.Skipped] = append(names[e.Skipped], e.String())
			}
		}
		var said []string
		for _, r := range reasons {
			some := strings.Join(names[r], ", ")
			if more := m.Skipped[r] - int64(len(names[r])); more > 0 {
				some += fmt.Sprintf(" and %d more", more)
			}
			said = append(said, some+": "+r.Text())
		}
		if len(said) > 0 {
			fmt.Fprintf(w, "wisbox: %s %q leaves out %s\n", f.origin("mount"), f.mounts[i], strings.Join(said, "; "))
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/leftout"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func (a *app) newCpCmd() *cobra.Command {
	opts := &cpOptions{}
	cmd := &cobra.Command{
		Use:   "cp HOST-PATH|- SESSION:PATH  |  cp SESSION:PATH HOST-PATH|-",
		Short: "Copy files and directories into a session, or out of one",
		Long: `Copies a file, or a directory with its content. If the destination is an existing
directory, the copy goes into it. - is stdin or stdout, for one file. A workspace
can't divert a copy to other places: links that lead out, devices and FIFOs are
skipped and listed on stderr. If a file can't be copied, the exit code is 1. A copy into
a session that breaks off leaves whole files; wisbox undo takes them back.

PATH is in the workspace, and may begin with /workspace/. A path in a directory of
the system, such as /tmp or /home, means that directory of the sandbox.

Copies out of a session leave out .git and the directories of other version control
systems, and HEAD, which makes a git repository of its directory, because these run
programs that files in them name. --vcs includes them: look at them before you use the
copy.`,
		Example: `  wisbox cp report.csv box:data/
  wisbox cp box:results ./results
  wisbox cp box:/tmp/core .
  wisbox cp box:out.json - | jq .`,
		Args: exactArgs("SOURCE", "DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runCp(cmd.Context(), opts, args[0], args[1]) },
	}
	cmd.Flags().BoolVar(&opts.vcs, "vcs", false, "also copy out .git, .hg and the like, whose files may name programs to run")
	return cmd
}

type cpOptions struct{ vcs bool }

// place is one argument of a copy: a path in a session, or on the host if session is "".
type place struct{ session, path string }

// systemDirs are the directories of the sandbox's root that cp reaches. All other absolute paths are in
// the workspace, as in the tools.
var systemDirs = []string{"bin", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"}

// outside returns a path of the sandbox that isn't in the workspace.
func outside(p string) (string, bool) {
	if !strings.HasPrefix(p, "/") {
		return "", false
	}
	clean := path.Clean(p)
	top, _, _ := strings.Cut(clean[1:], "/")
	if !slices.Contains(systemDirs, top) {
		return "", false
	}
	if strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean, true
}

// placeOf reads SESSION:PATH. A host path with a colon is written ./a:b.
func placeOf(s string) place {
	name, rest, ok := strings.Cut(s, ":")
	if !ok || strings.ContainsAny(name, "/.") || name == "" {
		return place{path: s}
	}
	if rest == "." || strings.HasSuffix(rest, "/.") { // the content, as the directory itself
		rest = strings.TrimSuffix(rest, ".")
	}
	return place{session: name, path: rest}
}

func (a *app) runCp(ctx context.Context, opts *cpOptions, from, to string) error {
	src, dst := placeOf(from), placeOf(to)
	if (src.session == "") == (dst.session == "") {
		return usageError{errors.New("one of the two must be SESSION:PATH, and the other a path on the host or -, as in wisbox cp FILE SESSION:PATH")}
	}
	_, fromSystem := outside(src.path)
	_, toSystem := outside(dst.path)
	copyWith := a.upload
	switch {
	case src.session != "" && fromSystem:
		copyWith = opts.downloadOutside(a)
	case src.session != "":
		copyWith = opts.download(a)
	case toSystem:
		copyWith = a.uploadOutside
	}
	return a.withSession(ctx, src.session+dst.session, func(s *wisbox.Session) error {
		done, err := copyWith(ctx, s, src.path, dst.path)
		if err != nil {
			return err
		}
		if err := a.reportCopy(done, to == "-"); err != nil || done.Incomplete == 0 {
			return err
		}
		fmt.Fprintf(a.err, "wisbox: the copy is incomplete: %s skipped\n", quantity(int64(done.Incomplete), "file or directory was", "files and directories were"))
		return exitCode(exitError)
	})
}

// reportCopy reports what was copied; on stderr if stdout has the copy.
func (a *app) reportCopy(done *vfs.Transfer, quiet bool) error {
	for _, skipped := range done.Skipped {
		fmt.Fprintf(a.err, "skipped %s: %s\n", streams.Printable(skipped.Name), streams.Printable(skipped.Reason))
	}
	if done.More > 0 {
		fmt.Fprintf(a.err, "skipped %d more\n", done.More)
	}
	if quiet {
		return nil
	}
	return a.print(done, func(w io.Writer) {
		fmt.Fprintf(w, "%s, %s, %s\n", quantity(int64(done.Files), "file", "files"),
			quantity(int64(done.Directories), "directory", "directories"), units.HumanSize(float64(done.Bytes)))
	})
}

// quantity returns a number with its unit.
func quantity(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

// upload streams a tar of the host's file or directory into the session.
func (a *app) upload(ctx context.Context, s *wisbox.Session, from, to string) (*vfs.Transfer, error) {
	rel, err := vfs.Any.Parse(to)
	if err != nil {
		return nil, err
	}
	dir, name := path.Split(rel)
	if info, err := fs.Stat(s.Files(), path.Join(".", rel)); strings.HasSuffix(to, "/") || rel == "" || err == nil && info.IsDir() {
		dir, name = rel, filepath.Base(from)
	}
	if name == "-" || name == "." || name == "/" {
		return nil, tool.Errorf(tool.Invalid, "the name of the copy is missing; write it as SESSION:%sNAME", slash(to)).In("destination")
	}
	r, w := io.Pipe()
	bar := a.newProgress(sizeBelow(os.DirFS(filepath.Dir(from)), filepath.Base(from)))
	defer bar.end()
	var left []vfs.Skipped
	packed := make(chan error, 1)
	go func() {
		var err error
		left, err = a.pack(ctx, io.MultiWriter(w, bar), from, name)
		_ = w.CloseWithError(err)
		packed <- err
	}()
	done, err := s.Import(ctx, r, strings.TrimSuffix(dir, "/"))
	_ = r.Close() // an import that stopped early ends the packing
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		err = hostError(perr)
	}
	if done != nil {
		done.Skipped = append(done.Skipped, left...)
	}
	return done, err
}

// slash adds a slash to a directory's path unless it ends with one.
func slash(dir string) string {
	if dir == "" {
		return ""
	}
	return strings.TrimSuffix(dir, "/") + "/"
}

type copier func(ctx context.Context, s *wisbox.Session, from, to string) (*vfs.Transfer, error)

// download unpacks a tar of the session's file or directory on the host.
func (o *cpOptions) download(a *app) copier {
	return func(ctx context.Context, s *wisbox.Session, from, to string) (*vfs.Transfer, error) {
		return a.download(ctx, s, from, to, o.vcs)
	}
}

func (o *cpOptions) downloadOutside(a *app) copier {
	return func(ctx context.Context, s *wisbox.Session, from, to string) (*vfs.Transfer, error) {
		return a.downloadOutside(ctx, s, from, to, o.vcs)
	}
}

func (a *app) download(ctx context.Context, s *wisbox.Session, from, to string, vcs bool) (*vfs.Transfer, error) {
	rel, err := vfs.Any.Parse(from)
	if err != nil {
		return nil, err
	}
	if why := leftout.Why(rel); why != "" && !vcs {
		return nil, leftOutError(rel, why)
	}
	write, err := a.receiver(s, rel, to, vcs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	bar := a.newProgress(sizeBelow(s.Files(), path.Join(".", rel)))
	defer bar.end()
	written := make(chan error, 1)
	go func() {
		err := write(r)
		_, _ = io.Copy(io.Discard, r) // anything after the last entry
		_ = r.CloseWithError(io.ErrClosedPipe)
		written <- err
	}()
	done, err := s.ExportWith(ctx, from, io.MultiWriter(w, bar), &vfs.ExportOptions{Sparse: true, LeaveOut: !vcs})
	_ = w.CloseWithError(err)
	if werr := <-written; werr != nil && err == nil {
		err = werr
	}
	return done, err
}

func leftOutError(name, why string) error {
	return tool.Errorf(tool.Permission, "%s %s; with --vcs it is copied", name, why).In("source")
}

// receiver returns a function that writes the copy on the host, as one file or as a tree.
func (a *app) receiver(s *wisbox.Session, rel, to string, vcs bool) (func(io.Reader) error, error) {
	info, err := fs.Stat(s.Files(), path.Join(".", rel))
	if err != nil {
		return nil, tool.Errorf(tool.NotFound, "%s not found in the session's workspace", rel).In("source").Because(err)
	}
	if to == "-" && info.IsDir() {
		return nil, tool.Errorf(tool.IsDir, "only a file can be copied to stdout").In("source")
	}
	if st, err := os.Stat(to); to != "-" && (err == nil && st.IsDir() || strings.HasSuffix(to, "/")) {
		to = filepath.Join(to, path.Base("/"+rel))
	}
	if info.IsDir() {
		return func(r io.Reader) error { return unpackDir(r, to, vcs) }, nil
	}
	return func(r io.Reader) error { return a.unpackFile(r, to) }, nil
}

// hostError describes an error of the host to the person who named the path.
func hostError(err error) error {
	var pathErr *fs.PathError
	if !errors.As(err, &pathErr) {
		return err
	}
	kind, says := tool.Unavailable, "can't be read or written: "+pathErr.Err.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist) && pathErr.Op == opWrite:
		kind, says = tool.NotFound, "can't be written: its directory does not exist"
	case errors.Is(err, fs.ErrNotExist):
		kind, says = tool.NotFound, "does not exist"
	case errors.Is(err, fs.ErrPermission):
		kind, says = tool.Permission, "may not be read or written by this user"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind, says = tool.NoSpace, "has no room, since its file system is full; free some space and try again"
	case errors.Is(err, fs.ErrExist):
		kind, says = tool.Exists, "already exists as something else"
	}
	return tool.Errorf(kind, "%s on the host %s", pathErr.Path, says).Because(err)
}

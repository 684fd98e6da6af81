package main

import (
	"context"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/vfs"
)

// completeEntries bounds how many entries of a directory are read: programs may have filled it.
const completeEntries = 2000

// completeCopy completes the two arguments of a copy: one in a session, one on the host.
func (a *app) completeCopy(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	const files = cobra.ShellCompDirectiveDefault
	fromSession := len(args) == 1 && placeOf(args[0]).session != ""
	switch end := placeOf(typed); {
	case len(args) > 1:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case fromSession, end.session == "" && strings.ContainsAny(typed, "./"):
		return nil, files
	case end.session != "":
		var names []string
		for _, name := range a.workspacePaths(cmd.Context(), end.session, "", end.path) {
			names = append(names, end.session+":"+name)
		}
		return unfinished(names)
	}
	var names []string
	for _, name := range a.sessionNames(cmd.Context()) {
		if strings.HasPrefix(name, typed) {
			names = append(names, name+":")
		}
	}
	switch {
	case len(args) == 1:
		return unfinished(names)
	case len(names) == 0:
		return nil, files
	}
	return unfinished(append(names, namesIn(os.DirFS("."), ".", typed)...))
}

// unfinished makes the shell add no space after a path that may continue.
func unfinished(paths []string) ([]string, cobra.ShellCompDirective) {
	for _, p := range paths {
		if strings.HasSuffix(p, "/") || strings.HasSuffix(p, ":") {
			return paths, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		}
	}
	return paths, cobra.ShellCompDirectiveNoFileComp
}

// workdirOf returns the directory of the workspace to which a command line's paths are relative.
func workdirOf(cmd *cobra.Command) string {
	if f := cmd.Flags().Lookup("workdir"); f != nil && f.Changed {
		return f.Value.String()
	}
	return ""
}

// workspacePaths returns paths of a session's workspace that begin with typed, relative to the
// directory below; directories end with a slash. It asks neither the container nor the holder.
func (a *app) workspacePaths(ctx context.Context, session, below, typed string) (paths []string) {
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	dir, begin := path.Split(typed)
	if strings.HasPrefix(dir, "/") {
		below = ""
	}
	at := path.Join(below, dir)
	if strings.HasPrefix(at, "/") && at != "/workspace" && !strings.HasPrefix(at, "/workspace/") {
		return nil // a path of the container
	}
	rel, err := vfs.Any.Parse(at)
	if err != nil {
		return nil
	}
	_ = a.withSession(ctx, session, func(s *wisbox.Session) error {
		for _, name := range namesIn(s.Files(), path.Join(".", rel), begin) {
			paths = append(paths, dir+name)
		}
		return nil
	})
	return paths
}

// namesIn returns the names in a directory that begin with begin. It returns hidden names only if
// begin has the dot, and no names that a shell could run.
func namesIn(tree fs.FS, dir, begin string) (names []string) {
	f, err := tree.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil
	}
	entries, _ := d.ReadDir(completeEntries)
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, begin) || begin == "" && name[0] == '.' || !harmlessName(name) {
			continue
		}
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

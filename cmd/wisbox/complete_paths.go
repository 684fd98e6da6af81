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

// completeEntries bounds what is read of a directory, which programs may have filled.
const completeEntries = 2000

// completeCopy completes the two ends of a copy: one of a session, one of the host.
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

// unfinished has the shell put no space where a path may go on.
func unfinished(paths []string) ([]string, cobra.ShellCompDirective) {
	for _, p := range paths {
		if strings.HasSuffix(p, "/") || strings.HasSuffix(p, ":") {
			return paths, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		}
	}
	return paths, cobra.ShellCompDirectiveNoFileComp
}

// workdirOf is the directory of the workspace that a command line's paths begin in.
func workdirOf(cmd *cobra.Command) string {
	for _, flag := range []string{"workdir", "cwd"} {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Changed {
			return f.Value.String()
		}
	}
	return ""
}

// workspacePaths are the paths of a session's workspace that begin as typed below a directory of
// it; directories end with a slash. Neither container nor holder is asked.
func (a *app) workspacePaths(ctx context.Context, session, below, typed string) (paths []string) {
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	dir, begin := path.Split(typed)
	if strings.HasPrefix(dir, "/") {
		below = ""
	}
	at := path.Join(below, dir)
	if strings.HasPrefix(at, "/") && at != "/workspace" && !strings.HasPrefix(at, "/workspace/") {
		return nil // of the container
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

// namesIn are the names in a directory that begin as typed, hidden ones where the dot was typed.
// Names that a shell could run are left out.
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

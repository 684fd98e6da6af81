package main

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/tool"
)

// complete adds shell completion for arguments and flags.
func (a *app) complete(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		a.complete(below)
	}
	_, args, _ := strings.Cut(cmd.Use, " ")
	args = strings.TrimPrefix(args, "[flags] ")
	switch {
	case cmd.ValidArgsFunction != nil:
	case strings.HasPrefix(args, "SESSION"), strings.HasPrefix(args, "[SESSION"):
		cmd.ValidArgsFunction = a.completeSession
	case cmd.Name() == "cp":
		cmd.ValidArgsFunction = a.completeCopy
	case args == "", args == "[flags]", strings.HasPrefix(args, "[NAME]") && cmd.Name() != "tools":
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	case strings.HasPrefix(args, "TEMPLATE"):
		cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return a.templateNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		}
	case cmd.Name() == "tools":
		cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return toolNames(len(args) == 0), cobra.ShellCompDirectiveNoFileComp
		}
	}
	if cmd.ValidArgsFunction != nil {
		cmd.ValidArgsFunction = harmless(cmd.ValidArgsFunction)
	}
	for flag, values := range map[string][]string{
		"profile": profile.Names(), "base": {"registry", "debian"}, "isolation": {"default", "gvisor"}, "userns": {"auto", "shared"}, "paths": {"ascii", "any"}, "client": clients,
		"level": {"summary", "full"}, "pull": {"missing", "never", "always"}, "with": images.PresetNames(),
	} {
		completeFlag(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	completeFlag(cmd, "template", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.templateNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	})
	completeFlag(cmd, "session", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.sessionNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	})
}

func completeFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if cmd.Flags().Lookup(flag) != nil {
		_ = cmd.RegisterFlagCompletionFunc(flag, harmless(values))
	}
}

// harmless drops completions that a shell could run. Bash puts the common prefix of several names
// on the line without quotes, and cobra's script then evaluates the line at the next key.
func harmless(all cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		found, directive := all(cmd, args, typed)
		var names []string
		for _, text := range found {
			name, about, described := strings.Cut(text, "\t")
			if !harmlessName(name) {
				continue
			}
			if described {
				name = cobra.CompletionWithDesc(name, oneLine(about))
			}
			names = append(names, name)
		}
		return names, directive
	}
}

func harmlessName(name string) bool {
	const activeHelp = "_activeHelp_" // cobra's mark of help lines
	return !strings.HasPrefix(name, "-") && !strings.HasPrefix(name, activeHelp) && strings.IndexFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune("._+@%,=:/-", r)
	}) < 0
}

// completeSession completes the name of a session, and the arguments after it.
func (a *app) completeSession(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, below := cmd.Context(), ""
	if cmd.HasParent() {
		below = cmd.Parent().Name()
	}
	switch {
	case len(args) == 0 || strings.Contains(cmd.Use, "SESSION…"):
		return a.sessionNames(ctx), cobra.ShellCompDirectiveNoFileComp
	case below == "context" && cmd.Name() != "create" && len(args) == 1:
		return a.contextNames(ctx, args[0]), cobra.ShellCompDirectiveNoFileComp
	case cmd.Name() == "call":
		return toolNames(len(args) == 1), cobra.ShellCompDirectiveNoFileComp
	case strings.Contains(cmd.Use, "SNAPSHOT"):
		return a.snapshotNames(ctx, args[0]), cobra.ShellCompDirectiveNoFileComp
	case strings.Contains(cmd.Use, "[STEP]") && len(args) == 1:
		return a.stepIDs(ctx, args[0]), cobra.ShellCompDirectiveNoFileComp
	case cmd.Name() == "kill" || len(args) == 1 && strings.HasSuffix(cmd.Use, " PROCESS"):
		return a.processIDs(ctx, args[0]), cobra.ShellCompDirectiveNoFileComp
	case strings.Contains(cmd.Use, "CMD"):
		return unfinished(a.workspacePaths(ctx, args[0], workdirOf(cmd), typed))
	case strings.Contains(cmd.Use, "FILE"), strings.Contains(cmd.Use, "PATH"): // of the host, which the shell completes best
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeWait bounds a request to another process during completion.
var completeWait = patience.For(2 * time.Second)

// processIDs asks the session's holder, and starts none.
func (a *app) processIDs(ctx context.Context, session string) (ids []string) {
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	_ = a.withSession(ctx, session, func(s *wisbox.Session) error {
		all, err := s.Processes(ctx)
		for _, p := range all {
			ids = append(ids, cobra.CompletionWithDesc(p.ProcessID, p.State+" "+oneLine(strings.Join(p.Command, " "))))
		}
		return err
	})
	return ids
}

// contextNames asks the session's holder, and starts none.
func (a *app) contextNames(ctx context.Context, session string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	_ = a.withSession(ctx, session, func(s *wisbox.Session) error {
		all, err := s.Contexts(ctx)
		for _, c := range all {
			names = append(names, cobra.CompletionWithDesc(c.Name, c.Language))
		}
		return err
	})
	return names
}

// stepIDs returns the calls that can be undone.
func (a *app) stepIDs(ctx context.Context, session string) (ids []string) {
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	_ = a.withSession(ctx, session, func(s *wisbox.Session) error {
		all, err := s.Steps(ctx, 0)
		for _, step := range all {
			ids = append(ids, cobra.CompletionWithDesc(step.Call, step.At.Local().Format(time.DateTime)+" "+oneLine(step.Tool)))
		}
		return err
	})
	return ids
}

// snapshotNames returns the names of a session's snapshots, and the ids of those without one.
func (a *app) snapshotNames(ctx context.Context, session string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	_ = a.withSession(ctx, session, func(s *wisbox.Session) error {
		res, err := s.CallOwn(ctx, "snapshot_list", nil)
		if err != nil {
			return err
		}
		all, err := listedOf(res)
		for _, l := range all.Snapshots {
			names = append(names, cobra.CompletionWithDesc(l.ID, oneLine(l.Label)+" "+l.Created.Local().Format(time.DateTime)))
			if l.Label != "" && !strings.HasPrefix(l.Label, "before ") {
				names = append(names, cobra.CompletionWithDesc(oneLine(l.Label), l.Created.Local().Format(time.DateTime)))
			}
		}
		return err
	})
	return names
}

// sessionNames needs no Podman and changes nothing.
func (a *app) sessionNames(ctx context.Context) []string {
	if remote, err := a.findRemote(); remote != nil || err != nil {
		return nil // completion must not wait for another machine
	}
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return nil
	}
	defer store.Close()
	entries, err := store.List(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.State.Kept {
			names = append(names, e.ID)
		}
	}
	return names
}

// templateNames returns the names of templates, and the IDs of those without one.
func (a *app) templateNames(ctx context.Context) (names []string) {
	m, err := a.manager(ctx)
	if err != nil {
		return nil
	}
	defer m.Close()
	all, _ := m.Templates()
	for _, t := range all {
		name := t.ID
		if t.Name != "" && t.Owner == "" {
			name = t.Name
		}
		names = append(names, cobra.CompletionWithDesc(name, t.Created.Local().Format(time.DateTime)))
	}
	return names
}

func toolNames(wanted bool) []string {
	if !wanted {
		return nil
	}
	var names []string
	for _, t := range wisbox.ToolSet().Tools() {
		names = append(names, cobra.CompletionWithDesc(t.Name, tool.FirstSentence(t.Description)))
	}
	return names
}

func commandsBelow(cmd *cobra.Command, path []string) []string {
	cmd, rest, err := cmd.Find(path)
	if err != nil || len(rest) > 0 {
		return nil
	}
	var names []string
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() {
			names = append(names, cobra.CompletionWithDesc(below.Name(), below.Short))
		}
	}
	return names
}

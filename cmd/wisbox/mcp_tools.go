package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// toolGroups are groups of tools, by wisbox's own names.
var toolGroups = []struct {
	name  string
	tools []string
}{
	{"files", []string{"ls", "read_file", "write_file", "edit_file", "glob", "grep", "rm", "list_directory", "delete_file"}},
	{"shell", []string{"shell_execute", "read_output", "process_start", "process_list", "process_read", "process_write", "process_signal", "process_resize"}},
	{"python", []string{"evaluate_python"}},
	{"lisp", []string{"evaluate-lisp", "compile-form", "time-execution", "configure-limits", "validate-syntax", "macroexpand-form", "describe-symbol", "apropos-search", "list-definitions", "reset-session", "describe-last-error", "get-backtrace"}},
	{"snapshots", []string{"snapshot_create", "snapshot_list", "snapshot_diff", "snapshot_restore"}},
	{"digest", []string{"workspace_digest", "digest_optimize"}},
	{"texts", []string{"context_load", "context_op"}},
}

// usualTools are the groups that are offered if nobody chooses any: those that most agents use. Each
// tool in the list costs tokens in every turn. A profile's tools are its choice already.
var usualTools = []string{"files", "shell", "python", "snapshots"}

// allTools chooses every tool.
const allTools = "all"

func groupNames() (names []string) {
	for _, g := range toolGroups {
		names = append(names, g.name)
	}
	return append(names, allTools)
}

// choose returns the tools to offer: those that both --tools and a configuration file choose. If neither
// does, clients may call all, but only the usual ones are listed.
func (o *mcpOptions) choose(set *tool.Set) (offered, listed *tool.Set, err error) {
	if len(o.tools) == 0 && o.fileTools == nil && (o.profile == "" || o.profile == "wisbox") {
		words := usualTools
		if o.optimizer != "" {
			words = append(slices.Clone(words), "digest")
		}
		listed, err = chosenTools(set, "--tools", words)
		return set, listed, err
	}
	offered, err = o.chosen(set)
	return offered, offered, err
}

func (o *mcpOptions) chosen(set *tool.Set) (*tool.Set, error) {
	given, err := chosenTools(set, "--tools", o.tools)
	if err != nil || o.fileTools == nil {
		return given, err
	}
	filed, err := chosenTools(set, o.fileTools.Source(), o.fileTools.Values)
	if err != nil {
		return nil, err
	}
	both := slices.DeleteFunc(slices.Clone(given.Tools()), func(t tool.Tool) bool {
		_, ok := filed.Lookup(t.Name)
		return !ok
	})
	if len(both) == 0 {
		return nil, usageError{fmt.Errorf("--tools has none of the tools that %s leaves; choose some of %s, or give --no-config", o.fileTools.Source(), strings.Join(o.fileTools.Values, ", "))}
	}
	return tool.NewSet(both...), nil
}

// chosenTools returns the tools of a set that the words choose, which are names of groups and
// tools; without words it returns all.
func chosenTools(set *tool.Set, source string, words []string) (*tool.Set, error) {
	if len(words) == 0 || slices.Contains(words, allTools) {
		return set, nil
	}
	wanted := map[string]bool{}
	for _, word := range words {
		names := []string{word}
		for _, g := range toolGroups {
			if g.name == word {
				names = g.tools
			}
		}
		found := false
		for _, name := range names {
			_, there := set.Lookup(name)
			found = found || there
			wanted[name] = true
		}
		if !found {
			return nil, usageError{fmt.Errorf("%s: unknown tool or group %q; the groups are %s, the tools %s", source, word, strings.Join(groupNames(), ", "), strings.Join(namesOfTools(set), ", "))}
		}
	}
	return tool.NewSet(slices.DeleteFunc(slices.Clone(set.Tools()), func(t tool.Tool) bool { return !wanted[t.Name] })...), nil
}

func namesOfTools(set *tool.Set) (names []string) {
	for _, t := range set.Tools() {
		names = append(names, t.Name)
	}
	return names
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

// mayLose asks on a terminal before a session's files are lost, if there are changes that went nowhere.
func (a *app) mayLose(ctx context.Context, m *wisbox.Manager, name, doing string) bool {
	if _, typed := a.keyboard(); a.json || !typed || !isTerminal(a.err) {
		return true
	}
	n := a.unsaved(ctx, m, name)
	return n == 0 || a.agrees(ctx, fmt.Sprintf("%s has %s that went nowhere (wisbox diff %s shows them); %s?", name, quantity(n, "changed file", "changed files"), name, doing))
}

// unsaved counts the files of a session that were neither mounted nor brought to the host since they
// changed, as far as that is known.
func (a *app) unsaved(ctx context.Context, m *wisbox.Manager, name string) int64 {
	s, err := m.Attach(ctx, name)
	if err != nil {
		return 0
	}
	defer func() { _ = a.closeSession(ctx, s) }()
	diff, err := s.Diff(ctx, &wisbox.DiffOptions{From: "applied"}) // what apply has written, as a snapshot
	if err != nil {
		diff, err = s.Diff(ctx, nil)
	}
	if err != nil || len(diff.Changes) == 0 || broughtHome(ctx, m, name) {
		return 0
	}
	return int64(len(diff.Changes)) + diff.More
}

// carriers are the operations that bring a session's files elsewhere as a whole.
var carriers = []string{"branch", "export", "save", "clone", "template"}

// broughtHome reports whether nothing has changed since the session's files were last carried elsewhere.
func broughtHome(ctx context.Context, m *wisbox.Manager, name string) (home bool) {
	err := m.Log(ctx, name, false, func(line []byte) error {
		var e wisbox.Event
		if json.Unmarshal(line, &e) != nil {
			return nil
		}
		patch, _ := e.Args["patch"].(bool)
		dry, _ := e.Args["dry_run"].(bool)
		switch {
		case len(e.Changes) > 0 || e.Unknown:
			home = false
		case e.Outcome == "ok" && !dry && (slices.Contains(carriers, e.Tool) && e.Path == "" || e.Tool == "diff" && patch && e.Path == ""):
			home = true
		}
		return nil
	})
	return home && err == nil
}

var errKept = tool.Errorf(tool.Conflict, "nothing was changed; take the files with wisbox apply, branch or cp, or give -f")

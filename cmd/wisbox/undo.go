package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/overlay"
)

func (a *app) newUndoCmd() *cobra.Command {
	var list bool
	cmd := &cobra.Command{
		Use:   "undo SESSION [STEP]",
		Short: "Undo a call's changes",
		Long: `Undoes the last call that changed the workspace, or the call STEP (its id, as wisbox
log shows it) and all calls after it. It skips calls that changed only by-products of
programs (git's index, __pycache__, .cache and the like), unless STEP names one. The
output names the undone call; --list shows the calls that can be undone.

Sessions of run, eval and serve, and those with --no-undo, record no such calls. If
possible, wisbox keeps the state before the undo as a snapshot, and prints its id.`,
		Example: `  wisbox undo box
  wisbox undo box --list
  wisbox undo box 01j9z3k6t2v5c8x1y4b7n0m3qa`,
		Args: exactArgs("SESSION", "[STEP]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if list && len(args) == 2 {
				return usageError{errors.New("--list shows all steps; give it without STEP")}
			}
			if list {
				return a.runUndoList(cmd.Context(), args[0])
			}
			return a.runUndo(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVarP(&list, "list", "l", false, "show the last 20 calls that can be undone, the latest first")
	return cmd
}

func (a *app) runUndo(ctx context.Context, args []string) error {
	call := ""
	if len(args) == 2 {
		call = args[1]
	}
	return a.withSession(ctx, args[0], func(s *wisbox.Session) error {
		done, err := s.Undo(ctx, call)
		if err != nil {
			return err
		}
		what := a.calls(args[0], done.Call)[done.Call]
		return a.print(done, func(w io.Writer) {
			fmt.Fprintf(w, "undone: call %s%s: %s; %d brought back, %d changed, %d removed\n", done.Call, andMore(done.Calls-1),
				whatIs(done.Tool, what), done.Restored.Added, done.Restored.Changed, done.Restored.Removed)
			if done.Before == "" {
				fmt.Fprintf(w, "the state before could not be kept: %s\n", streams.Printable(done.Unkept))
				return
			}
			fmt.Fprintf(w, "the state before is snapshot %s\n", done.Before)
		})
	})
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d after it", n)
}

func (a *app) runUndoList(ctx context.Context, session string) error {
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		steps, err := s.Steps(ctx, 0)
		if err != nil {
			return err
		}
		var ids []string
		for _, step := range steps {
			ids = append(ids, step.Call)
		}
		known := a.calls(session, ids...)
		return a.print(steps, func(w io.Writer) { printSteps(w, steps, known) })
	})
}

func printSteps(w io.Writer, steps []wisbox.Step, known map[string]wisbox.Event) {
	if len(steps) == 0 {
		fmt.Fprintln(w, "there is nothing to undo; no call has left a step")
		return
	}
	tw := newTable(w, "TIME", "CALL", "CHANGED", "WHAT")
	for _, step := range steps {
		changes := changed(wisbox.Effects{Changes: step.Changes, More: step.Total - int64(len(step.Changes))})
		if step.Total == 0 {
			changes = "only by-products"
		}
		tw.row(step.At.Local().Format(time.DateTime), oneLine(step.Call), oneLine(changes), whatIs(step.Tool, known[step.Call]))
	}
	_ = tw.Flush()
}

// calls finds calls, with their arguments, in the session's log. It ignores errors: without the
// log, the table shows less.
func (a *app) calls(session string, ids ...string) map[string]wisbox.Event {
	found := map[string]wisbox.Event{}
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return found
	}
	defer store.Close()
	_ = store.Log(session, func(line []byte) error {
		var e wisbox.Event
		if json.Unmarshal(line, &e) == nil && slices.Contains(ids, e.Call) && e.Tool != "process_end" {
			found[e.Call] = e
		}
		return nil
	})
	return found
}

// whatIs describes a call: its tool, and its path or command.
func whatIs(tool string, e wisbox.Event) string {
	const most = 80 // characters
	words := []string{tool, e.Path}
	for _, name := range []string{"command", "commands", "script"} {
		switch v := e.Args[name].(type) {
		case string:
			words = append(words, v)
		case []any:
			for _, arg := range v {
				words = append(words, fmt.Sprint(arg))
			}
		}
	}
	text := []rune(oneLine(strings.Join(words, " ")))
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}

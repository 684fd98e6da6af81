package evaltool

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Bounds of a failed evaluation's report about the workspace.
const (
	maxChanged      = 64   // paths
	maxChangedBytes = 8192 // of them together
	lookTime        = time.Second
)

// changed returns the paths that changed in the workspace since the container's code began, and a
// sentence about them. The tool itself writes only after a success, but changes by open() and os
// stay. Code in WebAssembly can't change the workspace.
func (e *Evaluator) changed(ctx context.Context, c *call) (paths []string, note string) {
	if c.request.Sandbox == SandboxWasm {
		return nil, ""
	}
	b := budget.New(context.WithoutCancel(ctx), budget.Limits{Time: lookTime}) // also for a call that was given up: its code had begun
	defer b.Close()
	found, err := e.opts.Files.ChangedSince(b, c.mark, maxChanged)
	if err != nil {
		return nil, "wisbox can't say what the code changed in the workspace: " + tool.AsError(err).Message
	}
	room := maxChangedBytes
	for _, path := range found.Paths {
		if room -= len(path); room < 0 {
			break
		}
		paths = append(paths, path)
	}
	return paths, changedText(paths, found.More+int64(len(found.Paths)-len(paths)), found.Cut)
}

func changedText(paths []string, more int64, cut bool) string {
	names := append([]string{}, paths[:min(len(paths), maxListed)]...)
	if more += int64(len(paths) - len(names)); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	switch {
	case len(names) == 0 && cut:
		return "the workspace is too large to compare: it is unknown what changed in it while the code ran"
	case len(names) == 0:
		return ""
	case cut:
		names = append(names, "and maybe others: the workspace is too large to look at all of it")
	}
	return "changed in the workspace while the code ran: " + strings.Join(names, ", ")
}

// changedBeside adds the code's changes to an error.
func (e *Evaluator) changedBeside(ctx context.Context, c *call, err error) error {
	_, note := e.changed(ctx, c)
	if note == "" {
		return err
	}
	known := tool.AsError(err)
	return tool.Errorf(known.Kind, "%s; %s", known.Message, note).In(known.Field).Because(err)
}

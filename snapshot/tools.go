package snapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// About explains to a model what snapshots are for.
const About = `snapshot_create keeps the workspace as it is, snapshot_restore brings it back; take one before you try something.`

// Tools are snapshot_create, snapshot_list, snapshot_diff and snapshot_restore.
func (s *Store) Tools() []tool.Tool {
	return []tool.Tool{s.createTool(), s.listTool(), s.diffTool(), s.restoreTool()}
}

type createParams struct {
	Label   string `json:"label,omitempty" jsonschema:"one line that describes the snapshot, at most 200 characters"`
	Quiesce bool   `json:"quiesce,omitempty" jsonschema:"pause the running programs meanwhile, where the host can"`
}

// Created is the answer of snapshot_create and one line of snapshot_list.
type Created struct {
	ID        string   `json:"snapshot_id"`
	Label     string   `json:"label,omitempty"`
	Call      string   `json:"call,omitempty" jsonschema:"of a step: the call before which it was taken"`
	CreatedAt string   `json:"created_at"`
	Files     int64    `json:"files" jsonschema:"regular files"`
	Bytes     int64    `json:"bytes" jsonschema:"their sizes together"`
	NewBytes  int64    `json:"new_bytes" jsonschema:"bytes that the snapshot takes in addition to earlier ones"`
	Unstable  []string `json:"unstable,omitempty" jsonschema:"paths that changed each time they were read"`
	Skipped   []string `json:"skipped,omitempty" jsonschema:"FIFOs, sockets and devices, which no snapshot keeps"`
	Unkept    []string `json:"unkept,omitempty" jsonschema:"files kept without some attributes, such as access lists"`
}

func created(i Info) Created {
	return Created{i.ID, i.Label, i.Call, timeText(i.CreatedAt), i.Files, i.Bytes, i.NewBytes, i.Unstable, i.Skipped, i.Unkept}
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Text returns one line, followed by notes.
func (c Created) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "snapshot %s: %d files, %d bytes, %d new", c.ID, c.Files, c.Bytes, c.NewBytes)
	if c.Label != "" {
		fmt.Fprintf(&b, " (%s)", c.Label)
	}
	paths(&b, "changed while it was read", c.Unstable)
	paths(&b, "skipped, not a regular file", c.Skipped)
	paths(&b, "kept without some attributes, such as access lists", c.Unkept)
	return b.String()
}

const textPaths = 20 // of a list in the readable text

func paths(b *strings.Builder, what string, list []string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s: %s", what, strings.Join(list[:min(len(list), textPaths)], ", "))
	if more := len(list) - textPaths; more > 0 {
		fmt.Fprintf(b, " and %d more", more)
	}
}

func (s *Store) createTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "snapshot_create", Title: "Keep the workspace",
		Description: "Take a snapshot of the whole workspace: all files, modes, links, attributes (user.*) and empty directories. It stores only the changes since the last one. snapshot_restore restores it.",
	}, func(ctx context.Context, p createParams) (Created, error) {
		info, err := s.Create(ctx, &CreateOptions{Label: p.Label, Quiesce: p.Quiesce})
		return created(info), err
	})
}

// ListParams are the parameters of snapshot_list.
type ListParams struct {
	Steps bool `json:"steps,omitempty" jsonschema:"list also the steps: the snapshots that were taken before single calls, to undo them"`
}

// Listing is the answer of snapshot_list.
type Listing struct {
	Snapshots []Created `json:"snapshots" jsonschema:"the oldest first"`
	Unlisted  int       `json:"unlisted_steps,omitempty" jsonschema:"number of steps that are not in the list"`
}

// Text has one line for each snapshot.
func (l Listing) Text() string {
	var b strings.Builder
	if len(l.Snapshots) == 0 {
		b.WriteString("no snapshots\n")
	}
	for _, c := range l.Snapshots {
		fmt.Fprintf(&b, "%s  %s  %d files, %d bytes  %s\n", c.ID, c.CreatedAt, c.Files, c.Bytes, c.Label)
	}
	if l.Unlisted > 0 {
		fmt.Fprintf(&b, "(steps from before single calls that are not listed: %d; steps: true lists them)\n", l.Unlisted)
	}
	return b.String()
}

func (s *Store) listTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "snapshot_list", Title: "List snapshots", Description: "List the snapshots of the workspace, the oldest first. It leaves out steps unless you ask for them.",
		ReadOnly: true, Idempotent: true,
	}, func(ctx context.Context, p ListParams) (Listing, error) {
		infos, err := s.List(ctx)
		l := Listing{Snapshots: []Created{}}
		for _, i := range infos {
			if i.Call != "" && !p.Steps {
				l.Unlisted++
				continue
			}
			i.Unstable, i.Skipped, i.Unkept = nil, nil, nil
			l.Snapshots = append(l.Snapshots, created(i))
		}
		return l, err
	})
}

type diffParams struct {
	From string `json:"from" jsonschema:"id or label of the earlier snapshot"`
	To   string `json:"to,omitempty" jsonschema:"id or label of the later snapshot; absent: the workspace as it is"`
}

// Text lists the paths, then shows the diffs.
func (d *Diff) Text() string {
	var b, diffs strings.Builder
	for _, part := range []struct {
		sign string
		list []Change
	}{{"A", d.Added}, {"M", d.Changed}, {"D", d.Removed}} {
		for _, c := range part.list {
			fmt.Fprintf(&b, "%s %s\n", part.sign, c.Path)
			diffs.WriteString(c.Diff)
		}
	}
	if b.Len() == 0 {
		return "no differences"
	}
	if d.Truncated {
		b.WriteString("(more differences are not listed)\n")
	}
	return b.String() + diffs.String()
}

func (s *Store) diffTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "snapshot_diff", Title: "Compare snapshots",
		Description: "Show what was added, changed and removed between a snapshot and a later one, or the workspace as it is, with unified diffs of text files.",
		ReadOnly:    true, Idempotent: true,
	}, func(ctx context.Context, p diffParams) (*Diff, error) { return s.Diff(ctx, p.From, p.To) })
}

type restoreParams struct {
	ID      string `json:"snapshot_id" jsonschema:"its id from snapshot_create or snapshot_list, or its label"`
	Quiesce bool   `json:"quiesce,omitempty" jsonschema:"pause the running programs meanwhile, where the host can"`
}

// Text returns the result in one line.
func (r Restored) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "restored %s: %d brought back, %d changed, %d removed", r.ID, r.Added, r.Changed, r.Removed)
	paths(&b, "written by a program meanwhile", r.Conflicts)
	paths(&b, "skipped, not a regular file", r.Skipped)
	return b.String()
}

func (s *Store) restoreTool() tool.Tool {
	return tool.New(tool.Spec{
		Name: "snapshot_restore", Title: "Bring a snapshot back",
		Description: "Make the whole workspace exactly what it was when the snapshot was made; what was created since is removed. Running programs see the restored files. All or nothing: on an error nothing has changed, except for files removed to make room.",
		Destructive: true, Idempotent: true, Effect: tool.FreeingEffect,
	}, func(ctx context.Context, p restoreParams) (Restored, error) {
		return s.Restore(ctx, p.ID, &RestoreOptions{Quiesce: p.Quiesce})
	})
}

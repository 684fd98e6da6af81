// Package sessions prints the list of sessions.
package sessions

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/overlay"
)

// Row is one session in the output of ls.
type Row struct {
	ID       string     `json:"id"`
	State    string     `json:"state"`
	Kept     bool       `json:"kept"`
	InUse    bool       `json:"in_use"`
	Held     bool       `json:"held"`
	Created  *time.Time `json:"created_at,omitempty"`
	LastUsed *time.Time `json:"last_used,omitempty"`
	Problem  string     `json:"problem,omitempty"`
	Expired  string     `json:"expired,omitempty"` // the reason; wisbox prune removes it
}

// Rows returns the rows of sessions.
func Rows(entries []overlay.Entry) []Row {
	rows := make([]Row, 0, len(entries))
	for _, e := range entries {
		row := Row{ID: e.ID, State: e.Shown(), Kept: e.State.Kept, InUse: e.InUse, Held: e.Held, Problem: e.Problem}
		if !e.State.Created.At.IsZero() {
			row.Created, row.LastUsed = &e.State.Created.At, &e.State.LastUsed.At
		}
		if reason, over := e.State.Expired(overlay.Now()); over && e.State.Kept {
			row.Expired = reason
		}
		rows = append(rows, row)
	}
	return rows
}

// Print writes rows for people.
func Print(w io.Writer, rows []Row) {
	if len(rows) == 0 {
		fmt.Fprintln(w, "there are no sessions; make one with: wisbox create NAME")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SESSION\tSTATE\tKIND\tIN USE\tCREATED")
	for _, r := range rows {
		kind, created := "ephemeral", "unknown"
		if r.Kept {
			kind = "kept"
		}
		if r.Created != nil {
			created = r.Created.Local().Format(time.DateTime)
		}
		use := map[bool]string{true: "yes", false: "no"}[r.InUse]
		if r.Held {
			use = "held" // its holder keeps the container for the next client
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", streams.Printable(r.ID), r.State, kind, use, created)
	}
	_ = tw.Flush()
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	units "github.com/docker/go-units"

	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/overlay"
)

// logReports are of a session's calls, and of its connections if it had any.
type logReports struct {
	*overlay.LogReport

	Network *overlay.LogReport `json:"network,omitempty"`
}

func (r logReports) write(w io.Writer) {
	printLogReport(w, r.LogReport)
	if r.Network != nil {
		fmt.Fprintln(w, "connections:")
		printLogReport(w, r.Network)
	}
}

// mentionConnections says below the calls that there is another log.
func (a *app) mentionConnections(store *overlay.Store, session string) error {
	made, denied := 0, 0
	err := store.EgressLog(session, func(line []byte) error {
		var l egress.Line
		switch _ = json.Unmarshal(line, &l); l.Event {
		case "open":
			made++
		case "denied":
			denied++
		}
		return nil
	})
	if err == nil && made+denied > 0 {
		fmt.Fprintf(a.out, "network: %d connections made, %d denied; see: wisbox log %s --network\n", made, denied, session)
	}
	return err
}

// printConnections shows a line for each connection that ended, request and denial.
func printConnections(w io.Writer, lines [][]byte) {
	if len(lines) == 0 {
		fmt.Fprintln(w, "no program of this session connected to anything")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tCALL\tEVENT\tKIND\tHOST\tIN\tOUT\tRULE\tABOUT")
	for _, line := range lines {
		var l egress.Line
		if json.Unmarshal(line, &l) != nil {
			continue // another version's
		}
		about := strings.TrimSpace(fmt.Sprintf("%s %s %s", l.Method, l.Path, l.Reason))
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s:%d\t%s\t%s\t%s\t%s\n", l.Time.Local().Format(time.DateTime), oneLine(strings.Join(l.Calls, " ")), l.Event, l.Kind,
			oneLine(l.Host), l.Port, units.BytesSize(float64(l.In)), units.BytesSize(float64(l.Out)), oneLine(l.Rule), oneLine(about))
	}
	_ = tw.Flush()
}

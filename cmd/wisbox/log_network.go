package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/overlay"
)

// logReports are the reports of a session's calls, and of its connections if it had any.
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

// mentionConnections adds a line below the calls that points to the log of connections.
func (a *app) mentionConnections(ctx context.Context, m *wisbox.Manager, session string) error {
	made, denied := 0, 0
	err := m.Log(ctx, session, true, func(line []byte) error {
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
		fmt.Fprintf(a.out, "network: %d connections made, %d denied; see: wisbox history %s --network\n", made, denied, session)
	}
	return err
}

// printConnections prints a line for each ended connection, request and denial.
func printConnections(w io.Writer, lines [][]byte) {
	if len(lines) == 0 {
		fmt.Fprintln(w, "no program of this session connected to anything")
		return
	}
	tw := newTable(w, "TIME", "CALL", "EVENT", "KIND", "HOST", "IN", "OUT", "RULE", "ABOUT")
	for _, line := range lines {
		var l egress.Line
		if json.Unmarshal(line, &l) != nil {
			continue // a line of another version
		}
		about := strings.TrimSpace(fmt.Sprintf("%s %s %s", l.Method, l.Path, l.Reason))
		host := "" // of a bound that slows all programs
		if l.Host != "" {
			host = oneLine(l.Host) + ":" + strconv.Itoa(l.Port)
		}
		tw.row(l.Time.Local().Format(time.DateTime), oneLine(strings.Join(l.Calls, " ")), l.Event, l.Kind,
			host, units.BytesSize(float64(l.In)), units.BytesSize(float64(l.Out)), oneLine(l.Rule), oneLine(about))
	}
	_ = tw.Flush()
}

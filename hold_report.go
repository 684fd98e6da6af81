package wisbox

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wisbox/wisbox/internal/holdwire"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/tool"
)

// opMetrics asks a holder what it has counted. It is no use of the session: who
// asks every few seconds keeps no holder alive.
const opMetrics = "metrics"

// report answers with what the holder's Meter tells.
func (h *holder) report(c *holdwire.Conn) error {
	meter, ok := h.s.m.opts.Meter.(Reporter)
	if !ok {
		return tool.Errorf(tool.Unsupported, "this session's holder counts nothing")
	}
	var out bytes.Buffer
	if err := meter.Report(&out); err != nil {
		return err
	}
	return c.SendJSON(holdwire.Answer, out.Bytes())
}

// HolderReport is what the holder of one kept session has counted.
type HolderReport struct {
	Session string
	Report  []byte // of its [Options.Meter], since it was started
	Err     error  // there is a holder, but it gave no report
}

const (
	reportWait  = 2 * time.Second // a holder that is stopped doesn't hold up the others
	reportsOnce = 16
)

// HolderReports asks every holder of the state root's sessions for what it has
// counted, in at most 2 s each, and gives them by session. Sessions that nobody
// holds now are not among them.
func (m *Manager) HolderReports(ctx context.Context) ([]HolderReport, error) {
	all, err := m.store.List(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var reports []HolderReport
	var group errgroup.Group
	group.SetLimit(reportsOnce)
	for _, e := range all {
		if !e.InUse || e.State.Status != overlay.StateReady {
			continue
		}
		group.Go(func() error {
			if r, held := m.holderReport(ctx, e.ID); held {
				mu.Lock()
				defer mu.Unlock()
				reports = append(reports, r)
			}
			return nil
		})
	}
	_ = group.Wait() // it has no errors
	slices.SortFunc(reports, func(a, b HolderReport) int { return strings.Compare(a.Session, b.Session) })
	return reports, nil
}

func (m *Manager) holderReport(ctx context.Context, session string) (_ HolderReport, held bool) {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	running := line(func(ctx context.Context) (*holdwire.Conn, error) {
		c, err := m.dialHolder(ctx, session)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	})
	out := HolderReport{Session: session}
	out.Err = running.ask(ctx, request{Op: opMetrics}, &out.Report)
	return out, !errors.Is(out.Err, errNoHolder)
}

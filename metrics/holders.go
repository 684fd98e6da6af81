package metrics

import (
	"context"
	"encoding/json"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/exposition"
)

// Holders are the metrics of the holders of a state root's kept sessions, each with the label
// session, so that the end of a holder removes only its own counts; sum over the label for totals.
// wisbox_holder_up is 1 for each holder, and 0 for one that doesn't answer within 2 s.
type Holders struct{ of *wisbox.Manager }

var _ Gatherer = Holders{}

// NewHolders returns the metrics of the holders of m's state root. Each Gather asks the holders
// again.
func NewHolders(m *wisbox.Manager) Holders { return Holders{m} }

// Gather implements Gatherer.
func (h Holders) Gather() ([]Family, error) {
	reports, err := h.of.HolderReports(context.Background())
	if err != nil {
		return nil, err
	}
	var all []Family
	for _, r := range reports {
		var found []Family
		up := 0.0
		if r.Err == nil && json.Unmarshal(r.Report, &found) == nil {
			up = 1
		}
		found = append(found, exposition.Single("wisbox_holder_up", "Whether the process that holds the session answers.", exposition.Gauge, up))
		for _, f := range found {
			all = append(all, f.With(exposition.Label{Name: "session", Value: r.Session}))
		}
	}
	return exposition.Merge(all), nil
}

package e2b

import (
	"net/http"
	"slices"
	"strconv"
)

type statusAnswer struct {
	TemplateID string     `json:"templateID"`
	BuildID    string     `json:"buildID"`
	Status     string     `json:"status"`
	Logs       []string   `json:"logs"`
	Entries    []logEntry `json:"logEntries"`
	Reason     *reason    `json:"reason,omitempty"`
}

// buildStatus returns the state of a build, and its log from a given line.
func (s *Server) buildStatus(c call) (int, any, error) {
	from := 0
	if text := c.r.URL.Query().Get("logsOffset"); text != "" {
		var err error
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return 0, nil, fail(http.StatusBadRequest, "logsOffset must be 0 or a positive number")
		}
	}
	id := c.r.PathValue("build")
	b, ok := s.yard.find(id, c.key.Owner)
	if !ok || id != c.r.PathValue("id") {
		if t, err := s.snapshotOf(id, c.key.Owner); err == nil && t.Built && id == c.r.PathValue("id") {
			return http.StatusOK, statusAnswer{t.ID, t.ID, buildReady, []string{}, []logEntry{}, nil}, nil
		}
		return 0, nil, errNoBuild
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	page := b.lines[min(from, len(b.lines)):]
	page = slices.Clone(page[:min(logPage, len(page))])
	a := statusAnswer{b.ID, b.ID, b.status, []string{}, append([]logEntry{}, page...), b.reason}
	for _, e := range page {
		a.Logs = append(a.Logs, e.Message)
	}
	return http.StatusOK, a, nil
}

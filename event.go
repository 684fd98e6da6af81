package wisbox

import (
	"encoding/json"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// Event is the record of one tool call: a line of the session's log.jsonl and
// what [Options.OnEvent] gets. It holds no content, no environment, no code.
type Event struct {
	Time       time.Time `json:"time"`
	Session    string    `json:"session"`
	Call       string    `json:"call"`
	Tool       string    `json:"tool"`
	Path       string    `json:"path,omitempty"`
	Mode       string    `json:"mode,omitempty"`
	ResultSize int       `json:"result_bytes"`
	// Outcome is ok, failed, or the kind of the error.
	Outcome  string        `json:"outcome"`
	Message  string        `json:"message,omitempty"`
	Duration time.Duration `json:"duration_ns"`
}

// subject is what of a call's arguments an Event may tell.
type subject struct {
	FilePath string `json:"file_path"`
	Path     string `json:"path"`
	Mode     string `json:"mode"`
}

const maxEventText = 300

func (e *Event) describe(raw json.RawMessage) {
	var s subject
	_ = json.Unmarshal(raw, &s) // what isn't there or is no string stays empty
	e.Path, e.Mode = clip(s.FilePath), clip(s.Mode)
	if e.Path == "" {
		e.Path = clip(s.Path)
	}
}

func (e *Event) finish(res *tool.Result, err error, began time.Time) {
	e.Duration = time.Since(began)
	switch {
	case err != nil:
		te := tool.AsError(err)
		e.Outcome, e.Message = string(te.Kind), clip(te.Message)
	case res.Failed:
		e.Outcome, e.ResultSize = "failed", len(res.Text)
	default:
		e.Outcome, e.ResultSize = "ok", len(res.Text)
	}
}

func clip(s string) string {
	if len(s) > maxEventText {
		return s[:maxEventText]
	}
	return s
}

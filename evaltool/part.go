package evaltool

import (
	"encoding/json"

	"github.com/wisbox/wisbox/tool"
)

// Part is one piece of an evaluation's results while it runs. Exactly one field is set.
type Part struct {
	// Count is the number of the evaluation in its interpreter, from 1. It is the first part if the interpreter counts.
	Count int64 `json:"count,omitempty"`
	// Stdout and Stderr are valid UTF-8, as the code wrote it: a print is one part, and one
	// part may have several prints.
	Stdout string  `json:"stdout,omitempty"`
	Stderr string  `json:"stderr,omitempty"`
	Shown  *Object `json:"shown,omitempty"`
	Raised *Raised `json:"raised,omitempty"` // the exception that ended the code; the last part
}

// Object is one object that the code has shown, with all its forms.
type Object struct {
	Main    bool            `json:"main"` // the final value
	Text    string          `json:"text"` // its repr, of at most StreamChars characters
	Display []Display       `json:"display,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`  // of a DataFrame
	Chart   json.RawMessage `json:"chart,omitempty"` // of a matplotlib figure
	JSON    json.RawMessage `json:"json,omitempty"`  // of a list or dict that JSON can hold
}

// Raised is an uncaught exception of the code.
type Raised struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// Limits of the parts of one evaluation. Its output has none: a slow reader slows it down.
const (
	maxShown  = 32 // objects
	maxQueued = 1 << 20
)

// size returns the approximate memory of the part.
func (p Part) size() int {
	n := 64 + len(p.Stdout) + len(p.Stderr)
	if o := p.Shown; o != nil {
		n += len(o.Text) + len(o.Data) + len(o.Chart) + len(o.JSON)
		for _, d := range o.Display {
			n += len(d.Data)
		}
	}
	if r := p.Raised; r != nil {
		n += len(r.Value) + len(r.Traceback)
	}
	return n
}

// Blobs returns its pictures and documents.
func (p Part) Blobs() []tool.Blob {
	if p.Shown == nil {
		return nil
	}
	return Result{Display: p.Shown.Display}.Blobs()
}

// ObjectsOf returns the shown objects of a Response, the final value at least.
func ObjectsOf(resp Response) []*Object {
	var out []*Object
	for _, s := range resp.Results {
		o := &Object{Main: s.Main, Text: s.Text, Data: json.RawMessage(s.Data), Chart: json.RawMessage(s.Chart)}
		for _, i := range s.Display {
			o.Display = append(o.Display, resp.Display[i])
		}
		out = append(out, o)
	}
	if len(out) == 0 && resp.Value != nil {
		out = append(out, &Object{Main: true, Text: *resp.Value})
	}
	return out
}

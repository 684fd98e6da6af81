package driver

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/wisbox/wisbox/evaltool"
)

// event is a message that the driver sends while the code runs.
type event struct {
	ID    string `json:"id"`
	Shown *shown `json:"shown"`
}

type shown struct {
	Main    bool               `json:"main"`
	Text    string             `json:"text"`
	Display []evaltool.Display `json:"display"`
	Data    string             `json:"data"`
	Chart   string             `json:"chart"`
	JSON    string             `json:"json"`
}

// ParseEvent parses a message that the driver sends during the evaluation of that ID. ok is false if the message is not
// an event. The object is nil if it breaks the limits of an [Answer]; its sender still waits for a reply.
func ParseEvent(body []byte, id string) (object *evaltool.Object, ok bool) {
	var head struct {
		ID    string          `json:"id"`
		Shown json.RawMessage `json:"shown"`
	}
	if json.Unmarshal(body, &head) != nil || head.ID != id || head.Shown == nil {
		return nil, false
	}
	var e event
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if dec.Decode(&e) != nil || e.Shown == nil || !e.Shown.valid() {
		return nil, true
	}
	return e.Shown.object(), true
}

func (s *shown) valid() bool {
	return utf8.RuneCountInString(s.Text) <= evaltool.StreamChars && len(s.Display) <= MaxDisplays &&
		!slices.ContainsFunc(s.Display, wrongDisplay) && !wrongData(s.Data) && !wrongData(s.Chart) &&
		(s.JSON == "" || len(s.JSON) <= maxDataBytes && json.Valid([]byte(s.JSON)))
}

func (s *shown) object() *evaltool.Object {
	all := Answer{Display: s.Display, Results: []Shown{{Main: s.Main, Text: s.Text, Data: s.Data, Chart: s.Chart}}}
	for i := range s.Display {
		all.Results[0].Display = append(all.Results[0].Display, i)
	}
	var resp evaltool.Response
	resp.Display, resp.Results = all.shown()
	if len(resp.Results) == 0 { // its data had no room besides its pictures
		return &evaltool.Object{Main: s.Main, Text: evaltool.Clip(s.Text, evaltool.StreamChars), Display: resp.Display}
	}
	object := evaltool.ObjectsOf(resp)[0]
	if s.JSON != "" {
		object.JSON = json.RawMessage(s.JSON)
	}
	return object
}

package driver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/wisbox/wisbox/evaltool"
)

// Limits of an answer. The driver observes them; they also hold if code answers in its place.
const (
	MaxWrites   = 64
	MaxDisplays = 32

	maxGlobals      = 20_000
	maxDropped      = 20 // names
	maxDisplayBytes = 4 << 20
	maxDisplayTotal = 8 << 20 // of all of them
	maxDataBytes    = 4 << 20 // of one table or chart as data: 1 Mi characters
)

// StatusInterrupted is the driver's own status, besides evaltool's exited and exception.
const StatusInterrupted = "interrupted"

// Answer is a message from the driver, or from code that speaks in its place.
type Answer struct {
	ID             string             `json:"id"`
	Status         string             `json:"status"`
	Value          *string            `json:"value"`
	Traceback      string             `json:"traceback"`
	Globals        map[string]string  `json:"globals"`
	GlobalsDropped int                `json:"globals_dropped"`
	DroppedNames   []string           `json:"dropped_names"`
	Fields         map[string]string  `json:"fields"`
	Faults         map[string]string  `json:"faults"`
	Writes         []evaltool.Queued  `json:"writes"`
	Display        []evaltool.Display `json:"display"`
	DisplayDropped int                `json:"display_dropped"`
	Results        []Shown            `json:"results"`
	Count          int64              `json:"count"`
	Raised         *Raised            `json:"raised"`
}

// Raised is the code's exception, if the request has a feed.
type Raised struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Shown is one result; Data and Chart are JSON text.
type Shown struct {
	Main    bool   `json:"main"`
	Text    string `json:"text"`
	Display []int  `json:"display"`
	Data    string `json:"data"`
	Chart   string `json:"chart"`
}

// ErrAnswer reports a message that is malformed or exceeds its limits.
var ErrAnswer = errors.New("the answer breaks the protocol")

// ParseAnswer parses an answer. The caller compares its ID.
func ParseAnswer(body []byte) (Answer, error) {
	var a Answer
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if dec.Decode(&a) != nil || dec.More() || !a.valid() {
		return Answer{}, ErrAnswer
	}
	return a, nil
}

// Fill copies the content of a successful answer.
func (a Answer) Fill(resp *evaltool.Response) {
	a.FillFailed(resp)
	resp.Value = a.Value
}

// FillShown copies the displays of the code, up to its end or failure.
func (a Answer) FillShown(resp *evaltool.Response) {
	resp.Count = a.Count
	if a.Raised != nil {
		clip := func(text string) string { return evaltool.Clip(text, evaltool.StreamChars) }
		resp.Raised = &evaltool.Raised{Name: clip(a.Raised.Name), Value: clip(a.Raised.Value), Traceback: clip(a.Traceback)}
	}
	resp.Display, resp.Results = a.shown()
	if a.DisplayDropped > 0 {
		resp.Notes = append(resp.Notes, fmt.Sprintf("%d displays were too large, too many or of an invalid type and were left out", a.DisplayDropped))
	}
}

// FillFailed copies the globals and writes of the code up to its failure.
func (a Answer) FillFailed(resp *evaltool.Response) {
	a.FillShown(resp)
	resp.Globals, resp.Dropped, resp.DroppedNames = a.Globals, a.GlobalsDropped, a.DroppedNames
	resp.Fields, resp.Faults, resp.Writes = a.Fields, a.Faults, a.Writes
}

func (a Answer) valid() bool {
	return slices.Contains([]string{evaltool.StatusExited, evaltool.StatusException, StatusInterrupted}, a.Status) &&
		a.GlobalsDropped >= 0 && a.DisplayDropped >= 0 && a.Count >= 0 &&
		len(a.DroppedNames) <= maxDropped && len(a.Globals) <= maxGlobals && validGlobals(a.Globals) &&
		len(a.Writes) <= MaxWrites && !slices.ContainsFunc(a.Writes, wrongMode) &&
		len(a.Display) <= MaxDisplays && !slices.ContainsFunc(a.Display, wrongDisplay) &&
		len(a.Results) <= MaxDisplays && !slices.ContainsFunc(a.Results, a.wrongResult)
}

func validGlobals(globals map[string]string) bool {
	for name, text := range globals {
		if utf8.RuneCountInString(name) > evaltool.StreamChars {
			return false
		}
		if !strings.HasPrefix(text, "!repr:") && !json.Valid([]byte(text)) {
			return false
		}
	}
	return true
}

func wrongMode(q evaltool.Queued) bool {
	return !slices.Contains([]string{"create", "overwrite", "append"}, q.Mode)
}

var mimePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z]+/[A-Za-z0-9.+_-]{1,80}$`) })

func wrongDisplay(d evaltool.Display) bool {
	return !mimePattern().MatchString(d.MIME) || len(d.Data) > maxDisplayBytes
}

func (a Answer) wrongResult(r Shown) bool {
	outside := func(i int) bool { return i < 0 || i >= len(a.Display) }
	return utf8.RuneCountInString(r.Text) > evaltool.StreamChars || len(r.Display) > MaxDisplays ||
		slices.ContainsFunc(r.Display, outside) || wrongData(r.Data) || wrongData(r.Chart)
}

func wrongData(text string) bool {
	return len(text) > maxDataBytes || text != "" && (text[0] != '{' || !json.Valid([]byte(text)))
}

// shown returns the displays and results of the answer that fit the limits and each other. It drops pictures that
// aren't base64.
func (a Answer) shown() ([]evaltool.Display, []evaltool.Shown) {
	var items []evaltool.Display
	moved := map[int]int{} // index in the answer to index here
	left := maxDisplayTotal
	for i, d := range a.Display {
		if left -= len(d.Data); left < 0 {
			break
		}
		if evaltool.IsBinary(d.MIME) {
			if _, err := base64.StdEncoding.DecodeString(d.Data); err != nil {
				continue
			}
		}
		moved[i] = len(items)
		items = append(items, d)
	}
	var results []evaltool.Shown
	for _, r := range a.Results {
		if left -= len(r.Data) + len(r.Chart); left < 0 {
			break
		}
		results = append(results, r.result(moved))
	}
	return items, results
}

func (r Shown) result(moved map[int]int) evaltool.Shown {
	out := evaltool.Shown{Main: r.Main, Text: strings.ToValidUTF8(r.Text, "\uFFFD"), Display: []int{}}
	for _, i := range r.Display {
		if at, there := moved[i]; there {
			out.Display = append(out.Display, at)
		}
	}
	if r.Data != "" {
		out.Data = []byte(r.Data)
	}
	if r.Chart != "" {
		out.Chart = []byte(r.Chart)
	}
	return out
}

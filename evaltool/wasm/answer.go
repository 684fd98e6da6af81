package wasm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/evaltool"
)

// The bounds of an answer. The driver keeps them; these hold whoever answers.
const (
	maxGlobals      = 20_000
	maxDisplay      = 32
	maxDisplayBytes = 4 << 20
	maxQueued       = 64
)

// answer is a message of the driver, or of code that speaks in its place.
type answer struct {
	ID             string             `json:"id"`
	Status         string             `json:"status"`
	Value          *string            `json:"value"`
	Traceback      string             `json:"traceback"`
	Unsupported    string             `json:"unsupported"`
	Globals        map[string]string  `json:"globals"`
	GlobalsDropped int                `json:"globals_dropped"`
	Names          map[string]string  `json:"names"`
	Writes         []evaltool.Queued  `json:"writes"`
	Display        []evaltool.Display `json:"display"`
	DisplayDropped int                `json:"display_dropped"`
}

// parseAnswer reads an answer; nil is that it makes no sense.
func parseAnswer(raw []byte) *answer {
	var a answer
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if dec.Decode(&a) != nil || dec.More() || !a.valid() {
		return nil
	}
	return &a
}

func (a *answer) valid() bool {
	return (a.Status == evaltool.StatusExited || a.Status == evaltool.StatusException) &&
		a.GlobalsDropped >= 0 && a.DisplayDropped >= 0 && len(a.Globals) <= maxGlobals && validGlobals(a.Globals) &&
		len(a.Writes) <= maxQueued && !slices.ContainsFunc(a.Writes, wrongMode) &&
		len(a.Display) <= maxDisplay && !slices.ContainsFunc(a.Display, wrongDisplay)
}

func validGlobals(globals map[string]string) bool {
	for name, text := range globals {
		if len(name) > 4*evaltool.StreamChars || !strings.HasPrefix(text, "!repr:") && !json.Valid([]byte(text)) {
			return false
		}
	}
	return true
}

func wrongMode(q evaltool.Queued) bool {
	return !slices.Contains([]string{"create", "overwrite", "append"}, q.Mode)
}

var mimePattern = regexp.MustCompile(`^[a-z]+/[A-Za-z0-9.+_-]{1,80}$`)

func wrongDisplay(d evaltool.Display) bool {
	return !mimePattern.MatchString(d.MIME) || len(d.Data) > maxDisplayBytes
}

// fill takes over what a good answer holds.
func (a *answer) fill(resp *evaltool.Response) {
	resp.Value, resp.Names, resp.Writes = a.Value, a.Names, a.Writes
	resp.Globals, resp.Dropped, resp.Display = a.Globals, a.GlobalsDropped, slices.DeleteFunc(a.Display, brokenPicture)
	if a.DisplayDropped > 0 {
		resp.Notes = append(resp.Notes, fmt.Sprintf("%d displays were too large or too many and were left out", a.DisplayDropped))
	}
}

// brokenPicture tells whether a picture is no base64.
func brokenPicture(d evaltool.Display) bool {
	if !strings.HasPrefix(d.MIME, "image/") || d.MIME == "image/svg+xml" {
		return false
	}
	_, err := base64.StdEncoding.DecodeString(d.Data)
	return err != nil
}

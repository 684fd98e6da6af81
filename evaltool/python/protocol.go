package python

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/evaltool"
)

// The bounds of an answer. The driver keeps them; these hold whoever answers.
const (
	maxMessage      = 32 << 20 // bytes
	maxGlobals      = 20_000
	maxDisplay      = 32
	maxDisplayBytes = 4 << 20
	maxDisplayTotal = 8 << 20 // of all of them
	maxQueued       = 64
)

// request is a message to the driver; the texts of its reads follow it.
type request struct {
	ID         string            `json:"id"`
	Code       string            `json:"code"`
	Globals    map[string]string `json:"globals"`
	Reads      []readHeader      `json:"reads"`
	Names      []string          `json:"names"`
	Restricted bool              `json:"restricted"`
	Kept       bool              `json:"kept"`
}

type readHeader struct {
	Path string `json:"path"`
	Size int    `json:"size"`
}

// newRequest gives a request its id, which is unpredictable.
func newRequest(req evaltool.Request) request {
	r := request{
		ID: secret(), Code: req.Code, Globals: req.Globals, Reads: []readHeader{},
		Names: append([]string{}, req.Names...), Restricted: req.Sandbox == evaltool.SandboxRestricted, Kept: req.Kept,
	}
	if r.Globals == nil {
		r.Globals = map[string]string{}
	}
	for _, f := range req.Reads {
		r.Reads = append(r.Reads, readHeader{f.Path, len(f.Text)})
	}
	return r
}

// encode is the whole request as it travels. The texts are not copied.
func (r request) encode(files []evaltool.File) (io.Reader, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	parts := []io.Reader{bytes.NewReader(append(head, body...))}
	for _, f := range files {
		parts = append(parts, strings.NewReader(f.Text))
	}
	return io.MultiReader(parts...), nil
}

// Statuses of an answer; interrupted is the driver's own.
const statusInterrupted = "interrupted"

// answer is a message from the driver, or from code that speaks in its place.
type answer struct {
	ID             string            `json:"id"`
	Status         string            `json:"status"`
	Value          *string           `json:"value"`
	Traceback      string            `json:"traceback"`
	Unsupported    string            `json:"unsupported"`
	Globals        map[string]string `json:"globals"`
	GlobalsDropped int               `json:"globals_dropped"`
	Names          map[string]string `json:"names"`
	Writes         []evaltool.Queued `json:"writes"`
	Display        []display         `json:"display"`
	DisplayDropped int               `json:"display_dropped"`
}

type display struct {
	MIME string `json:"mime"`
	Data string `json:"data"`
}

var errAnswer = errors.New("the answer breaks the protocol")

// parseAnswer reads the answer to the request with that id.
func parseAnswer(body []byte, id string) (answer, error) {
	var a answer
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil || dec.More() {
		return answer{}, errAnswer
	}
	if a.ID != id || !a.valid() {
		return answer{}, errAnswer
	}
	return a, nil
}

func (a answer) valid() bool {
	return slices.Contains([]string{evaltool.StatusExited, evaltool.StatusException, statusInterrupted}, a.Status) &&
		a.GlobalsDropped >= 0 && a.DisplayDropped >= 0 &&
		len(a.Globals) <= maxGlobals && validGlobals(a.Globals) &&
		len(a.Writes) <= maxQueued && !slices.ContainsFunc(a.Writes, wrongMode) &&
		len(a.Display) <= maxDisplay && !slices.ContainsFunc(a.Display, wrongDisplay)
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

var mimePattern = regexp.MustCompile(`^[a-z]+/[A-Za-z0-9.+_-]{1,80}$`)

func wrongDisplay(d display) bool {
	return !mimePattern.MatchString(d.MIME) || len(d.Data) > maxDisplayBytes
}

// shown are the displays of the answer, as far as they fit together; a picture
// that is no base64 is none.
func (a answer) shown() []evaltool.Display {
	var out []evaltool.Display
	total := 0
	for _, d := range a.Display {
		if total += len(d.Data); total > maxDisplayTotal {
			break
		}
		if strings.HasPrefix(d.MIME, "image/") && d.MIME != "image/svg+xml" {
			if _, err := base64.StdEncoding.DecodeString(d.Data); err != nil {
				continue
			}
		}
		out = append(out, evaltool.Display{MIME: d.MIME, Data: d.Data})
	}
	return out
}

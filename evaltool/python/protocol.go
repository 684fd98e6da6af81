package python

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/internal/interp"
)

const maxMessage = 32 << 20 // bytes

// request is a message to the driver; the texts of its reads follow it.
type request struct {
	ID         string            `json:"id"`
	Code       string            `json:"code"`
	Globals    map[string]string `json:"globals"`
	Reads      []readHeader      `json:"reads"`
	Fields     []string          `json:"fields"`
	Restricted bool              `json:"restricted"`
	Kept       bool              `json:"kept"`
	Feed       bool              `json:"feed,omitempty"`
	Dir        string            `json:"dir,omitempty"` // of a new interpreter
	Env        map[string]string `json:"env,omitempty"`
	Interrupts int               `json:"interrupts,omitempty"` // number ever sent to the interpreter
}

type readHeader struct {
	Path string `json:"path"`
	Size int    `json:"size"`
}

// newRequest returns the request with a new ID, which is unpredictable.
func newRequest(req evaltool.Request) request {
	r := request{
		ID: interp.Secret(), Code: req.Code, Globals: req.Globals, Reads: []readHeader{},
		Fields: append([]string{}, req.Fields...), Restricted: req.Sandbox == evaltool.SandboxRestricted, Kept: req.Kept,
		Feed: req.Feed != nil, Env: req.Env,
	}
	if r.Globals == nil {
		r.Globals = map[string]string{}
	}
	for _, f := range req.Reads {
		r.Reads = append(r.Reads, readHeader{f.Path, len(f.Text)})
	}
	return r
}

// encode returns the request's encoding. It doesn't copy the texts.
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

// received is the reply to an event: an empty message. The driver waits for it, so that later output follows the
// object.
var received = make([]byte, 4)

// told passes on the driver's events for that request while the code runs.
func (r request) told(feed *evaltool.Feed) func(message []byte) (reply []byte, taken bool) {
	if feed == nil {
		return nil
	}
	n := 0
	return func(message []byte) ([]byte, bool) {
		shown, ok := driver.ParseEvent(message, r.ID)
		if !ok {
			return nil, false
		}
		if n++; n > driver.MaxDisplays { // the driver itself sends no more
			return nil, true
		}
		if shown != nil {
			feed.Put(evaltool.Part{Shown: shown})
		}
		return received, true
	}
}

// parseAnswer parses the answer to the request with that ID.
func parseAnswer(body []byte, id string) (driver.Answer, error) {
	a, err := driver.ParseAnswer(body)
	if err == nil && a.ID != id {
		err = driver.ErrAnswer
	}
	if err != nil {
		return driver.Answer{}, err
	}
	return a, nil
}

package lisp

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// op is the driver's operation.
type op string

const (
	opEvaluate    op = "evaluate"
	opCompile     op = "compile"
	opSyntax      op = "syntax"
	opExpand      op = "expand"
	opDescribe    op = "describe"
	opApropos     op = "apropos"
	opDefinitions op = "definitions"
)

// request is one request to the driver; empty fields are not sent.
type request struct {
	op      op
	timeout time.Duration // 0 means none

	Code, Package, Name, Pattern, Type string
	Full                               bool
	limit                              int // characters of each text
}

// encode returns the request's encoding: its length and a plist.
func (r request) encode(id string, interrupts int) []byte {
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	b.WriteString("(:op :" + string(r.op) + " :id " + quote(id))
	b.WriteString(" :interrupts " + strconv.Itoa(interrupts) + " :limit " + strconv.Itoa(r.limit))
	for _, f := range []struct{ name, value string }{
		{"code", r.Code}, {"name", r.Name}, {"pattern", r.Pattern}, {"package", r.Package}, {"type", r.Type},
	} {
		if f.value != "" || f.name != "package" && f.name != "type" { // these two are omitted for the default
			b.WriteString(" :" + f.name + " " + quote(f.value))
		}
	}
	if r.Full {
		b.WriteString(" :full t")
	}
	b.WriteByte(')')
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-4))
	return b.Bytes()
}

// quote returns text as a Lisp string.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// outcome is the driver's result of a request.
type outcome string

const (
	outcomeDone        outcome = "done"
	outcomeError       outcome = "error"
	outcomeInterrupted outcome = "interrupted"
	outcomeNoPackage   outcome = "no_package"
)

// Limits of an answer. The driver observes them; they also hold if code answers in its place.
const (
	maxMessage     = 32 << 20 // bytes
	maxItems       = 10_000   // of a list
	readyID        = "ready"
	maxDefinitions = 4 << 20 // bytes of source that a session records
)

// answer is a message from the driver, or from code that speaks in its place.
type answer struct {
	ID          string       `json:"id"`
	Outcome     outcome      `json:"outcome"`
	OutDropped  int64        `json:"out_dropped"`
	ErrDropped  int64        `json:"err_dropped"`
	Package     string       `json:"package"`
	Error       *Condition   `json:"error"`
	Warnings    []Warning    `json:"warnings"`
	Notes       []string     `json:"notes"`
	Timing      *Timing      `json:"timing"`
	Definitions []definition `json:"definitions"`
	Values      []excerpt    `json:"values"`
	MoreValues  int          `json:"more_values"`

	excerpt             // of the requested text: an expansion, a description
	Errors   []Warning  `json:"errors"`
	Forms    int        `json:"forms"`
	Position int        `json:"position"`
	Problem  *Condition `json:"problem"`
	Missing  bool       `json:"missing"`
	Entries  []Entry    `json:"entries"`
	Total    int        `json:"total"`
	Packages []string   `json:"packages"`
}

// excerpt is the beginning of a text and the number of further characters.
type excerpt struct {
	Text    string `json:"text"`
	Dropped int64  `json:"dropped"`
}

var errAnswer = errors.New("the answer breaks the protocol")

// parseAnswer parses the answer to the request with that ID.
func parseAnswer(body []byte, id string) (*answer, error) {
	a := &answer{}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(a); err != nil || dec.More() || a.ID != id || !a.valid() {
		return nil, errAnswer
	}
	return a, nil
}

func (a *answer) valid() bool {
	return slices.Contains([]outcome{outcomeDone, outcomeError, outcomeInterrupted, outcomeNoPackage}, a.Outcome) &&
		(a.Outcome == outcomeError) == (a.Error != nil) &&
		min(a.OutDropped, a.ErrDropped, a.Dropped) >= 0 && min(a.Forms, a.Position, a.Total, a.MoreValues) >= 0 &&
		max(len(a.Warnings), len(a.Notes), len(a.Values), len(a.Errors), len(a.Entries), len(a.Packages), len(a.Definitions)) <= maxItems &&
		!slices.ContainsFunc(a.Values, func(v excerpt) bool { return v.Dropped < 0 })
}

// secret returns a word that the code can't have known before its call.
func secret() string {
	var word [16]byte
	_, _ = rand.Read(word[:]) // never fails: crypto/rand
	return hex.EncodeToString(word[:])
}

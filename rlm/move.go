package rlm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// The modes of a move.
const (
	ModeExplore = "explore"
	ModeCommit  = "commit"
	ModeFinal   = "final"
)

// Step is one operation, and the name for its result.
type Step struct {
	Op   string         `json:"op"`
	Args map[string]any `json:"args,omitempty"`
	Bind string         `json:"bind,omitempty"`
}

// Move is a model's decision in one message: to explore by one operation, to commit to a
// program of which only the output comes back, or to give its final answer, in words or as the
// name of a binding.
type Move struct {
	Mode string `json:"mode"`

	Step          // explore
	Steps  []Step `json:"steps,omitempty"`  // commit
	Output string `json:"output,omitempty"` // commit: the binding whose text comes back

	Answer  string `json:"answer,omitempty"`  // final
	Binding string `json:"binding,omitempty"` // final, instead of answer
}

// moveJSON has every member of a message, to distinguish the members that are present. An
// explore may have its step in the object operation, and a commit its steps under the name
// operations: docs/rlm.md has the schema.
type moveJSON struct {
	Mode       string    `json:"mode"`
	Op         *string   `json:"op"`
	Args       anyObject `json:"args"`
	Bind       *string   `json:"bind"`
	Operation  *stepJSON `json:"operation"`
	Steps      *[]Step   `json:"steps"`
	Operations *[]Step   `json:"operations"`
	Output     *string   `json:"output"`
	Answer     *string   `json:"answer"`
	Binding    *string   `json:"binding"`
}

type stepJSON struct {
	Op   *string   `json:"op"`
	Args anyObject `json:"args"`
	Bind *string   `json:"bind"`
}

type anyObject = map[string]any

// has reports which kinds of move the message has members of.
func (m *moveJSON) has() (flat, nested, program, final bool) {
	flat = m.Op != nil || m.Args != nil || m.Bind != nil
	nested = m.Operation != nil
	program = m.Steps != nil || m.Operations != nil || m.Output != nil
	final = m.Answer != nil || m.Binding != nil
	return flat, nested, program, final
}

// The bounds of a message.
const (
	maxMessage    = 1 << 20 // bytes
	maxCandidates = 64      // places where a move may begin
	maxSteps      = 64
)

// ParseMove finds the one move in a model's message: JSON, bare, in a fence or
// with prose around it. Errors are *tool.Error of kind invalid, in words for the
// model.
func ParseMove(message string) (Move, error) {
	if len(message) > maxMessage {
		return Move{}, tool.Errorf(tool.Invalid, "the message has %d bytes; the maximum is %d", len(message), maxMessage)
	}
	var first error
	rest := message
	for range maxCandidates {
		at := strings.IndexByte(rest, '{')
		if at < 0 {
			break
		}
		rest = rest[at:]
		raw, ok := firstObject(rest)
		if !ok {
			rest = rest[1:]
			continue
		}
		move, err := decodeMove(raw)
		if err == nil {
			return move, nil
		}
		if first == nil {
			first = err
		}
		rest = rest[len(raw):]
	}
	if first != nil {
		return Move{}, first
	}
	return Move{}, tool.Errorf(tool.Invalid, "the message has no JSON object; answer with exactly one")
}

func firstObject(text string) (json.RawMessage, bool) {
	var raw json.RawMessage
	if json.NewDecoder(strings.NewReader(text)).Decode(&raw) != nil {
		return nil, false
	}
	return raw, true
}

func decodeMove(raw []byte) (Move, error) {
	var m moveJSON
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		return Move{}, tool.Errorf(tool.Invalid, "the object is not a move: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch m.Mode {
	case ModeExplore:
		return m.explore()
	case ModeCommit:
		return m.commit()
	case ModeFinal:
		return m.final()
	}
	return Move{}, tool.Errorf(tool.Invalid, "mode is %q; it must be explore, commit or final", clip(m.Mode, 80)).In("mode")
}

func (m *moveJSON) explore() (Move, error) {
	flat, nested, program, final := m.has()
	said := stepJSON{m.Op, m.Args, m.Bind}
	if nested {
		said = *m.Operation
	}
	if said.Op == nil || flat && nested || program || final {
		return Move{}, tool.Errorf(tool.Invalid, `an explore is {"mode":"explore","op":…,"args":{…},"bind":…}, or has these three in an object operation, and nothing else`)
	}
	step := Step{Op: *said.Op, Args: withoutNulls(said.Args), Bind: deref(said.Bind)}
	return Move{Mode: ModeExplore, Step: step}, step.check()
}

func (m *moveJSON) commit() (Move, error) {
	flat, nested, _, final := m.has()
	if (m.Steps == nil) == (m.Operations == nil) || m.Output == nil || flat || nested || final {
		return Move{}, tool.Errorf(tool.Invalid, `a commit is {"mode":"commit","steps":[{"op":…,"args":{…},"bind":…}],"output":…}, where steps may be called operations, and nothing else`)
	}
	steps := slices.Concat(deref(m.Steps), deref(m.Operations))
	if len(steps) == 0 || len(steps) > maxSteps {
		return Move{}, tool.Errorf(tool.Invalid, "a commit has 1 to %d steps, not %d", maxSteps, len(steps)).In("steps")
	}
	for i := range steps {
		steps[i].Args = withoutNulls(steps[i].Args)
		if err := steps[i].check(); err != nil {
			return Move{}, err
		}
		if steps[i].Bind == "" {
			return Move{}, tool.Errorf(tool.Invalid, "step %d of the commit has no bind", i+1).In("steps")
		}
	}
	return Move{Mode: ModeCommit, Steps: steps, Output: *m.Output}, checkName(*m.Output)
}

func (m *moveJSON) final() (Move, error) {
	flat, nested, program, _ := m.has()
	if (m.Answer == nil) == (m.Binding == nil) || flat || nested || program {
		return Move{}, tool.Errorf(tool.Invalid, `a final is {"mode":"final","answer":…} or {"mode":"final","binding":…} and nothing else`)
	}
	if m.Binding != nil {
		return Move{Mode: ModeFinal, Binding: *m.Binding}, checkName(*m.Binding)
	}
	return Move{Mode: ModeFinal, Answer: *m.Answer}, nil
}

func (s Step) check() error {
	if s.Op == "" {
		return tool.Errorf(tool.Invalid, "op is missing").In("op")
	}
	if s.Bind == "" {
		return nil
	}
	return checkName(s.Bind)
}

// withoutNulls drops members that are null, which models write for members that they mean to
// leave out.
func withoutNulls(args map[string]any) map[string]any {
	for name, value := range args {
		if value == nil {
			delete(args, name)
		}
	}
	return args
}

// deref returns *p, or the zero value if p is nil.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// String returns the move as a model's message.
func (m Move) String() string {
	fields := map[string]any{"mode": m.Mode}
	switch m.Mode {
	case ModeExplore:
		fields["op"] = m.Op
		if len(m.Args) > 0 {
			fields["args"] = m.Args
		}
		if m.Bind != "" {
			fields["bind"] = m.Bind
		}
	case ModeCommit:
		fields["steps"], fields["output"] = m.Steps, m.Output
	case ModeFinal:
		fields["answer"] = m.Answer
		if m.Binding != "" {
			delete(fields, "answer")
			fields["binding"] = m.Binding
		}
	}
	raw, _ := json.Marshal(fields) // of strings, numbers and lists
	return string(raw)
}

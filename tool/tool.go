// Package tool is the leaf that every tool of wisbox speaks: a Spec, a typed
// function behind strict JSON decoding, a Result and an Error.
//
// A tool is made with [New] from a function over two Go types. The parameter
// type is the contract: its JSON names, which fields are required, defaults,
// bounds and enumerations are struct tags, and both the strict decoder and the
// JSON Schema come from them. It imports nothing of wisbox.
//
// Tags of a parameter field:
//
//	json:"name"            required
//	json:"name,omitempty"  optional (omitzero likewise)
//	jsonschema:"text"      description
//	default:"2000"         value when the field is absent
//	min:"0" max:"100"      inclusive bounds of a number: outside is invalid
//	enum:"create|append"   the values a string may have
//	alias:"path"           another name that is taken; it stands in no schema
//	hint:"…"               what to do, behind the error that a value has another type
//
// Sizes and times that the contract clamps have no min and max tag: their tool
// clamps them and says so.
package tool

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Spec describes a tool, for people, models and MCP clients.
type Spec struct {
	Name        string
	Title       string
	Description string

	ReadOnly    bool // changes nothing, anywhere
	Destructive bool // may remove or replace what was there
	Idempotent  bool // a second identical call changes nothing more
	OpenWorld   bool // reaches beyond the sandbox: no tool of wisbox does

	Effect    Effect // how a call can change the workspace
	NeedsRoom bool   // writes into the workspace from the host side, so it is refused where that is full
}

// Effect is how a call of a tool can change the workspace, and so who knows what
// it changed. A session makes a step before a call that has one.
type Effect int

const (
	NoEffect      Effect = iota // changes nothing in the workspace
	FileEffect                  // changes files itself and reports them in [Result.Changes]
	ProgramEffect               // runs programs, which end with the call
	LastingEffect               // starts or steers programs that live on after the call
	FreeingEffect               // as FileEffect, and gives room back: it must work where no step can be made
)

// Told says that a call with the effect reports all that it changes.
func (e Effect) Told() bool { return e == NoEffect || e == FileEffect || e == FreeingEffect }

// Blob is binary content of a result, an image for instance.
type Blob struct {
	MIME string
	Data []byte
}

// Result is what a tool answers when it was able to do its work.
type Result struct {
	Value  any    // marshals to the result object
	Text   string // the same, laid out for a model to read; never empty
	Failed bool   // what the program did is a failure that a caller should notice
	Blobs  []Blob

	// Verdict is how the program that the tool ran ended; empty where it ran none.
	Verdict string
	// Changes are the files that the tool itself changed, for the audit log; what
	// programs changed isn't among them.
	Changes []Change
}

// Change is what a tool did to one path of the workspace.
type Change struct {
	Path    string `json:"path"`
	SHA256  string `json:"sha256,omitempty"`  // of the new content, hexadecimal
	Removed bool   `json:"removed,omitempty"` // with all below it
}

// A result type may implement these to shape its Result. Text defaults to
// indented JSON, Failed to false, the others to none.
type (
	texter  interface{ Text() string }
	failer  interface{ Failed() bool }
	blober  interface{ Blobs() []Blob }
	changer interface{ Changes() []Change }
	verdict interface{ Verdict() string }
)

// Tool is a named function over JSON. Its methods may be called from many
// goroutines at once.
type Tool struct {
	Spec
	Input  *jsonschema.Schema // of the parameters
	Output *jsonschema.Schema // of Result.Value

	check func(json.RawMessage) error
	call  func(context.Context, json.RawMessage) (*Result, error)
}

// New makes a tool from fn. P and R are structs. It panics when P or R can't be
// described, which the tool's first test shows.
func New[P, R any](spec Spec, fn func(context.Context, P) (R, error)) Tool {
	return NewChanging(spec, func(ctx context.Context, p P) (R, []Change, error) {
		value, err := fn(ctx, p)
		return value, nil, err
	})
}

// NewChanging is New for a tool whose result doesn't tell what it changed: fn
// returns the changes beside it.
func NewChanging[P, R any](spec Spec, fn func(context.Context, P) (R, []Change, error)) Tool {
	in, out := schemaOf[P](false), schemaOf[R](true)
	check := func(raw json.RawMessage) error { return Decode(raw, new(P)) }
	return Tool{Spec: spec, Input: in, Output: out, check: check, call: func(ctx context.Context, raw json.RawMessage) (*Result, error) {
		var params P
		if err := Decode(raw, &params); err != nil {
			return nil, err
		}
		value, changes, err := fn(ctx, params)
		if err != nil {
			return nil, err
		}
		res, err := ResultOf(value)
		if err == nil && changes != nil {
			res.Changes = changes
		}
		return res, err
	}}
}

// Call runs the tool. Every error it returns is an *Error.
func (t Tool) Call(ctx context.Context, raw json.RawMessage) (*Result, error) {
	res, err := t.call(ctx, raw)
	if err != nil {
		return nil, AsError(err)
	}
	return res, nil
}

// Check gives the error that Call would give at once for arguments whose form is not
// that of the parameters, and does nothing. It is for callers that would have to start
// something first. What is wrong with their values Call may still find.
func (t Tool) Check(raw json.RawMessage) error { return t.check(raw) }

// Renamed is the same tool under another name, for profiles.
func (t Tool) Renamed(name string) Tool {
	t.Name = name
	return t
}

// Via is the same tool, run by call with the arguments as they came.
func (t Tool) Via(call func(ctx context.Context, raw json.RawMessage) (*Result, error)) Tool {
	t.call = call
	return t
}

// ResultOf is what a tool that answers value gives its caller.
func ResultOf(value any) (*Result, error) {
	res := &Result{Value: value}
	if v, ok := value.(texter); ok {
		res.Text = v.Text()
	} else {
		raw, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("marshal %T: %w", value, err)
		}
		res.Text = string(raw)
	}
	if v, ok := value.(failer); ok {
		res.Failed = v.Failed()
	}
	if v, ok := value.(blober); ok {
		res.Blobs = v.Blobs()
	}
	if v, ok := value.(verdict); ok {
		res.Verdict = v.Verdict()
	}
	if v, ok := value.(changer); ok {
		res.Changes = v.Changes()
	}
	return res, nil
}

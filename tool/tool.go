// Package tool defines the tools of wisbox: a Spec, a typed function behind strict JSON
// decoding, a Result and an Error.
//
// [New] makes a tool from a function over two Go types. The parameter type is the contract:
// its JSON names, required fields, defaults, bounds and enumerations are struct tags, from
// which both the strict decoder and the JSON Schema are derived. Every package may import this
// one; of wisbox, it imports only internal/clip.
//
// Tags of a parameter field:
//
//	json:"name"            required
//	json:"name,omitempty"  optional (omitzero likewise)
//	jsonschema:"text"      description
//	default:"2000"         value when the field is absent
//	min:"0" max:"100"      inclusive bounds of a number: outside is invalid
//	enum:"create|append"   the values a string may have
//	alias:"path"           another accepted name, which isn't in the schema
//	hint:"…"               advice, appended to the error for a value of a wrong type
//
// Sizes and times that the contract clamps have no min and max tag: their tool clamps them
// and reports that.
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
	OpenWorld   bool // reaches beyond the sandbox, which no tool of wisbox does

	Effect    Effect // how a call can change the workspace
	NeedsRoom bool   // writes into the workspace from the host side, so it is refused if the disk is full

	Hidden bool // a part of other tools: a [Set] calls it by its name, but doesn't list it
}

// Effect describes how a call of a tool can change the workspace, and so whether the call
// knows its changes. A session makes a step before a call that has an effect.
type Effect int

const (
	NoEffect      Effect = iota // changes nothing in the workspace
	FileEffect                  // changes files itself and reports them in [Result.Changes]
	ProgramEffect               // runs programs that end with the call
	LastingEffect               // starts or controls programs that outlive the call
	FreeingEffect               // like FileEffect, but frees room: it must work even if no step can be made
)

// Told reports whether a call with this effect reports all of its changes.
func (e Effect) Told() bool { return e == NoEffect || e == FileEffect || e == FreeingEffect }

// A result type may implement these interfaces to shape its Result. Text defaults to indented
// JSON, Failed to false, the others to nothing.
type (
	texter  interface{ Text() string }
	failer  interface{ Failed() bool }
	blober  interface{ Blobs() []Blob }
	changer interface{ Changes() []Change }
	verdict interface{ Verdict() string }
)

// Tool is a named function over JSON. Its methods may be called from many
// goroutines at once. All tools of the same types share their schemas: copy them before
// a change.
type Tool struct {
	Spec
	Input  *jsonschema.Schema // of the parameters
	Output *jsonschema.Schema // of Result.Value

	check func(json.RawMessage) error
	call  func(context.Context, json.RawMessage) (*Result, error)
}

// New makes a tool from fn. P and R are structs. It panics if it can't make a schema for P or
// R, which the tool's first test shows.
func New[P, R any](spec Spec, fn func(context.Context, P) (R, error)) Tool {
	return NewChanging(spec, func(ctx context.Context, p P) (R, []Change, error) {
		value, err := fn(ctx, p)
		return value, nil, err
	})
}

// NewChanging is like New, for a tool whose result doesn't list its changes: fn returns them
// separately.
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

// Check returns the error that Call would return at once for arguments that don't have the
// form of the parameters, and does nothing. It is for callers that would have to start
// something first. Call may still refuse values.
func (t Tool) Check(raw json.RawMessage) error { return t.check(raw) }

// Renamed returns the same tool under another name, for profiles.
func (t Tool) Renamed(name string) Tool {
	t.Name = name
	return t
}

// Via returns the same tool, run by call with the arguments as they came.
func (t Tool) Via(call func(ctx context.Context, raw json.RawMessage) (*Result, error)) Tool {
	t.call = call
	return t
}

// ResultOf returns the Result of a tool whose answer is value.
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

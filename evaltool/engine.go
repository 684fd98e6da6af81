package evaltool

import (
	"context"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// Engine evaluates code in one kind of sandbox. Its methods may be called from
// many goroutines at once.
//
// Evaluate returns all that the code did as a [Response]. An error means that the engine
// itself failed, and is fit for an agent: a *tool.Error or a context's error.
type Engine interface {
	// Evaluate runs one validated request to its end. When it returns, nothing
	// of a fresh evaluation is left running. When ctx ends the evaluation is
	// stopped and the Response has [StatusCancelled].
	Evaluate(ctx context.Context, req Request) (Response, error)
	// Guidance explains to a model what the engine offers, in a few lines.
	Guidance() string
}

// Resetter is an Engine that keeps names between calls.
type Resetter interface {
	// Cancel stops the running evaluation of a context, for a Reset.
	Cancel(context string)
	// Reset drops the names of a context; "" means the default one.
	Reset(ctx context.Context, context string) error
	// Close ends every kept interpreter.
	Close() error
}

// Sandboxes of a call.
const (
	SandboxContainer  = "container"
	SandboxRestricted = "restricted"
	SandboxWasm       = "wasm"
)

// Statuses of evaluations, in addition to those of programs.
const (
	StatusExited    = "exited"    // the code came to its end
	StatusException = "exception" // it raised
	StatusTimedOut  = "timed_out"
	StatusCancelled = "cancelled"
)

// NotStarted returns the answer of an Engine that couldn't start its interpreter because of
// err: a Response with [StatusCancelled] if ctx has ended, as [Engine] promises, else err.
func NotStarted(ctx context.Context, err error) (Response, error) {
	if ctx.Err() != nil {
		return Response{Status: StatusCancelled}, nil
	}
	return Response{}, err
}

// TimeoutText is the end of the standard error of an evaluation that timed out.
const TimeoutText = "Execution timed out."

// Request is an evaluation that has passed validation.
type Request struct {
	Code    string
	Globals map[string]string // name to JSON text
	Reads   []File            // files that the code finds in its globals
	Fields  []string          // of format strings, without their braces, whose text the caller needs
	Timeout time.Duration     // more than 0
	Sandbox string            // one of the Sandbox constants

	Kept    bool   // names live on for the next call with Kept and the same Context
	Context string // which kept interpreter; "" is the default one

	// Dir and ContextEnv are the directory and variables with which a kept interpreter starts. If
	// the directory can't be entered, it starts in the workspace, without an error.
	Dir        string
	ContextEnv map[string]string

	Env       map[string]string // variables of this run alone
	MaxOutput int               // characters of each stream in the Response; 0 is StreamChars

	// Feed gets the parts of the answer while the code runs; nil if nobody reads them. The Response
	// is the same.
	Feed *Feed

	Fuel   int64 // WebAssembly only: units of work; 0 is the engine's default
	Memory int64 // WebAssembly only: bytes; 0 is the engine's default
}

// File is a file's path in the workspace and its whole text.
type File struct {
	Path string
	Text string
}

// Response is the result of an evaluation. After an exception, Globals, Fields and Writes have the
// code's values and requests up to then, if known; these writes are not made.
type Response struct {
	Status  string  // one of the Status constants, or how the program ended
	Ended   bool    // the interpreter went away before it could answer
	Value   *string // repr of the final expression; nil for none and None
	Stdout  string  // cut by [Stream]
	Stderr  string
	Globals map[string]string
	Dropped int // globals without room
	// DroppedNames has the first of their names.
	DroppedNames []string
	Fields       map[string]string // texts of Request.Fields
	Faults       map[string]string // why other ones have no text, if it is not a missing global
	Writes       []Queued          // in the order of the code
	Display      []Display
	Results      []Shown  // what was shown, in the order of the code; empty where only the text of Value is
	Count        int64    // which evaluation of its interpreter it was, from 1; 0 if that is not known
	Raised       *Raised  // with a Feed: what the code raised
	Fed          bool     // Feed has had Count, Results and Value
	Notes        []string // sentences for the caller: names lost, a limit hit
}

// Failed reports whether the evaluation failed in a way that a caller should notice.
func (r Response) Failed() bool { return r.Ended || r.Status != StatusExited }

// Environ returns variables in the form NAME=VALUE.
func Environ(env map[string]string) []string {
	var all []string
	for _, name := range sortedNames(env) {
		all = append(all, name+"="+env[name])
	}
	return all
}

// Queued is a write that the code requested with write_text.
type Queued struct {
	Path    string `json:"path"`
	Mode    string `json:"mode"`
	Content string `json:"content"`
}

// Display is a text to show, or a picture or PDF as base64.
type Display struct {
	MIME string `json:"mime"`
	Data string `json:"data"`
}

// Shown is an object that the code has shown.
type Shown struct {
	// Main marks the final value. Displays of display() and plt.show() are not main.
	Main bool `json:"main"`
	// Text is its repr, of at most StreamChars characters.
	Text string `json:"text"`
	// Display are the indices of its texts and pictures in display.
	Display []int `json:"display" jsonschema:"indices of its texts and pictures in the field display of the answer"`
	// Data is {column: [value, …]} of a DataFrame, and Chart the content of a matplotlib figure;
	// nil for other objects.
	Data  tool.Object `json:"data,omitempty" jsonschema:"of a DataFrame: its columns, each a list of values"`
	Chart tool.Object `json:"chart,omitempty" jsonschema:"of a matplotlib figure: type (line, scatter, bar, pie, box_and_whisker, superchart, unknown), title, labels and units of its axes, and elements with the values"`
}

// Package journal describes the calls of a session: an Event for each, which is a line of its log.
package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/redact"
	"github.com/wisbox/wisbox/tool/answer"
)

// Event is the record of one tool call: a line of the session's log.jsonl, and the argument of the
// session's OnEvent option. It contains no content, environment, code or secret values.
type Event struct {
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Call    string    `json:"call"`
	// Caller identifies the caller, see [answer.WithCaller].
	Caller string `json:"caller"`
	Tool   string `json:"tool"`
	Path   string `json:"path,omitempty"`
	Mode   string `json:"mode,omitempty"`
	// Args are the other arguments: numbers and booleans as they are, names and command lines cut
	// after 300 bytes, and only the size of everything else.
	Args       map[string]any `json:"args,omitempty"`
	ArgsSize   int            `json:"argument_bytes"`
	ResultSize int            `json:"result_bytes"` // of a program with its caller's streams: the bytes that it wrote
	// Outcome is ok, failed, or the kind of the error.
	Outcome string `json:"outcome"`
	// Verdict is how the call's program ended, as a [sandbox.Status]. It is empty if there was no
	// program, or if the program lives on: its end is a later Event with the Tool process_end and
	// the same Call.
	Verdict  string        `json:"verdict,omitempty"`
	Message  string        `json:"message,omitempty"`
	Duration time.Duration `json:"duration_ns"`
	Effects
}

// Effects are a call's changes to the workspace: always those by the tools themselves, and those by
// programs if AutoSnapshot is on.
type Effects struct {
	Changes []answer.Change `json:"changes,omitempty"` // the first 200
	More    int64           `json:"more_changes,omitempty"`
	// Unknown reports whether programs ran without a record of their changes.
	Unknown bool `json:"changes_unknown,omitempty"`
	// RolledBack reports whether the call failed and its changes were undone.
	RolledBack bool `json:"rolled_back,omitempty"`
}

var thisProcess = fmt.Sprintf("%s[%d]", filepath.Base(os.Args[0]), os.Getpid())

// CallerOf returns the caller in a context.
func CallerOf(ctx context.Context) string {
	if who := answer.Caller(ctx); who != "" {
		return clip.Text(who)
	}
	return thisProcess
}

const (
	maxEventText = clip.MaxText // bytes of one text of an Event
	maxEventArgs = 32           // recorded arguments of one call
)

// tellable are the arguments whose text an Event records: they name the object of the call, not its
// content. Of all others, including new ones, it records only the size.
var tellable = map[string]bool{
	"command": true, "commands": true, "script": true, "cwd": true, "tty": true, "signal": true, "stream": true,
	"process_id": true, "output_id": true, "snapshot_id": true, "label": true, "from": true, "to": true, "package": true,
	"pattern": true, "glob": true, "encoding": true, "sandbox": true, "op": true, "level": true, "reads": true, "section_key": true,
}

// ForTool begins the Event of a tool's call, with the arguments that may be recorded.
func ForTool(name string, raw json.RawMessage) Event {
	e := Event{Tool: clip.Text(name), ArgsSize: len(raw)}
	e.describe(raw)
	return e
}

func (e *Event) describe(raw json.RawMessage) {
	var args map[string]json.RawMessage
	if json.Unmarshal(raw, &args) != nil {
		return
	}
	if e.Mode = textOf(args, "mode"); e.Mode == "" && e.Tool == "write_file" {
		e.Mode = "create" // the tool's default, so that the log has the mode that took effect
	}
	if e.Path = textOf(args, "file_path"); e.Path == "" {
		e.Path = textOf(args, "path")
	}
	for name, value := range args {
		if len(e.Args) == maxEventArgs {
			return
		}
		e.tell(name, value)
	}
}

// textOf removes a text from args that has a field of its own in the Event.
func textOf(args map[string]json.RawMessage, name string) (text string) {
	if json.Unmarshal(args[name], &text) == nil {
		delete(args, name)
	}
	return clip.Text(text)
}

func (e *Event) tell(name string, value json.RawMessage) {
	if e.Args == nil {
		e.Args = map[string]any{}
	}
	name = clip.Text(name)
	var text string
	switch plain := !bytes.ContainsAny(value[:1], `"[{`); {
	case (plain || tellable[name]) && len(value) <= maxEventText:
		e.Args[name] = value
	case tellable[name] && json.Unmarshal(value, &text) == nil:
		e.Args[name] = clip.Text(text) + "…"
	case tellable[name]:
		e.Args[name] = clip.Text(string(value)) + "…"
	default:
		e.Args[name] = fmt.Sprintf("[%d bytes]", len(value))
	}
}

// ForProgram begins the Event of a program with its caller's streams.
func ForProgram(name string, argv []string, dir string) Event {
	line := []string{}
	for _, arg := range argv[:min(len(argv), maxEventArgs)] {
		line = append(line, clip.Text(arg))
	}
	return Event{Tool: name, Args: map[string]any{"command": line, "cwd": clip.Text(dir)}}
}

// Redact redacts the values, including one that clip has cut in two.
func (e *Event) Redact(r *redact.Redactor) {
	*e = r.Value(*e).(Event) // an Event marshals and unmarshals
	e.Path, e.Message = r.Head(e.Path), r.Head(e.Message)
	for name, value := range e.Args {
		switch v := value.(type) {
		case string:
			e.Args[name] = head(r, v)
		case []string:
			for i := range v {
				v[i] = head(r, v[i])
			}
		case []any: // of texts, when a value was found above
			for i := range v {
				if text, ok := v[i].(string); ok {
					v[i] = head(r, text)
				}
			}
		}
	}
}

// head returns a cut text without the beginning of a value at its end.
func head(r *redact.Redactor, text string) string {
	cut := strings.TrimSuffix(text, "…")
	return r.Head(cut) + text[len(cut):]
}

// EffectsOf returns the effects of a call that knows its changes.
func EffectsOf(changes []answer.Change) Effects {
	n := min(len(changes), MaxChanges)
	return Effects{Changes: changes[:n], More: int64(len(changes) - n)}
}

// ForEnd begins the Event of the end of a program that outlived its call; it has that call's id.
// process is the program's id in the session, if it has one.
func ForEnd(c Call, process string, argv []string) Event {
	e := ForProgram("process_end", argv, "")
	delete(e.Args, "cwd")
	if process != "" {
		e.Args["process_id"] = process
	}
	e.Call = c.ID
	return e
}

// Outcome is the result of a call, for its Event.
type Outcome struct {
	Failed  bool   `json:"failed,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	Size    int    `json:"size,omitempty"` // bytes of the result, or of a program's output to its caller's streams
	Effects
}

// Finish completes the Event of a call with its outcome and duration.
func (e *Event) Finish(out Outcome, err error, took time.Duration) {
	e.Duration, e.Effects, e.ResultSize = took, out.Effects, out.Size
	if err != nil {
		te := answer.AsError(err)
		e.Outcome, e.Message = string(te.Kind), clip.Text(te.Message)
		return
	}
	e.Outcome, e.Verdict = "ok", out.Verdict
	if out.Failed {
		e.Outcome = "failed"
	}
}

// MaxChanges is the number of paths that an Event names.
const MaxChanges = 200

// Call identifies a call for what it causes: its step, its processes.
type Call struct {
	ID   string
	Tool string
	// Recorded is closed when the call is in the log; it may be nil.
	Recorded <-chan struct{}
}

type callKey struct{}

// CallIn returns the call of a context that the session's steps passed on.
func CallIn(ctx context.Context) Call {
	c, _ := ctx.Value(callKey{}).(Call)
	return c
}

// WithCall returns a context in which CallIn returns the call.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

package wisbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/redact"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Event is the record of one tool call: a line of the session's log.jsonl and
// what [Options.OnEvent] gets. It holds no content, no environment, no code, and
// no value of a secret.
type Event struct {
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Call    string    `json:"call"`
	// Caller is who made the call, see [WithCaller].
	Caller string `json:"caller"`
	Tool   string `json:"tool"`
	Path   string `json:"path,omitempty"`
	Mode   string `json:"mode,omitempty"`
	// Args are the other arguments: numbers and switches as they are, names and
	// command lines cut after 300 bytes, of everything else only its size.
	Args       map[string]any `json:"args,omitempty"`
	ArgsSize   int            `json:"argument_bytes"`
	ResultSize int            `json:"result_bytes"` // of a program that a caller runs with its own streams: what it wrote
	// Outcome is ok, failed, or the kind of the error.
	Outcome string `json:"outcome"`
	// Verdict is how the program that the call ran ended, as [sandbox.Status]; empty
	// where it ran none, or one that lives on.
	Verdict  string        `json:"verdict,omitempty"`
	Message  string        `json:"message,omitempty"`
	Duration time.Duration `json:"duration_ns"`
	Effects
}

// Effects are what a call did to the workspace: what the tools themselves wrote
// always, what programs wrote where [SessionOptions.AutoSnapshot] is on.
type Effects struct {
	Changes []tool.Change `json:"changes,omitempty"` // the first 200
	More    int64         `json:"more_changes,omitempty"`
	// Unknown says that programs ran and nothing tells what they did.
	Unknown bool `json:"changes_unknown,omitempty"`
	// RolledBack says that the call failed and the workspace is what it was before.
	RolledBack bool `json:"rolled_back,omitempty"`
}

// WithCaller names who makes the calls of a context, in at most 300 bytes: a
// user, an agent, a client. The default is the process, as wisbox[1234].
func WithCaller(ctx context.Context, who string) context.Context {
	return tool.WithCaller(ctx, who)
}

var thisProcess = fmt.Sprintf("%s[%d]", filepath.Base(os.Args[0]), os.Getpid())

func callerOf(ctx context.Context) string {
	if who := tool.Caller(ctx); who != "" {
		return clip(who)
	}
	return thisProcess
}

const (
	maxEventText = 300 // bytes of one text of an Event
	maxEventArgs = 32  // arguments of one call that are told
)

// tellable are the arguments whose text an Event tells: what was worked on, not
// what was put there. Of any other, new ones too, it tells only the size.
var tellable = map[string]bool{
	"command": true, "commands": true, "script": true, "cwd": true, "tty": true, "signal": true, "stream": true,
	"process_id": true, "output_id": true, "snapshot_id": true, "label": true, "from": true, "to": true, "package": true,
	"pattern": true, "glob": true, "encoding": true, "sandbox": true, "op": true, "level": true, "reads": true, "section_key": true,
}

// describe takes over what of a call's arguments may be told.
func (e *Event) describe(raw json.RawMessage) {
	e.ArgsSize = len(raw)
	var args map[string]json.RawMessage
	if json.Unmarshal(raw, &args) != nil {
		return
	}
	e.Mode = textOf(args, "mode")
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

// textOf takes a text out of args: it is told elsewhere.
func textOf(args map[string]json.RawMessage, name string) (text string) {
	if json.Unmarshal(args[name], &text) == nil {
		delete(args, name)
	}
	return clip(text)
}

func (e *Event) tell(name string, value json.RawMessage) {
	if e.Args == nil {
		e.Args = map[string]any{}
	}
	name = clip(name)
	var text string
	switch plain := !bytes.ContainsAny(value[:1], `"[{`); {
	case (plain || tellable[name]) && len(value) <= maxEventText:
		e.Args[name] = value
	case tellable[name] && json.Unmarshal(value, &text) == nil:
		e.Args[name] = clip(text) + "…"
	case tellable[name]:
		e.Args[name] = clip(string(value)) + "…"
	default:
		e.Args[name] = fmt.Sprintf("[%d bytes]", len(value))
	}
}

// argsOf are those of a program that a caller runs with its own streams.
func argsOf(cmd sandbox.Cmd) map[string]any {
	line := []string{}
	for _, arg := range cmd.Argv[:min(len(cmd.Argv), maxEventArgs)] {
		line = append(line, clip(arg))
	}
	return map[string]any{"command": line, "cwd": clip(cmd.Dir)}
}

// redact takes the values out, also where clip has cut one in two.
func (e *Event) redact(r *redact.Redactor) {
	*e = r.Value(*e).(Event) // it marshals and unmarshals
	e.Path, e.Message = r.Head(e.Path), r.Head(e.Message)
	for name, value := range e.Args {
		switch v := value.(type) {
		case string:
			cut := strings.TrimSuffix(v, "…")
			e.Args[name] = r.Head(cut) + v[len(cut):]
		case []string:
			for i := range v {
				v[i] = r.Head(v[i])
			}
		case []any: // of texts, when a value was found above
			for i := range v {
				if text, ok := v[i].(string); ok {
					v[i] = r.Head(text)
				}
			}
		}
	}
}

func (e *Event) finish(res *tool.Result, err error, began time.Time) {
	e.Duration = time.Since(began)
	if err != nil {
		te := tool.AsError(err)
		e.Outcome, e.Message = string(te.Kind), clip(te.Message)
		return
	}
	e.Outcome, e.Verdict, e.ResultSize = "ok", res.Verdict, len(res.Text)
	if res.Failed {
		e.Outcome = "failed"
	}
}

func clip(s string) string {
	if len(s) > maxEventText {
		return s[:maxEventText]
	}
	return s
}

package rlm

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/wisbox/wisbox/tool"
)

// About explains to a model what the operations are for.
const About = `context_load and context_op work on texts that are too large to read.`

// ShownChars is the number of characters of a result that an agent sees. The whole result can
// be bound to a name.
const ShownChars = 48_000

// LoadParams are the parameters of context_load.
type LoadParams struct {
	Name string  `json:"name" jsonschema:"the binding's name"`
	Path *string `json:"path,omitempty" jsonschema:"a text file of the workspace; give this or text"`
	Text *string `json:"text,omitempty" jsonschema:"the text itself; give this or path"`
}

// LoadResult is the result of context_load.
type LoadResult struct {
	Name   string `json:"name"`
	Chars  int    `json:"chars"`
	Lines  int    `json:"lines"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// OpParams are the parameters of context_op.
type OpParams struct {
	Op   string         `json:"op" jsonschema:"slice, grep, count, chunk, split, combine or eval"`
	Args map[string]any `json:"args" jsonschema:"input or inputs, the names of bindings, and the operation's own arguments"`
	Bind string         `json:"bind,omitempty" jsonschema:"a name to bind the whole result to"`
}

// OpResult is the result of context_op.
type OpResult struct {
	Result string `json:"result"`
	Cached bool   `json:"cached"`
	Bind   string `json:"bind,omitempty"`
	Chars  int    `json:"chars"` // of the whole result
	// Truncated reports whether Result has only the first ShownChars characters.
	Truncated bool   `json:"truncated,omitempty"`
	Error     string `json:"error,omitempty"` // of eval: the code's error
	// Notes report the inputs of eval whose names hide Python's own.
	Notes []string `json:"notes,omitempty"`
}

// Failed reports whether the code of an eval raised an exception or hit a limit.
func (r OpResult) Failed() bool { return r.Error != "" }

// Text returns the result itself, followed by notes.
func (r OpResult) Text() string {
	text := r.Result
	if r.Truncated {
		text += fmt.Sprintf("\n… %d characters in all", r.Chars)
	}
	if r.Error != "" {
		text += "\n" + r.Error
	}
	if r.Bind != "" {
		text += fmt.Sprintf("\nbound to %s, %d characters", r.Bind, r.Chars)
	}
	for _, note := range r.Notes {
		text += "\nnote: " + note
	}
	if text == "" {
		return "the result is empty"
	}
	return text
}

// Tools returns context_load and context_op.
func (o *Ops) Tools() []tool.Tool {
	return []tool.Tool{
		tool.New(tool.Spec{
			Name: "context_load", Title: "Load a text", Idempotent: true,
			Description: "Bind a large text, from a workspace file or given here, to a name, so that context_op can work on it without showing it.",
		}, o.Load),
		tool.New(tool.Spec{
			Name: "context_op", Title: "Operate on a text",
			Description: "Run one operation over bound texts and get the result; with bind the whole result is also bound to a name.\n" + o.Language(),
		}, o.op),
	}
}

// Language describes the available operations, for models.
func (o *Ops) Language() string {
	if o.CanEval() {
		return languageText + evalText
	}
	return languageText
}

const languageText = `- slice {input, start?, end?}: characters from start up to end; negative ones count from the end.
- grep {input, pattern}: the lines in which the RE2 pattern is found.
- count {input, mode?}: "lines" of the stripped text, or "chars".
- chunk {input, n}: the lines in at most n groups of equal size, a JSON array.
- split {input, delimiter?}: the parts between a literal delimiter ("\n"), a JSON array.
- combine {inputs, strategy}: inputs is a list of names, or one name whose text is a JSON array. "concat" joins by newlines, "sum" adds numbers, "vote" takes the most frequent.
`

const evalText = `- eval {code, inputs?}: Python; each input is a global string (all bindings if left out). The answer is what the code prints and then the variable result. No files, no network. The standard library is there (re, json, math, collections, itertools). Keep the code short, so that it ends in time; it is slower than the operations above: prefer them if they suffice.
`

func (o *Ops) op(ctx context.Context, p OpParams) (OpResult, error) {
	if p.Bind != "" {
		if err := checkName(p.Bind); err != nil {
			return OpResult{}, tool.AsError(err).In("bind")
		}
	}
	args, err := json.Marshal(p.Args)
	if err != nil {
		return OpResult{}, err
	}
	out, err := o.Do(ctx, p.Op, args)
	if err != nil {
		return OpResult{}, inArgs(err)
	}
	t := NewText(out.Result)
	res := OpResult{Cached: out.Cached, Chars: t.Chars(), Error: out.Failure, Notes: out.Notes}
	res.Result, res.Truncated = t.first(ShownChars)
	if p.Bind == "" || res.Failed() {
		return res, nil
	}
	if _, err := o.Bind(p.Bind, out.Result); err != nil {
		return OpResult{}, tool.AsError(err).In("bind")
	}
	res.Bind = p.Bind
	return res, nil
}

// inArgs sets the field of an error to a parameter of context_op.
func inArgs(err error) error {
	known := tool.AsError(err)
	if known.Field != "" && known.Field != "op" {
		known.Field = "args." + known.Field
	}
	return known
}

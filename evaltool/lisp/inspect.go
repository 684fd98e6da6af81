package lisp

import (
	"context"
	"fmt"
	"strings"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/tool"
)

// maxName is the maximum number of characters of a name or pattern.
const maxName = 1000

// Syntax is the result of validate-syntax.
type Syntax struct {
	Valid  bool       `json:"valid"`
	Forms  int        `json:"forms"` // that were read completely
	Line   int        `json:"line,omitempty"`
	Column int        `json:"column,omitempty"`
	Error  *Condition `json:"error,omitempty"`
}

// Text implements tool.New's interface.
func (s Syntax) Text() string {
	if s.Valid {
		return fmt.Sprintf("Syntax is valid: %d form(s).", s.Forms)
	}
	return fmt.Sprintf("Syntax is INVALID at line %d, column %d, after %d form(s).\n%s: %s", s.Line, s.Column, s.Forms, s.Error.Type, s.Error.Message)
}

type syntaxParams struct {
	Code string `json:"code" jsonschema:"Common Lisp forms"`
}

func (l *Lisp) validate(ctx context.Context, p syntaxParams) (Syntax, error) {
	rep, _, err := l.run(ctx, opSyntax, p.Code, "")
	if err != nil {
		return Syntax{}, err
	}
	if err := rep.mustBeOK(); err != nil {
		return Syntax{}, err
	}
	s := Syntax{Valid: rep.Problem == nil, Forms: rep.Forms, Error: rep.Problem}
	if !s.Valid {
		s.Line, s.Column = place(p.Code, rep.Position)
	}
	return s, nil
}

// place returns the line and column, from 1, of a character of text.
func place(text string, position int) (line, column int) {
	runes := []rune(text)
	before := string(runes[:min(position, len(runes))])
	line = 1 + strings.Count(before, "\n")
	return line, 1 + len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
}

// mustBeOK turns a failed reply into an error: the results of tools that only inspect Lisp have no field for a
// program's failure.
func (rep *reply) mustBeOK() error {
	switch {
	case rep.status == StatusOK:
		return nil
	case rep.late == StatusTimedOut:
		return tool.Errorf(tool.Timeout, "Lisp did not answer within the timeout; configure-limits raises it")
	case rep.status == StatusCancelled:
		return tool.Errorf(tool.Closed, "the caller cancelled the call")
	case rep.Error != nil:
		return tool.Errorf(tool.Invalid, "%s: %s", rep.Error.Type, clip.Words(rep.Error.Message))
	}
	return tool.Errorf(tool.Unavailable, "Lisp ended during the call; its definitions are lost, the next call starts it again")
}

type expandParams struct {
	Form    string `json:"form" jsonschema:"one Common Lisp form"`
	Full    bool   `json:"full,omitempty" jsonschema:"expand all macros in the form, not only its own and once"`
	Package string `json:"package,omitempty" jsonschema:"package to read in; default the session's"`
}

// Expansion is the result of macroexpand-form: an Evaluation whose value is the expansion. Macros are code and may do
// the same as code.
type Expansion struct {
	Evaluation
	Expansion string `json:"expansion,omitempty"`
}

// Text implements tool.New's interface.
func (x Expansion) Text() string {
	if x.Failed() {
		return x.Evaluation.Text()
	}
	parts := append(x.before(), x.Expansion)
	return strings.Join(append(parts, comments(x.Notes)...), "\n")
}

func (l *Lisp) expand(ctx context.Context, p expandParams) (Expansion, error) {
	if err := checkLength("form", p.Form, MaxCode); err != nil {
		return Expansion{}, err
	}
	r := l.request(opExpand)
	r.Code, r.Package, r.Full = p.Form, p.Package, p.Full
	rep, err := l.ask(ctx, r)
	if err != nil {
		return Expansion{}, err
	}
	if rep.status == StatusOK && rep.Forms != 1 {
		return Expansion{}, tool.Errorf(tool.Invalid, "form has %d forms; one is expanded at a time", rep.Forms).In("form")
	}
	return Expansion{rep.evaluation(r), rep.excerpt.cut()}, nil
}

type describeParams struct {
	Name    string `json:"name" jsonschema:"symbol, with or without a package: mapcar, sb-ext:quit"`
	Package string `json:"package,omitempty" jsonschema:"package to look in; default the session's"`
}

// Description is the result of describe-symbol.
type Description struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Text implements tool.New's interface.
func (d Description) Text() string { return d.Description }

func (l *Lisp) describe(ctx context.Context, p describeParams) (Description, error) {
	if err := checkLength("name", p.Name, maxName); err != nil {
		return Description{}, err
	}
	r := l.request(opDescribe)
	r.Name, r.Package = p.Name, p.Package
	rep, err := l.ask(ctx, r)
	if err != nil {
		return Description{}, err
	}
	if err := rep.mustBeOK(); err != nil {
		return Description{}, err
	}
	if rep.Missing {
		return Description{}, tool.Errorf(tool.NotFound, "symbol %q not found; apropos-search finds symbols by a part of their name", clip.Words(p.Name)).In("name")
	}
	return Description{p.Name, strings.TrimRight(rep.excerpt.cut(), "\n")}, nil
}

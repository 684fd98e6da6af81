package lisp

import (
	"context"
	"fmt"
	"strings"
)

// Entry is a symbol and the kinds of things that it names.
type Entry struct {
	Name       string   `json:"name"` // with its package
	Kinds      []string `json:"kinds"`
	LambdaList string   `json:"lambda_list,omitempty"`
}

// Listing is the result of apropos-search and list-definitions.
type Listing struct {
	Entries  []Entry  `json:"entries"` // by name, at most 1,000
	Total    int      `json:"total"`
	Packages []string `json:"packages,omitempty"`

	none string
}

// Text implements tool.New's interface.
func (l Listing) Text() string {
	if len(l.Entries)+len(l.Packages) == 0 {
		return l.none
	}
	var lines []string
	for _, e := range l.Entries {
		line := e.Name + "  " + strings.Join(e.Kinds, ", ")
		if e.LambdaList != "" {
			line += "  " + e.LambdaList
		}
		lines = append(lines, line)
	}
	if l.Total > len(l.Entries) {
		lines = append(lines, fmt.Sprintf("(%d of %s shown; narrow the search)", len(l.Entries), thousands(int64(l.Total))))
	}
	for _, p := range l.Packages {
		lines = append(lines, p+"  package")
	}
	return strings.Join(lines, "\n")
}

type aproposParams struct {
	Pattern string `json:"pattern" jsonschema:"part of a symbol's name, without regard to case"`
	Package string `json:"package,omitempty" jsonschema:"package to search; default all"`
	Type    string `json:"type,omitempty" enum:"function|generic-function|macro|special-operator|variable|constant|class" jsonschema:"what the symbol names"`
}

type definitionParams struct {
	Type string `json:"type,omitempty" enum:"function|generic-function|macro|variable|constant|class|package" jsonschema:"what to list; default all"`
}

func (l *Lisp) apropos(ctx context.Context, p aproposParams) (Listing, error) {
	if err := checkLength("pattern", p.Pattern, maxName); err != nil {
		return Listing{}, err
	}
	r := l.request(opApropos)
	r.Pattern, r.Package, r.Type = p.Pattern, p.Package, p.Type
	return l.list(ctx, r, "No symbol matches.")
}

func (l *Lisp) definitions(ctx context.Context, p definitionParams) (Listing, error) {
	r := l.request(opDefinitions)
	r.Type = p.Type
	return l.list(ctx, r, "No definitions.")
}

func (l *Lisp) list(ctx context.Context, r request, none string) (Listing, error) {
	rep, err := l.ask(ctx, r)
	if err != nil {
		return Listing{}, err
	}
	if err := rep.mustBeOK(); err != nil {
		return Listing{}, err
	}
	return Listing{Entries: append([]Entry{}, rep.Entries...), Total: rep.Total, Packages: rep.Packages, none: none}, nil
}

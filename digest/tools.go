package digest

import (
	"context"

	"github.com/wisbox/wisbox/tool"
)

// About explains to a model what the digest is for.
const About = `workspace_digest shows what is in the workspace and how to build and test it; read it first.`

// Tools returns workspace_digest.
func (d *Digester) Tools() []tool.Tool {
	return []tool.Tool{tool.New(tool.Spec{
		Name: "workspace_digest", Title: "Summary of the workspace",
		Description: "Show the summary of the workspace: layout, languages, commands that build, test and lint it, caveats. With set, replace it for this session; an empty set undoes that.",
		Idempotent:  true,
	}, d.call)}
}

type params struct {
	Set   *string `json:"set,omitempty" jsonschema:"Markdown that replaces the digest for this session; empty: back to the one computed from the files"`
	Level Level   `json:"level,omitempty" default:"full" enum:"summary|full" jsonschema:"how much to show"`
}

// Answer is the result of workspace_digest.
type Answer struct {
	Digest     string `json:"digest" jsonschema:"Markdown"`
	Level      Level  `json:"level"`
	Source     Source `json:"source" jsonschema:"session, override, files or placeholder"`
	SectionKey string `json:"section_key"`
}

// Text returns the digest itself.
func (a Answer) Text() string { return a.Digest }

func (d *Digester) call(ctx context.Context, p params) (Answer, error) {
	if p.Set != nil {
		if err := d.replace(ctx, *p.Set); err != nil {
			return Answer{}, err
		}
	}
	return d.Answer(ctx, p.Level)
}

// Answer is like [Digester.Get], but returns the result of workspace_digest.
func (d *Digester) Answer(ctx context.Context, level Level) (Answer, error) {
	if level != Summary && level != Full {
		return Answer{}, tool.Errorf(tool.Invalid, "level is %q; it must be summary or full", level).In("level")
	}
	text, source, err := d.Get(ctx)
	return Answer{Digest: text.at(level), Level: level, Source: source, SectionKey: d.opts.Key}, err
}

func (d *Digester) replace(ctx context.Context, text string) error {
	if text == "" {
		return d.Clear(ctx, Session)
	}
	return d.Set(ctx, Text{Full: text}, Session)
}

package digest

import (
	"fmt"
	"strings"

	"github.com/docker/go-units"
)

// Text writes the report as Markdown, in both lengths.
func (r *Report) Text() Text { return Text{Summary: r.summary(), Full: r.full()} }

func (r *Report) headline() string {
	text := fmt.Sprintf("%d files, %s", r.Files, units.HumanSize(float64(r.Bytes)))
	if len(r.Languages) > 0 {
		var names []string
		for _, l := range r.Languages[:min(len(r.Languages), 5)] {
			names = append(names, fmt.Sprintf("%s (%d)", l.Name, l.Files))
		}
		text += ": " + strings.Join(names, ", ")
	}
	return text + ".\n"
}

// summary has the first command of each purpose.
func (r *Report) summary() string {
	var b strings.Builder
	b.WriteString(r.headline())
	for _, p := range purposes {
		for _, c := range r.Commands {
			if c.Purpose == p && p != "format" {
				fmt.Fprintf(&b, "- %s: `%s`\n", p, c.Line)
				break
			}
		}
	}
	return b.String()
}

func (r *Report) full() string {
	var b strings.Builder
	b.WriteString("# Workspace\n\n" + r.headline())
	r.layout(&b)
	if len(r.Commands) > 0 {
		b.WriteString("\n## Commands\n\nRun from the top directory.\n\n")
		for _, c := range r.Commands {
			b.WriteString(c.markdown())
		}
	}
	if len(r.Caveats) > 0 {
		b.WriteString("\n## Caveats\n\n")
		for _, c := range r.Caveats {
			b.WriteString("- " + c + "\n")
		}
	}
	return b.String()
}

func (r *Report) layout(b *strings.Builder) {
	if len(r.Areas)+len(r.Top) == 0 {
		return
	}
	b.WriteString("\n## Layout\n\n")
	for _, a := range r.Areas {
		fmt.Fprintf(b, "- `%s/`: %d files", a.Path, a.Files)
		if a.What != "" {
			b.WriteString(", " + a.What)
		}
		b.WriteByte('\n')
	}
	if len(r.Top) > 0 {
		b.WriteString("- on top: `" + strings.Join(r.Top, "`, `") + "`\n")
	}
}

func (c Command) markdown() string {
	text := fmt.Sprintf("- %s: `%s` (%s", c.Purpose, c.Line, shown(c.Source))
	if c.CI {
		text += ", CI runs it"
	}
	if len(c.Needs) > 0 {
		text += "; needs " + strings.Join(c.Needs, ", ")
	}
	return text + ")\n"
}

package wisbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
)

const toolsDoc = "docs/tools.md"

const toolsIntro = `# The tools

Every interface (the Go API, the command line, the MCP server) has the same tools. A call's parameters are one JSON object,
decoded strictly: an unknown, repeated, missing or null field or a wrong type is the error ` + "`invalid`" + `, which names the field, and
nothing changes. The outcome of a program (exit code, signal, timeout, out of memory, an exception) is data in the result, marked
as failed if a caller should notice it. An error has a kind:
` + "`invalid not_found exists is_dir not_dir not_regular not_text escape permission too_large no_match ambiguous conflict limit\nno_space unsupported busy timeout unavailable closed internal`" + `.

A path is relative to the workspace; a leading ` + "`/`, `/workspace/` or `workspace/`" + ` is removed. It is ASCII, at most 16 segments of
80 characters, without ` + "`.` and `..`" + ` segments. Blanks at the ends of a name belong to it; a name of nothing else is invalid. A session opened with ` + "`--paths any`" + ` takes Unicode too
([configuration.md](configuration.md#file-names)). A parameter ` + "`file_path`" + ` may also be called ` + "`path`" + `.

This page is generated from the code (` + "`WISBOX_UPDATE=1 go test -run TestToolsPage .`" + `).
`

// TestToolsPage compares the page about the tools with the code.
func TestToolsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(toolsIntro)
	for _, tl := range wisbox.ToolSet().Tools() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", tl.Name, strings.TrimSpace(tl.Description))
		writeFields(&b, "parameter", tl.Input)
		writeFields(&b, "result", tl.Output)
	}
	if os.Getenv("WISBOX_UPDATE") != "" {
		require.NoError(t, os.WriteFile(toolsDoc, []byte(b.String()), 0o644))
	}
	page, err := os.ReadFile(toolsDoc)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(page), "generate it again: WISBOX_UPDATE=1 go test -run TestToolsPage .")
}

func writeFields(b *strings.Builder, title string, s *jsonschema.Schema) {
	if len(s.PropertyOrder) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| %s | type | |\n|---|---|---|\n", title)
	for _, name := range s.PropertyOrder {
		p := s.Properties[name]
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, typeOf(p), strings.Join(notes(title, s, name, p), "; "))
	}
}

func typeOf(p *jsonschema.Schema) string {
	if p.Type == "array" && p.Items != nil {
		return "list of " + typeOf(p.Items)
	}
	if p.Type == "object" && len(p.PropertyOrder) > 0 {
		return "{" + strings.Join(p.PropertyOrder, ", ") + "}"
	}
	return p.Type
}

func notes(title string, s *jsonschema.Schema, name string, p *jsonschema.Schema) []string {
	var out []string
	if p.Description != "" {
		out = append(out, strings.ReplaceAll(p.Description, "|", "\\|"))
	}
	if title == "parameter" && slices.Contains(s.Required, name) {
		out = append(out, "required")
	}
	if len(p.Default) > 0 {
		out = append(out, fmt.Sprintf("default `%s`", p.Default))
	}
	if len(p.Enum) > 0 {
		var values []string
		for _, v := range p.Enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		out = append(out, "one of "+strings.Join(values, ", "))
	}
	return out
}

// TestTheReadmesProgramIsTheOneThatCompiles: make test builds examples/embed.
func TestTheReadmesProgramIsTheOneThatCompiles(t *testing.T) {
	program, err := os.ReadFile("examples/embed/main.go")
	require.NoError(t, err)
	_, body, found := strings.Cut(string(program), "\nfunc run(")
	require.True(t, found)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\nfunc run("+body+"```\n")
}

var (
	link       = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	reference  = regexp.MustCompile(`\]\[([a-z0-9-]+)\]`)
	definition = regexp.MustCompile(`(?m)^\[([a-z0-9-]+)\]: https://\S+$`)
)

// TestTheDocsLinksLeadSomewhere: to a file, or to a reference that the page defines.
func TestTheDocsLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") {
		raw, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(raw), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			assert.NoError(t, err, "%s: %s", page, m[0])
		}
		assert.NotRegexp(t, `(?m)^(<<<<<<<|>>>>>>>) `, string(raw), "%s: a merge that nobody resolved", page)
		defined := map[string]bool{}
		for _, m := range definition.FindAllStringSubmatch(string(raw), -1) {
			defined[m[1]] = true
		}
		for _, m := range reference.FindAllStringSubmatch(string(raw), -1) {
			assert.True(t, defined[m[1]], "%s: %s", page, m[0])
		}
	}
}

// TestEveryPageIsInTheGuideOrInTheReference, once.
func TestEveryPageIsInTheGuideOrInTheReference(t *testing.T) {
	index, err := os.ReadFile("docs/README.md")
	require.NoError(t, err)
	guide, reference, ok := strings.Cut(string(index), "\n## Reference\n")
	require.True(t, ok)
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range pages {
		link := "](" + filepath.Base(page) + ")"
		if page != "docs/README.md" {
			assert.Equal(t, 1, strings.Count(guide, link)+strings.Count(reference, link), page)
		}
	}
}

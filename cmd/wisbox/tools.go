package main

import (
	"fmt"
	"io"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

// toolRow is one tool as `tools --json` prints it.
type toolRow struct {
	Name        string             `json:"name"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description"`
	ReadOnly    bool               `json:"read_only"`
	Destructive bool               `json:"destructive"`
	Idempotent  bool               `json:"idempotent"`
	Input       *jsonschema.Schema `json:"input_schema"`
	Output      *jsonschema.Schema `json:"output_schema"`
}

func (a *app) newToolsCmd() *cobra.Command {
	profile := ""
	cmd := &cobra.Command{
		Use:   "tools [NAME]",
		Short: "List the tools, or show one with its parameters",
		Args:  exactArgs("[NAME]"),
		RunE:  func(_ *cobra.Command, args []string) error { return a.runTools(profile, args) },
	}
	registerProfile(cmd.Flags(), &profile, `"wisbox"`)
	return cmd
}

func (a *app) runTools(profile string, args []string) error {
	if err := checkProfile(profile); err != nil {
		return err
	}
	set, err := wisbox.ToolProfile(profile)
	if err != nil {
		return err
	}
	rows := make([]toolRow, 0, 32)
	for _, t := range set.Tools() {
		if len(args) == 1 && t.Name != args[0] {
			continue
		}
		rows = append(rows, toolRow{t.Name, t.Title, t.Description, t.ReadOnly, t.Destructive, t.Idempotent, t.Input, t.Output})
	}
	if len(rows) == 0 {
		return usageError{fmt.Errorf("unknown tool %q; see: wisbox tools", args[0])}
	}
	return a.print(map[string]any{"tools": rows}, func(w io.Writer) {
		if len(args) == 1 {
			printTool(w, rows[0])
			return
		}
		tw := newTable(w)
		for _, r := range rows {
			tw.row(r.Name, tool.FirstSentence(r.Description))
		}
		_ = tw.Flush()
	})
}

func printTool(w io.Writer, r toolRow) {
	fmt.Fprintf(w, "%s\n  %s\n\nParameters:\n", r.Name, r.Description)
	tw := newTable(w)
	for _, name := range r.Input.PropertyOrder {
		p := r.Input.Properties[name]
		note := ""
		if len(p.Default) > 0 {
			note = fmt.Sprintf(" (default %s)", p.Default)
		}
		for _, req := range r.Input.Required {
			if req == name {
				note = " (required)"
			}
		}
		tw.row("  "+name, p.Type, p.Description+note)
	}
	_ = tw.Flush()
}

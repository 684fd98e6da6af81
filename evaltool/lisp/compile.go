package lisp

import (
	"context"
	"fmt"
	"strings"
)

// Compilation is the result of compile-form.
type Compilation struct {
	OK       bool      `json:"ok"`
	Errors   []Warning `json:"errors,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	// Ended describes how the compiler was stopped, or is null.
	Ended *Evaluation `json:"ended,omitempty"`
}

// Failed implements tool.New's interface.
func (c Compilation) Failed() bool { return !c.OK }

// Text implements tool.New's interface.
func (c Compilation) Text() string {
	if c.Ended != nil {
		return c.Ended.Text()
	}
	if len(c.Errors)+len(c.Warnings)+len(c.Notes) == 0 {
		return "Compilation successful.\nNo warnings or notes."
	}
	parts := []string{"Compilation successful."}
	if !c.OK {
		parts[0] = "Compilation FAILED."
	}
	parts = append(parts, section("Errors", lines(c.Errors))...)
	parts = append(parts, section("Warnings", lines(c.Warnings))...)
	return strings.Join(append(parts, section("Compiler notes", c.Notes)...), "\n")
}

func lines(warnings []Warning) []string {
	var out []string
	for _, w := range warnings {
		mark := ""
		if w.Style {
			mark = "[STYLE] "
		}
		out = append(out, mark+w.Type+": "+w.Message)
	}
	return out
}

func section(title string, items []string) []string {
	if len(items) == 0 {
		return nil
	}
	out := []string{"", fmt.Sprintf("%s (%d):", title, len(items))}
	for _, item := range items {
		out = append(out, indent(item))
	}
	return out
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n    ") }

func (l *Lisp) compile(ctx context.Context, p codeParams) (Compilation, error) {
	rep, r, err := l.run(ctx, opCompile, p.Code, p.Package)
	if err != nil {
		return Compilation{}, err
	}
	if rep.status != StatusOK {
		e := rep.evaluation(r)
		return Compilation{Ended: &e}, nil
	}
	return Compilation{OK: len(rep.Errors) == 0, Errors: rep.Errors, Warnings: rep.Warnings, Notes: rep.answer.Notes}, nil
}

// Timed is the result of time-execution.
type Timed struct {
	Evaluation
}

// Text implements tool.New's interface.
func (t Timed) Text() string {
	if t.Failed() || t.Timing == nil {
		return t.Evaluation.Text()
	}
	parts := []string{
		"Timing:",
		fmt.Sprintf("  Real time: %.3f ms", float64(t.Timing.RealMicros)/1000),
		fmt.Sprintf("  Run time: %.3f ms", float64(t.Timing.RunMicros)/1000),
		fmt.Sprintf("  GC time: %.3f ms", float64(t.Timing.GCMicros)/1000),
		"  Bytes consed: " + thousands(t.Timing.Bytes),
		"", "Result:",
	}
	if len(t.Values) == 0 {
		parts = append(parts, "; No values")
	}
	parts = append(parts, t.Values...)
	if output := t.before(); len(output) > 0 {
		parts = append(append(parts, "", "Output:"), output[:len(output)-1]...)
	}
	return strings.Join(append(parts, comments(t.Notes)...), "\n")
}

func (l *Lisp) time(ctx context.Context, p codeParams) (Timed, error) {
	rep, r, err := l.run(ctx, opEvaluate, p.Code, p.Package)
	if err != nil {
		return Timed{}, err
	}
	return Timed{rep.evaluation(r)}, nil
}

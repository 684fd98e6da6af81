package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

var lispTable = table{
	name: "lisp", title: "What evaluating Common Lisp costs",
	about: "Medians (and p99), ours through the whole of `Session.Call` with all controls and the log on. " +
		"The base is the host's own SBCL (Debian's package with its core, both in the page cache) on a script file with the same form; it has no controls, no container and no session.",
	parts: []func(*bench, context.Context) error{(*bench).lispCalls, (*bench).lispStart},
}

// lispForm is the form that all rows evaluate.
const lispForm = "(+ 1 2)"

func (b *bench) lispCalls(ctx context.Context) error {
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	script := filepath.Join(b.root, "form.lisp")
	if err := os.WriteFile(script, []byte(lispForm+"\n"), 0o600); err != nil {
		return err
	}
	kept := func() error { return tool(ctx, s, "evaluate-lisp", `{"code":"`+lispForm+`"}`) }
	ours, base, err := alternate(b.n, kept, func() error { return exec.Command("sbcl", "--script", script).Run() })
	if err != nil {
		return err
	}
	b.add(faster("`evaluate-lisp` of `(+ 1 2)`", "`sbcl --script` on the host", ours, base, 50))
	if err := tool(ctx, s, "write_file", `{"file_path":"form.lisp","content":"`+lispForm+`"}`); err != nil {
		return err
	}
	ours, base, err = alternate(b.n, kept, func() error { return tool(ctx, s, "shell_execute", `{"commands":["sbcl","--script","form.lisp"]}`) })
	if err != nil {
		return err
	}
	b.add(faster("the same", "`sbcl --script` by `shell_execute`, the same core", ours, base, 50))
	b.notes = append(b.notes, fmt.Sprintf("`(+ 1 2)` once started: median %.2f ms (at most 2 ms: %s)", ms(ours.median()), met(ours.median() <= 2*time.Millisecond)))
	return nil
}

// lispStart measures the first evaluation of a session whose container is there:
// the start of SBCL with the driver, and the value.
func (b *bench) lispStart(ctx context.Context) error {
	const rounds = 20
	var took samples
	var memory []int64
	for range rounds {
		s, err := b.open(ctx, nil)
		if err != nil {
			return err
		}
		before := memoryOf("sbcl")
		one, err := measureOne(func() error { return tool(ctx, s, "evaluate-lisp", `{"code":"`+lispForm+`"}`) })
		memory = append(memory, memoryOf("sbcl")-before)
		_ = s.Close(ctx)
		if err != nil {
			return err
		}
		took = append(took, one)
	}
	const mostTime, mostMemory = 150 * time.Millisecond, 60 << 20
	worst := slices.Max(memory)
	b.notes = append(b.notes,
		fmt.Sprintf("start of SBCL to the first value, %d sessions: median %.0f ms, slowest %.0f ms (at most 150 ms always: %s)", rounds, ms(took.median()), ms(took.at(1)), met(took.at(1) <= mostTime)),
		fmt.Sprintf("memory of an idle SBCL, proportional: at most %.1f MiB (at most 60 MiB: %s)", float64(worst)/(1<<20), met(worst <= mostMemory)))
	return nil
}

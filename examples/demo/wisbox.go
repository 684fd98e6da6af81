package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// answer is one JSON object from the command line.
type answer map[string]any

func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.program, args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+d.state)
	return cmd
}

// wisbox runs one command with --json and returns its answer, from stdout or after a failure from
// stderr, and its exit code.
func (d *demo) wisbox(ctx context.Context, args ...string) (answer, int, error) {
	fmt.Println("   $ wisbox " + quoted(args))
	cmd := d.command(ctx, append([]string{"--json"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, 0, err
	}
	text := stdout.Bytes()
	if err != nil {
		text = stderr.Bytes()
	}
	if d.broken {
		text = []byte("{}")
	}
	var a answer
	if jsonErr := json.Unmarshal(text, &a); jsonErr != nil {
		return nil, 0, fmt.Errorf("wisbox %s: exit %d, no JSON object: %s%s", args[0], cmd.ProcessState.ExitCode(), &stdout, &stderr)
	}
	return a, cmd.ProcessState.ExitCode(), nil
}

// ok runs a command, which must succeed.
func (d *demo) ok(ctx context.Context, args ...string) (answer, error) {
	a, code, err := d.wisbox(ctx, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit %d: %v", code, a)
	}
	return a, err
}

// call calls a tool of the session, which must return a result.
func (d *demo) call(ctx context.Context, tool string, params map[string]any) (answer, error) {
	return d.ok(ctx, "call", d.session, tool, mustJSON(params))
}

// exec runs a program in the session and returns its output.
func (d *demo) exec(ctx context.Context, argv ...string) (string, error) {
	args := append([]string{"exec", d.session, "--"}, argv...)
	fmt.Println("   $ wisbox " + quoted(args))
	out, err := d.command(ctx, args...).Output()
	if d.broken {
		out = nil
	}
	return string(out), err
}

// mustJSON encodes parameters, which can't fail, without HTML escapes.
func mustJSON(v any) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(buf.String())
}

// quoted returns a command line as a person would type it.
func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \n\"'{}[]()*$;<>|&") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// text returns a field that is a string; "" if it is missing or has another type.
func (a answer) text(field string) string {
	s, _ := a[field].(string)
	return s
}

// number returns a field that is a number; -1 if it is missing or has another type.
func (a answer) number(field string) float64 {
	n, ok := a[field].(float64)
	if !ok {
		return -1
	}
	return n
}

// list returns a field that is a list of objects.
func (a answer) list(field string) []answer {
	items, _ := a[field].([]any)
	var out []answer
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// show prints some lines of an answer, indented.
func show(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Println("     " + line)
	}
}

// want returns an error unless ok is true.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

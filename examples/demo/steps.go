package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// step is one thing to show. Its run checks its answers.
type step struct {
	title string
	run   func(*demo, context.Context) error
}

var steps = []step{
	{"the image is there", (*demo).hasImage},
	{"open a session with a copy of a Python project", (*demo).open},
	{"list the project", (*demo).list},
	{"read a file", (*demo).read},
	{"look for a definition", (*demo).grep},
	{"run the project's tests: one fails", (*demo).testsFail},
	{"fix the bug", (*demo).edit},
	{"run the tests again: they pass", (*demo).testsPass},
	{"the original on the host is as it was", (*demo).originalStays},
	{"evaluate Python over the project's data", (*demo).evaluate},
	{"run a program: the figures of the fixed code", (*demo).execute},
	{"a path that leaves the workspace is refused", (*demo).escape},
	{"a program over the memory limit is killed", (*demo).memory},
	{"there is no network", (*demo).network},
	{"programs are nobody in particular: uid 1000, no capabilities, a read-only root", (*demo).identity},
	{"close the session: nothing is left", (*demo).close},
}

const (
	bug   = "    return ordered[len(ordered) // 2]\n"
	fixed = "    half = len(ordered) // 2\n    return (ordered[half] + ordered[~half]) / 2\n"
)

func (d *demo) hasImage(ctx context.Context) error {
	a, err := d.ok(ctx, "image", "build")
	if err != nil {
		return err
	}
	show(fmt.Sprintf("%s, base: %s, %.0f MB", a.text("image"), a.text("base"), a.number("size_bytes")/1e6))
	return want(a.text("image") != "" && a.number("size_bytes") > 1e6, "no image in the answer: %v", a)
}

func (d *demo) open(ctx context.Context) error {
	a, err := d.ok(ctx, "session", "create", d.session, "--mount", d.project+":project")
	if err != nil {
		return err
	}
	return want(a.text("id") == d.session, "no session of that name: %v", a)
}

func (d *demo) list(ctx context.Context) error {
	a, err := d.call(ctx, "ls", map[string]any{"path": "project"})
	if err != nil {
		return err
	}
	var names []string
	for _, e := range a.list("entries") {
		names = append(names, e.text("name"))
	}
	show(strings.Join(names, "  "))
	return want(slices.Equal(names, []string{"README.md", "data", "station", "tests"}), "other entries: %q", names)
}

func (d *demo) read(ctx context.Context) error {
	a, err := d.call(ctx, "read_file", map[string]any{"file_path": "project/station/summary.py", "offset": 17, "limit": 6})
	if err != nil {
		return err
	}
	show(a.text("content"))
	return want(strings.Contains(a.text("content"), bug), "the bug is not in what was read")
}

func (d *demo) grep(ctx context.Context) error {
	a, err := d.call(ctx, "grep", map[string]any{"pattern": `def median\(`, "glob": "*.py"})
	if err != nil {
		return err
	}
	matches := a.list("matches")
	if err := want(len(matches) == 1, "%d matches, not 1", len(matches)); err != nil {
		return err
	}
	m := matches[0]
	show(fmt.Sprintf("%s:%.0f: %s", m.text("path"), m.number("line_number"), m.text("line")))
	return want(strings.HasSuffix(m.text("path"), "project/station/summary.py"), "it is in %q", m.text("path"))
}

// unittest runs the project's tests and returns their result.
func (d *demo) unittest(ctx context.Context) (answer, error) {
	a, err := d.call(ctx, "shell_execute", map[string]any{"commands": []string{"python3", "-m", "unittest"}, "cwd": "project"})
	if err == nil {
		lines := strings.Split(strings.TrimSpace(a.text("stderr")), "\n")
		show(lines[len(lines)-1])
	}
	return a, err
}

func (d *demo) testsFail(ctx context.Context) error {
	a, err := d.unittest(ctx)
	return errors.Join(err,
		want(a.text("status") == "exited" && a.number("exit_code") == 1, "exit code %v, not 1", a["exit_code"]),
		want(strings.Contains(a.text("stderr"), "FAILED (failures=1)"), "not one failure"))
}

func (d *demo) edit(ctx context.Context) error {
	a, err := d.call(ctx, "edit_file", map[string]any{
		"file_path": "project/station/summary.py", "old_string": bug, "new_string": fixed})
	if err != nil {
		return err
	}
	show(a.text("diff"))
	return errors.Join(
		want(a.number("replacements") == 1, "%v replacements, not 1", a["replacements"]),
		want(strings.Contains(a.text("diff"), "+    half = "), "the diff lacks the new line"))
}

func (d *demo) testsPass(ctx context.Context) error {
	a, err := d.unittest(ctx)
	return errors.Join(err,
		want(a.text("status") == "exited" && a.number("exit_code") == 0, "exit code %v, not 0", a["exit_code"]),
		want(strings.HasSuffix(strings.TrimSpace(a.text("stderr")), "OK"), "the tests don't say OK"))
}

// originalStays needs no answer of wisbox; if broken, it looks for a text that isn't there.
func (d *demo) originalStays(context.Context) error {
	text, err := os.ReadFile(filepath.Join(d.project, "station", "summary.py"))
	wanted := bug
	if d.broken {
		wanted = fixed
	}
	return errors.Join(err, want(strings.Contains(string(text), wanted), "the host's file was changed"))
}

func (d *demo) evaluate(ctx context.Context) error {
	code := "import csv, statistics\n" +
		"rows = csv.DictReader(read_text('project/data/june.csv').splitlines())\n" +
		"rain = [float(r['rain_mm'] or 0) for r in rows]\n" +
		"print(len(rain), 'readings')\n" +
		"round(sum(rain), 1)"
	a, err := d.call(ctx, "evaluate_python", map[string]any{"code": code})
	if err != nil {
		return err
	}
	show(a.text("stdout") + "value: " + a.text("value_repr") + " mm of rain")
	return errors.Join(
		want(a.text("value_repr") == "80.0", "the value is %q, not 80.0", a.text("value_repr")),
		want(a.text("stdout") == "180 readings\n", "it printed %q", a.text("stdout")))
}

func (d *demo) execute(ctx context.Context) error {
	out, err := d.exec(ctx, "bash", "-c", "cd project && python3 -m station data/june.csv")
	lines := strings.SplitAfterN(out, "\n", 4)
	show(strings.Join(lines[:min(3, len(lines))], ""))
	return errors.Join(err,
		want(strings.HasPrefix(out, "2025-06-01   11.4  16.2"), "other figures: %.40q", out),
		want(strings.Count(out, "\n") == 30, "%d lines, not 30", strings.Count(out, "\n")))
}

func (d *demo) escape(ctx context.Context) error {
	a, code, err := d.wisbox(ctx, "call", d.session, "read_file", `{"file_path":"../../etc/passwd"}`)
	if err != nil {
		return err
	}
	e, _ := a["error"].(map[string]any)
	show(answer(e).text("kind") + ": " + answer(e).text("message"))
	return errors.Join(
		want(code == 1, "exit code %d, not 1", code),
		want(answer(e).text("kind") == "invalid", "kind %q, not invalid", answer(e).text("kind")))
}

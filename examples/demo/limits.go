package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// endDeadline bounds the time until the last process of a session is gone.
const endDeadline = 10 * time.Second

// memory uses one and a half times the limit. If the host can't enforce the limit (rootless on
// cgroup v1), wisbox has to report that instead.
func (d *demo) memory(ctx context.Context) error {
	a, err := d.call(ctx, "shell_execute", map[string]any{
		"commands": []string{"python3", "-c", "print(len(b'x' * (3 << 29)))"}})
	if err != nil {
		return err
	}
	show("status: " + a.text("status"))
	if a.text("status") == "oom_killed" {
		return nil
	}
	enforced, reason, err := d.limit(ctx, "memory")
	show("memory is not enforced here: " + reason)
	return errors.Join(err, want(!enforced, "status %q, and the limit is reported as enforced", a.text("status")))
}

// limit returns a limit's state in session inspect; a limit that it doesn't name counts as
// enforced.
func (d *demo) limit(ctx context.Context, name string) (enforced bool, by string, err error) {
	a, err := d.ok(ctx, "session", "inspect", d.session)
	for _, l := range limits(a) {
		if l.text("name") == name {
			enforced, _ = l["enforced"].(bool)
			return enforced, l.text("by"), err
		}
	}
	return true, "", err
}

func limits(a answer) []answer {
	if sandbox, ok := a["sandbox"].(map[string]any); ok {
		return answer(sandbox).list("limits")
	}
	return a.list("limits")
}

func (d *demo) network(ctx context.Context) error {
	a, err := d.call(ctx, "shell_execute", map[string]any{"script": "" +
		"ls /sys/class/net\n" +
		`python3 -c "import socket; socket.create_connection(('192.0.2.1', 80), timeout=3)" 2>&1 | tail -n 1`})
	if err != nil {
		return err
	}
	show(a.text("stdout"))
	interfaces, problem, _ := strings.Cut(a.text("stdout"), "\n")
	return errors.Join(
		want(interfaces == "lo", "there are the interfaces %q", interfaces),
		want(strings.Contains(problem, "Error"), "the connection did not fail: %q", problem))
}

func (d *demo) identity(ctx context.Context) error {
	a, err := d.call(ctx, "shell_execute", map[string]any{"script": "" +
		"id -u; awk '/^Cap(Eff|Prm|Bnd)/ { print $2 }' /proc/self/status | sort -u; touch /here 2>&1"})
	if err != nil {
		return err
	}
	show(a.text("stdout"))
	lines := strings.Split(strings.TrimSpace(a.text("stdout")), "\n")
	if len(lines) != 3 {
		return fmt.Errorf("%d lines, not 3", len(lines))
	}
	return errors.Join(
		want(lines[0] == "1000", "uid %s", lines[0]),
		want(strings.Trim(lines[1], "0") == "", "capabilities %s", lines[1]),
		want(strings.Contains(lines[2], "Read-only file system"), "the root is not read-only: %s", lines[2]))
}

// close ends the session and looks for its remains on the host. If broken, it forgets to end it.
func (d *demo) close(ctx context.Context) error {
	if d.broken {
		show("(left open)")
	} else if _, err := d.ok(ctx, "session", "rm", d.session); err != nil {
		return err
	}
	for deadline := time.Now().Add(endDeadline); ; time.Sleep(100 * time.Millisecond) {
		err := d.nothingLeft(ctx)
		if err == nil {
			show("no directory, no process, no container")
		}
		if err == nil || d.broken || time.Now().After(deadline) {
			return err
		}
	}
}

// nothingLeft returns an error if the host has remains of the session.
func (d *demo) nothingLeft(ctx context.Context) error {
	dirs, processes, containers := d.sessionDirs(), d.processes(), d.containers(ctx)
	return errors.Join(
		want(len(dirs) == 0, "directories are left: %v", dirs),
		want(len(processes) == 0, "processes are left: %v", processes),
		want(len(containers) == 0, "containers are left: %v", containers))
}

// sessionDirs returns the sessions' directories in the state root.
func (d *demo) sessionDirs() []string {
	found, _ := filepath.Glob(filepath.Join(d.state, "sessions", "*"))
	return found
}

// processes returns the processes whose command line contains the session or its state root.
func (d *demo) processes() []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || file == fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
			continue
		}
		if bytes.Contains(line, []byte(d.session)) || bytes.Contains(line, []byte(d.state)) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// containers returns the containers that, according to Podman's list, mount something of the state
// root.
func (d *demo) containers(ctx context.Context) []string {
	podman, err := exec.LookPath("podman")
	if err != nil {
		return nil
	}
	out, err := exec.CommandContext(ctx, podman, "ps", "-aq", "--filter", "label=wisbox.sandbox").Output()
	if err != nil {
		return []string{"podman ps: " + err.Error()}
	}
	var left []string
	for id := range strings.FieldsSeq(string(out)) {
		mounts, _ := exec.CommandContext(ctx, podman, "inspect", "--format", "{{range .Mounts}}{{.Source}} {{end}}", id).Output()
		if bytes.Contains(mounts, []byte(d.state)) {
			left = append(left, id)
		}
	}
	return left
}

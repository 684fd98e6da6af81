package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var pythonTable = table{
	name: "python", title: "What evaluating Python costs",
	about: "Medians (and p99), ours through the whole of `Session.Call` with all controls and the log on. The base is the host's fastest interpreter itself, no shim, with warm caches.",
	parts: []func(*bench, context.Context) error{(*bench).evaluations, (*bench).bigRead, (*bench).thousandFresh},
}

func (b *bench) evaluations(ctx context.Context) error {
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	fresh := func() error { return tool(ctx, s, "evaluate_python", `{"code":"1+1"}`) }
	python, err := hostPython()
	if err != nil {
		return err
	}
	host := func() error { return exec.Command(python, "-I", "-c", "1+1").Run() }
	ours, base, err := alternate(b.n, fresh, host)
	if err != nil {
		return err
	}
	b.add(faster("`evaluate_python` of `1+1`, fresh", "`python3 -I -c 1+1` on the host", ours, base, 4))
	kept, base, err := alternate(b.n, func() error { return tool(ctx, s, "evaluate_python", `{"code":"1+1","state":"kept"}`) }, host)
	if err != nil {
		return err
	}
	b.add(faster("the same, kept", "the same", kept, base, 10))
	return nil
}

// bigRead measures the cost that reading a file of 10 MB adds to a call.
func (b *bench) bigRead(ctx context.Context) error {
	const limit = 100 * time.Millisecond
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if err := tool(ctx, s, "shell_execute", `{"script":"head -c 7500000 /dev/urandom | base64 -w 99 | head -c 10000000 > big"}`); err != nil {
		return err
	}
	for _, state := range []string{"fresh", "kept"} {
		call := func(reads string) func() error {
			return func() error {
				return tool(ctx, s, "evaluate_python", `{"code":"sum(map(len, reads.values()))","state":"`+state+`","reads":[`+reads+`]}`)
			}
		}
		with, without, err := alternate(min(b.n, 40), call(`{"path":"big"}`), call(""))
		if err != nil {
			return err
		}
		more := with.Median() - without.Median()
		b.notes = append(b.notes, fmt.Sprintf("a read of 10 MB, %s: %.1f ms more than a call without (p99 %.1f; at most %d ms: %s)",
			state, ms(more), ms(with.At(0.99)-without.Median()), limit.Milliseconds(), met(more <= limit)))
	}
	return nil
}

// thousandFresh checks the remains of a thousand fresh calls.
func (b *bench) thousandFresh(ctx context.Context) error {
	const calls, idle = 1000, 7 * time.Second // spare processes go after 5
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	run := func(n int) error {
		for range n {
			if err := tool(ctx, s, "evaluate_python", `{"code":"1+1"}`); err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(50); err != nil {
		return err
	}
	in, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	time.Sleep(idle)
	before := leftIn(in.Sandbox.Object)
	if err := run(calls); err != nil {
		return err
	}
	time.Sleep(idle)
	after := leftIn(in.Sandbox.Object)
	b.notes = append(b.notes, fmt.Sprintf("%d fresh calls: processes in the container %d before, %d after; the agent's memory %.1f and %.1f MiB; their descriptors and ours %d and %d",
		calls, before.processes, after.processes, mib(before.memory), mib(after.memory), before.descriptors, after.descriptors))
	return nil
}

// left has the processes and memory of a container at a moment; the descriptors are our own.
type left struct {
	processes, descriptors int
	memory                 int64 // bytes; the share of the agent, which is the oldest Python
}

func leftIn(object string) left {
	own, _ := os.ReadDir("/proc/self/fd")
	l := left{descriptors: len(own)}
	agent := math.MaxInt
	for _, dir := range processesIn(object) {
		fds, _ := os.ReadDir(dir + "/fd")
		l.processes++
		l.descriptors += len(fds)
		comm, _ := os.ReadFile(dir + "/comm")
		if pid, _ := strconv.Atoi(filepath.Base(dir)); string(comm) == "python3\n" && pid < agent {
			agent, l.memory = pid, rollup(dir, "Pss")
		}
	}
	return l
}

// processesIn returns the directories below /proc of a container's processes.
func processesIn(object string) (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		cgroup, err := os.ReadFile(dir + "/cgroup")
		if err == nil && strings.Contains(string(cgroup), object) {
			found = append(found, dir)
		}
	}
	return found
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// hostPython returns the fastest interpreter of the host: the first one on PATH may be a shim, or a
// build that starts slowly.
func hostPython() (string, error) {
	out, err := exec.Command("python3", "-I", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return "", err
	}
	best, least := "", time.Duration(0)
	for _, path := range []string{strings.TrimSpace(string(out)), "/usr/bin/python3"} {
		took, err := measure(10, func() error { return exec.Command(path, "-I", "-c", "1+1").Run() })
		if err == nil && (best == "" || took.Median() < least) {
			best, least = path, took.Median()
		}
	}
	return best, nil
}

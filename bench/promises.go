package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
)

var promisesTable = table{
	name: "promises", title: "How soon it ends",
	about: "What is promised in seconds, whatever a program does: the base is the promise, and the slowest of all rounds counts. Of the neighbours the 95th percentiles are compared.",
	parts: []func(*bench, context.Context) error{
		(*bench).timeouts, (*bench).withoutManager, (*bench).spinning, (*bench).hungPodman, (*bench).deadPodman, (*bench).mangled, (*bench).neighbours,
	},
}

// promised returns a row whose slowest round must be within limit.
func promised(what string, ours samples, limit time.Duration) row {
	r := float64(ours.At(1)) / float64(limit)
	return row{what: what, ours: ours, base: samples{limit}, baseName: "the promise; slowest: " + ours.At(1).Round(time.Millisecond).String(), ratio: r, bar: "slowest ≤ 1.0×", met: r <= 1}
}

// few returns a smaller number of rounds, for work that takes a second or more.
func (b *bench) few() int { return max(3, b.n/20) }

// spinning measures time limits under load: the process that enforces them needs its turn.
func (b *bench) spinning(ctx context.Context) error {
	const limit = time.Second
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	const spin = "import os\nfor i in range(200):\n if os.fork() == 0: break\nwhile True: pass"
	var late samples
	for range b.few() {
		began := time.Now()
		res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"python3", "-S", "-c", spin}, Timeout: limit})
		if err != nil || res.Status != sandbox.StatusTimedOut {
			return errors.Join(err, fmt.Errorf("it ended as %s", res.Status))
		}
		late = append(late, time.Since(began)-limit)
	}
	b.add(promised("a time limit with 200 programs that spin: the answer after it", late, time.Second))
	return nil
}

// stubborn ignores TERM, so it ends by KILL.
const stubborn = `for s in HUP INT TERM; do trap "" $s; done; setsid sleep %[1]s & sleep %[1]s`

// termGrace is the time from TERM to KILL at a time limit, see docs/processes.md.
const termGrace = 2 * time.Second

func (b *bench) timeouts(ctx context.Context) error {
	const limit = time.Second
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	var late, gone samples
	for i := range b.few() {
		sleep := fmt.Sprintf("8%d%05d", os.Getpid(), i)
		began := time.Now()
		res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", fmt.Sprintf(stubborn, sleep)}, Timeout: limit})
		if err != nil || res.Status != sandbox.StatusTimedOut {
			return errors.Join(err, fmt.Errorf("it ended as %s", res.Status))
		}
		late = append(late, time.Since(began)-limit-termGrace)
		if err := until(func() bool { return !sleeps(sleep) }); err != nil {
			return err
		}
		gone = append(gone, time.Since(began)-limit-termGrace)
	}
	b.add(promised("a timed-out call returns, after its limit of 1 s and the 2 s from TERM to KILL", late, time.Second),
		promised("its processes are gone, after that", gone, 2*time.Second))
	return nil
}

// withoutManager stops, or kills, the process that runs a program with a limit.
func (b *bench) withoutManager(ctx context.Context) error {
	const limit = 2 * time.Second
	for _, c := range []struct {
		what string
		sig  syscall.Signal
		from time.Duration // after the program's begin
	}{
		{"the same with the manager stopped, with a limit of 2 s", syscall.SIGSTOP, limit + termGrace},
		{"the same with the manager killed, after its death", syscall.SIGKILL, 0},
	} {
		var gone samples
		for i := range b.few() {
			took, err := b.endWithout(ctx, fmt.Sprintf("9%d%05d", os.Getpid(), i), limit, c.sig)
			if err != nil {
				return err
			}
			gone = append(gone, max(0, took-c.from))
		}
		b.add(promised(c.what, gone, 2*time.Second))
	}
	_, err := b.m.Prune(ctx, false)
	return err
}

// endWithout returns the time from the program's start, and from the signal, to its end.
func (b *bench) endWithout(ctx context.Context, sleep string, limit time.Duration, sig syscall.Signal) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, b.bin, "run", "--timeout", limit.String(), "--", "sh", "-c", fmt.Sprintf(stubborn, sleep))
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+b.root)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := until(func() bool { return sleeps(sleep) }); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Process.Signal(sig); err != nil {
		return 0, err
	}
	err := until(func() bool { return !sleeps(sleep) })
	took := time.Since(began)
	_ = cmd.Process.Signal(syscall.SIGCONT)
	return took, err
}

// sleeps reports whether a `sleep` of that time is among the host's processes.
func sleeps(seconds string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if line, _ := os.ReadFile(path); strings.HasPrefix(string(line), "sleep\x00"+seconds) {
			return true
		}
	}
	return false
}

func until(done func() bool) error {
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("what was waited for did not come in 30 s")
		}
	}
	return nil
}

// hungPodman stops a private service of its own while sessions use it.
func (b *bench) hungPodman(ctx context.Context) error {
	run, err := os.MkdirTemp("/tmp", "wb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(run)
	m, err := wisbox.NewManager(ctx, &wisbox.Options{CacheDir: filepath.Join(run, "c"), Podman: podman.Options{RuntimeDir: run}})
	if err != nil {
		return err
	}
	defer m.Close()
	if _, err := m.Backend().List(ctx); err != nil {
		return err
	}
	pid, err := servicePID(run)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGTERM) }()
	var refused, works samples
	for range 3 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		took, err := firstCall(ctx, m, false)
		_ = syscall.Kill(pid, syscall.SIGCONT)
		if err != nil {
			return err
		}
		refused = append(refused, took)
		if took, err = firstCall(ctx, m, true); err != nil {
			return err
		}
		works = append(works, took)
	}
	b.add(promised("Podman hangs: the first program of a session is `unavailable`", refused, 5*time.Second),
		promised("Podman is back: the first program of the next session works", works, 5*time.Second))
	return nil
}

func servicePID(run string) (int, error) {
	files, err := filepath.Glob(filepath.Join(run, "podman-*/service.json"))
	if err != nil || len(files) != 1 {
		return 0, fmt.Errorf("%d private services: %w", len(files), err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		return 0, err
	}
	var p struct{ PID int }
	return p.PID, json.Unmarshal(raw, &p)
}

// firstCall times the first program of a new session, whether or not it succeeds.
func firstCall(ctx context.Context, m *wisbox.Manager, works bool) (time.Duration, error) {
	s, err := m.Open(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer s.Close(ctx)
	began := time.Now()
	err = runTrue(ctx, s)
	took := time.Since(began)
	if works == (err == nil) {
		return took, nil
	}
	return took, fmt.Errorf("works: %v, but the call gave: %w", works, err)
}

func (b *bench) deadPodman(ctx context.Context) error {
	m, err := wisbox.NewManager(ctx, &wisbox.Options{CacheDir: b.root, Podman: podman.Options{BaseURL: "unix:///run/wisbox-no-such.sock"}})
	if err != nil {
		return err
	}
	defer m.Close()
	var took samples
	for range b.few() {
		one, err := firstCall(ctx, m, false)
		if err != nil {
			return err
		}
		took = append(took, one)
	}
	b.add(promised("Podman is gone: `unavailable`", took, 5*time.Second))
	return nil
}

// mangle creates a tree that is deep, inaccessible and large.
const mangle = `
import os
for i in range(5000):
    os.mkdir("d"); os.chdir("d")
os.chdir("/workspace")
for i in range(200):
    os.mkdir("w%d" % i)
    for j in range(200):
        os.close(os.open("w%d/%d" % (i, j), os.O_CREAT))
    os.chmod("w%d" % i, 0)
os.mkfifo("p"); os.symlink("/", "l"); os.chmod("d", 0)`

func (b *bench) mangled(ctx context.Context) error {
	var took samples
	for range 3 {
		s, err := b.open(ctx, nil)
		if err != nil {
			return err
		}
		res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"python3", "-c", mangle}})
		if err != nil || res.ExitCode != 0 {
			return errors.Join(err, fmt.Errorf("mangle: %+v", res), s.Close(ctx))
		}
		began := time.Now()
		if err := s.Close(ctx); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	b.add(promised("a session of 5,000 levels and 40,000 files, closed directories, FIFO, link is deleted", took, 30*time.Second))
	return nil
}

// noise are the programs of a bad neighbour: a loop, a flood of output and of files, and memory
// over the limit again and again.
var noise = []string{
	"while :; do :; done",
	"yes",
	"while :; do head -c 50000000 /dev/zero > f; done",
	`while :; do python3 -c 'x=[]
while True: x.append(bytearray(16 << 20))'; done`,
}

// neighbours compares /bin/true in a quiet session beside a bad neighbour to the same alone, in
// turn.
func (b *bench) neighbours(ctx context.Context) error {
	quiet, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer quiet.Close(ctx)
	truth := func() error { return runTrue(ctx, quiet) }
	var alone, beside samples
	for range 4 {
		idle, err := measure(b.n/2, truth)
		if err != nil {
			return err
		}
		loud, err := b.besideNoise(ctx, truth)
		if err != nil {
			return err
		}
		alone, beside = append(alone, idle...), append(beside, loud...)
	}
	r := float64(beside.At(0.95)) / float64(alone.At(0.95))
	b.add(row{
		what: fmt.Sprintf("`/bin/true` beside a session that loops, floods and eats memory; 95th percentile %.1f ms", ms(beside.At(0.95))),
		ours: beside, base: alone, baseName: fmt.Sprintf("the same alone; 95th percentile %.1f ms", ms(alone.At(0.95))),
		ratio: r, bar: "95th ≤ 3.0×", met: r <= 3,
	})
	b.notes = append(b.notes, "No call of the quiet session failed: "+strconv.Itoa(len(beside))+" beside the noise.")
	return nil
}

func (b *bench) besideNoise(ctx context.Context, truth func() error) (samples, error) {
	s, err := b.open(ctx, &wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 256 << 20}})
	if err != nil {
		return nil, err
	}
	defer s.Close(ctx)
	for _, script := range noise {
		if _, err := s.StartProcess(ctx, sandbox.Cmd{Argv: []string{"bash", "-c", script}}, nil); err != nil {
			return nil, err
		}
	}
	return measure(b.n/2, truth)
}

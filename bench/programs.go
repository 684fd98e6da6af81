package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

var programsTable = table{
	name: "programs", title: "What programs cost",
	about: "Medians (and p99), ours through the whole of `Session.Call` with all controls and the log on. The bases are at their best: warm caches, a service whose `exit_command_delay` is 1 s. The rows of `evaluate_python` are in python.md.",
	parts: []func(*bench, context.Context) error{(*bench).programs, (*bench).opening, (*bench).parallel, (*bench).commandLine, (*bench).output, (*bench).many},
}

// open opens a session; the caller closes it.
func (b *bench) open(ctx context.Context, opts *wisbox.SessionOptions) (*wisbox.Session, error) {
	s, err := b.m.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	return s, runTrue(ctx, s)
}

// tool makes one call, which must succeed.
func tool(ctx context.Context, s *wisbox.Session, name, args string) error {
	res, err := s.Call(ctx, name, json.RawMessage(args))
	if err != nil {
		return err
	}
	if res.Failed {
		return errors.New(name + " failed: " + res.Text)
	}
	return nil
}

// runTrue runs the shortest program.
func runTrue(ctx context.Context, s *wisbox.Session) error {
	return tool(ctx, s, "shell_execute", `{"commands":["/bin/true"]}`)
}

// programs compares one short program to the host's own and to Podman's ways.
func (b *bench) programs(ctx context.Context) error {
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	truth := func() error { return runTrue(ctx, s) }
	ours, host, err := alternate(b.n, truth, func() error { return exec.Command("/bin/true").Run() })
	if err != nil {
		return err
	}
	b.add(slower("`shell_execute` of `/bin/true`", "fork+exec on the host", ours, host, 1.4))
	ours, host, err = alternate(b.n, truth, func() error {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command("/bin/true")
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		return cmd.Run()
	})
	if err != nil {
		return err
	}
	b.add(slower("the same", "the same with its output captured, as ours is", ours, host, 1.4))
	in, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	api := &podmanAPI{url: b.service.URL, container: in.Sandbox.Object}
	viaAPI, err := measure(min(b.n, 60), api.execTrue)
	if err != nil {
		return fmt.Errorf("the API's exec: %w", err)
	}
	b.add(faster("the same", "exec create, attach, inspect by the API", ours, viaAPI, 50))
	viaCLI, err := measure(min(b.n, 60), func() error {
		return exec.Command("podman", "exec", in.Sandbox.Object, "/bin/true").Run()
	})
	if err != nil {
		return fmt.Errorf("podman exec: %w", err)
	}
	b.add(faster("the same", "`podman exec`", ours, viaCLI, 80))
	return nil
}

// opening measures a session with its first program, cold and from the pool.
func (b *bench) opening(ctx context.Context) error {
	const rounds = 20
	once := func(m *wisbox.Manager) func() error {
		return func() error {
			s, err := m.Open(ctx, nil)
			if err != nil {
				return err
			}
			err = runTrue(ctx, s)
			go s.Close(ctx) // not measured
			return err
		}
	}
	s, err := b.open(ctx, nil) // for its image
	if err != nil {
		return err
	}
	in, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	api := &podmanAPI{url: b.service.URL}
	defer api.removeAll()
	cold, bare, err := alternate(rounds, once(b.m), func() error { return api.createAndStart(in.Sandbox.Image) })
	if err := errors.Join(err, s.Close(ctx)); err != nil {
		return err
	}
	b.add(unpromised("open and first program, cold", "create and start by the API, no agent, no controls, no program", cold, bare))
	extra := cold.Median() - bare.Median()
	b.notes = append(b.notes, fmt.Sprintf("open and first program, cold: %.0f ms (at most 130: %s), %.0f ms more than create and start alone (at most 30: %s)",
		ms(cold.Median()), met(cold.Median() <= 130*time.Millisecond), ms(extra), met(extra <= 30*time.Millisecond)))
	pooled, err := wisbox.NewManager(ctx, &wisbox.Options{CacheDir: b.root, Pool: wisbox.PoolOptions{Min: 8}})
	if err != nil {
		return err
	}
	defer pooled.Close()
	var warm samples
	for range rounds {
		time.Sleep(time.Second) // the pool must fill first
		one, err := measureOne(once(pooled))
		if err != nil {
			return err
		}
		warm = append(warm, one)
	}
	b.add(unpromised("open and first program, from the pool", "the same, cold", warm, cold))
	b.notes = append(b.notes, fmt.Sprintf("open and first program, from the pool: %.1f ms (at most 5: %s)", ms(warm.Median()), met(warm.Median() <= 5*time.Millisecond)))
	return nil
}

func measureOne(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// parallel measures eight programs of 10 ms CPU in a session of two processors.
func (b *bench) parallel(ctx context.Context) error {
	s, err := b.open(ctx, &wisbox.SessionOptions{Limits: sandbox.Limits{CPUs: 2}})
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	const burn = `{"commands":["python3","-I","-S","-c","import time\ne=time.process_time()+0.01\nwhile time.process_time()<e: pass"]}`
	one := func() error { return tool(ctx, s, "shell_execute", burn) }
	inTurn, atOnce, err := alternate(max(20, b.n/10), func() error {
		for range 8 {
			if err := one(); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		var g errgroup.Group
		for range 8 {
			g.Go(one)
		}
		return g.Wait()
	})
	if err != nil {
		return err
	}
	b.add(faster("8 programs of 10 ms CPU at once, 2 processors", "one after the other", atOnce, inTurn, 1.7))
	return nil
}

// commandLine compares a whole process of ours to one of Podman's.
func (b *bench) commandLine(ctx context.Context) error {
	cli := func(args ...string) error {
		cmd := exec.Command(b.bin, args...)
		cmd.Env = append(os.Environ(), "WISBOX_CACHE="+b.root)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("wisbox %s: %w: %s", args, err, out)
		}
		return nil
	}
	if err := cli("session", "create", "bench"); err != nil {
		return err
	}
	defer func() { _ = cli("session", "rm", "bench") }()
	if err := cli("exec", "bench", "--", "true"); err != nil {
		return err
	}
	list, err := b.m.Backend().List(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(info sandbox.Info) bool { return info.ID == "bench" })
	if i < 0 {
		return errors.New("the session of the command line has no container")
	}
	ours, base, err := alternate(min(b.n, 60), func() error { return cli("exec", "bench", "--", "true") }, func() error {
		return exec.Command("podman", "exec", list[i].Object, "true").Run()
	})
	if err != nil {
		return err
	}
	b.add(faster("`wisbox exec SESSION -- true`, the whole process", "`podman exec`", ours, base, 4))
	return nil
}

// output measures a program's output through the whole command line.
func (b *bench) output(context.Context) error {
	const size = "268435456"
	pipe := func(name string, args ...string) error {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "WISBOX_CACHE="+b.root)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, out)
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return err
		}
		if fmt.Sprint(n) != size {
			return fmt.Errorf("%s wrote %d bytes", name, n)
		}
		return nil
	}
	if err := exec.Command("env", "WISBOX_CACHE="+b.root, b.bin, "session", "create", "bench-out").Run(); err != nil {
		return err
	}
	defer func() { _ = exec.Command("env", "WISBOX_CACHE="+b.root, b.bin, "session", "rm", "bench-out").Run() }()
	ours, base, err := alternate(10, func() error {
		return pipe(b.bin, "exec", "bench-out", "--", "head", "-c", size, "/dev/zero")
	}, func() error { return pipe("sh", "-c", "head -c "+size+" /dev/zero | cat") })
	if err != nil {
		return err
	}
	b.add(slower("256 MiB on stdout through `wisbox exec`", "`head \\| cat` to a pipe on the host", ours, base, 2))
	return nil
}

// agentNames are the processes that a session has beside its programs.
var agentNames = []string{"conmon", "wisbox-agent", "wisbox-monitor"}

// many opens sessions side by side, and measures the cost of each idle one, and calls in all.
func (b *bench) many(ctx context.Context) error {
	before := memoryOf(agentNames...)
	sessions := make([]*wisbox.Session, b.sessions)
	var g errgroup.Group
	for i := range sessions {
		g.Go(func() error {
			s, err := b.open(ctx, nil)
			sessions[i] = s
			return err
		})
	}
	err := g.Wait()
	defer func() {
		var end sync.WaitGroup
		for _, s := range sessions {
			if s != nil {
				end.Go(func() { _ = s.Close(ctx) })
			}
		}
		end.Wait()
	}()
	if err != nil {
		return err
	}
	each := float64(memoryOf(agentNames...)-before) / float64(b.sessions) / (1 << 20)
	b.notes = append(b.notes, fmt.Sprintf("%d sessions open and idle: %.1f MiB each (proportional memory of agent, monitor and conmon; at most 6 MiB: %s)", b.sessions, each, met(each <= 6)))
	return b.load(ctx, sessions)
}

// load compares many callers at once to as many that only fork and exec on the host, in turns.
func (b *bench) load(ctx context.Context, sessions []*wisbox.Session) error {
	const rounds, calls = 5, 800
	var ours, host crowd
	for range rounds {
		ours.add(calls, func(i int) error { return runTrue(ctx, sessions[i%len(sessions)]) })
		host.add(calls, func(int) error { return exec.Command("/bin/true").Run() })
	}
	rate, p99 := ours.rate()/host.rate(), ours.took.At(0.99)
	b.notes = append(b.notes,
		fmt.Sprintf("%d sessions, %d calls of `/bin/true` from %d callers: %d errors (0 must be: %s), median %.1f ms, p99 %.1f ms, %.0f calls a second",
			len(sessions), len(ours.took), callers, ours.errs, met(ours.errs == 0), ms(ours.took.Median()), ms(p99), ours.rate()),
		fmt.Sprintf("as many fork+exec on the host from %d goroutines, in %d rounds in turn with ours: median %.1f ms, p99 %.1f ms, %.0f a second; our rate is %.2f of it (at least 0.55: %s), our p99 %.1f times theirs (at most 3: %s)",
			callers, rounds, ms(host.took.Median()), ms(host.took.At(0.99)), host.rate(), rate, met(rate >= 0.55),
			ms(p99)/ms(host.took.At(0.99)), met(p99 <= 3*host.took.At(0.99))))
	return nil
}

// callers are the goroutines of a crowd.
const callers = 64

// crowd is calls from many goroutines: the duration of each, the total, and the failures.
type crowd struct {
	took samples
	all  time.Duration
	errs int
}

func (c *crowd) rate() float64 { return float64(len(c.took)) / c.all.Seconds() }

// add makes more calls.
func (c *crowd) add(calls int, do func(i int) error) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(callers)
	began := time.Now()
	for i := range calls {
		g.Go(func() error {
			took, err := measureOne(func() error { return do(i) })
			mu.Lock()
			defer mu.Unlock()
			c.took = append(c.took, took)
			if err != nil {
				c.errs++
				fmt.Fprintln(os.Stderr, "call:", err)
			}
			return nil
		})
	}
	_ = g.Wait()
	c.all += time.Since(began)
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "**not met**"
}

// memoryOf adds up the proportional set size of all processes of these names, in bytes.
func memoryOf(names ...string) int64 {
	dirs, _ := os.ReadDir("/proc")
	var sum int64
	for _, d := range dirs {
		comm, err := os.ReadFile("/proc/" + d.Name() + "/comm")
		if err != nil || !slices.Contains(names, strings.TrimSpace(string(comm))) {
			continue
		}
		sum += rollup("/proc/"+d.Name(), "Pss")
	}
	return sum
}

// rollup adds up fields of a process's memory, in bytes; 0 if it is gone.
func rollup(dir string, fields ...string) (sum int64) {
	text, err := os.ReadFile(dir + "/smaps_rollup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && slices.Contains(fields, strings.TrimSuffix(f[0], ":")) {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			sum += kib << 10
		}
	}
	return sum
}

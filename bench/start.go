package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/overlay"
)

var startTable = table{
	name: "start", title: "What a command costs to start",
	about: "Whole processes, from fork to exit, in turn. The hello-world is a static program of Go that prints one word, as small as Go makes it. The command before is that of commit eb549ac, if `WISBOX_BENCH_BEFORE` has its path.",
	parts: []func(*bench, context.Context) error{(*bench).start},
}

const helloWorld = `package main

import "fmt"

func main() { fmt.Println("hello") }
`

// start compares short commands on a kept session with a hello-world, with the command before, and with Podman's.
func (b *bench) start(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "wisbox-hello-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	hello := filepath.Join(dir, "hello")
	if err := os.WriteFile(hello+".go", []byte(helloWorld), 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", hello, hello+".go").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	now := &starter{bin: b.bin, root: filepath.Join(dir, "now")}
	defer now.end()
	if err := now.begin("--no-undo"); err != nil {
		return err
	}
	base := func(argv ...string) func() error {
		return func() error { return exec.Command(argv[0], argv[1:]...).Run() }
	}
	for _, c := range []struct {
		what string
		args []string
		most float64
	}{
		{"`wisbox exec BOX -- true`", []string{"exec", "box", "--", "true"}, 2.5},
		{"the same without steps for undo", []string{"exec", "plain", "--", "true"}, 2.5},
		{"`wisbox call BOX ls`", []string{"call", "box", "ls"}, 2},
		{"`wisbox ls`", []string{"ls"}, 2},
		{"`wisbox --help`", []string{"--help"}, 2},
		{"completion of a session's name", []string{"__complete", "exec", "b"}, 2},
		{"`wisbox version`, by the engine", []string{"version"}, 0},
	} {
		ours, host, err := alternate(b.n, now.does(c.args...), base(hello))
		if err != nil {
			return err
		}
		if c.most == 0 {
			b.add(unpromised(c.what, "hello-world", ours, host))
			continue
		}
		b.add(slower(c.what, "hello-world", ours, host, c.most))
	}
	container, err := now.container(ctx)
	if err != nil {
		return err
	}
	exe := now.does("exec", "box", "--", "true")
	ours, podman, err := alternate(min(b.n, 60), exe, base("podman", "exec", container, "true"))
	if err != nil {
		return err
	}
	b.add(faster("`wisbox exec BOX -- true`", "`podman exec`", ours, podman, 25))
	return b.startBefore(filepath.Join(dir, "before"), now)
}

// startBefore compares with an earlier command, in a state root of its own.
func (b *bench) startBefore(root string, now *starter) error {
	bin := os.Getenv("WISBOX_BENCH_BEFORE")
	if bin == "" {
		return nil
	}
	before := &starter{bin: bin, root: root}
	defer before.end()
	if err := before.begin(); err != nil {
		return err
	}
	args := []string{"exec", "box", "--", "true"}
	ours, theirs, err := alternate(b.n, now.does(args...), before.does(args...))
	if err != nil {
		return err
	}
	b.add(slower("`wisbox exec BOX -- true`", "the same before", ours, theirs, 0.35))
	peak, theirPeak, err := peaks(now, before)
	if err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // after some calls: a collection gives pages back
	held, theirHeld, err := holders(now, before, true)
	if err != nil {
		return err
	}
	dirty, theirDirty, err := holders(now, before, false)
	if err != nil {
		return err
	}
	size := func(path string) float64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return float64(info.Size()) / (1 << 20)
	}
	verdict := map[bool]string{true: "met", false: "**not met**"}
	b.notes = append(b.notes,
		fmt.Sprintf("Peak memory of `wisbox exec`: %.1f MiB, before %.1f: %.2f of it (at most 0.45: %s).", peak, theirPeak, peak/theirPeak, verdict[peak/theirPeak <= 0.45]),
		fmt.Sprintf("Private memory of an idle session's holder, beside a second one: %.1f MiB, before %.1f: %.2f of it (at most 0.5: %s).", held, theirHeld, held/theirHeld, verdict[held/theirHeld <= 0.5]),
		fmt.Sprintf("Without the unchanged pages of the program's file, which the kernel may drop and which holders share: %.1f MiB, before %.1f: %.2f of it.", dirty, theirDirty, dirty/theirDirty),
		fmt.Sprintf("Size of the command: %.1f MiB, before %.1f: %.2f of it (at most 0.75: %s).", size(now.bin), size(before.bin), size(now.bin)/size(before.bin), verdict[size(now.bin)/size(before.bin) <= 0.75]))
	return nil
}

// starter is a command with a state root of its own.
type starter struct{ bin, root string }

func (s *starter) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.bin, args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+s.root)
	return cmd
}

func (s *starter) does(args ...string) func() error {
	return func() error { return s.command(args...).Run() }
}

// begin makes the session box, and plain beside it: two holders share the pages of their program's file.
func (s *starter) begin(plain ...string) error {
	return errors.Join(s.does("session", "create", "box")(), s.does("exec", "box", "--", "true")(),
		s.does(append([]string{"session", "create", "plain"}, plain...)...)(), s.does("exec", "plain", "--", "true")())
}

func (s *starter) end() {
	_ = s.does("session", "rm", "-f", "box")()
	_ = s.does("session", "rm", "-f", "plain")()
}

// container returns the session's container.
func (s *starter) container(ctx context.Context) (string, error) {
	store, err := overlay.OpenStore(s.root)
	if err != nil {
		return "", err
	}
	defer store.Close()
	out, err := exec.CommandContext(ctx, "podman", "ps", "-q", "--no-trunc", "--filter", "label=wisbox.root="+store.ID(), "--filter", "label=wisbox.sandbox=box").Output()
	return string(out[:max(0, len(out)-1)]), err
}

// peaks returns the medians of the peak memory of both commands while their program runs, in MiB. (The peak that wait(2)
// reports would be at least that of the process that forked them.)
func peaks(ours, theirs *starter) (our, their float64, err error) {
	one := func(s *starter) (float64, error) {
		var all []float64
		for range 21 {
			n, err := s.peak()
			if err != nil {
				return 0, err
			}
			all = append(all, n)
		}
		slices.Sort(all)
		return all[len(all)/2], nil
	}
	if our, err = one(ours); err != nil {
		return 0, 0, err
	}
	their, err = one(theirs)
	return our, their, err
}

func (s *starter) peak() (float64, error) {
	cmd := s.command("exec", "box", "--", "sh", "-c", "echo; cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, err = out.Read(make([]byte, 1))
	status, failed := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib float64
	_, scanned := fmt.Sscan(rest, &kib)
	return kib / 1024, errors.Join(err, failed, scanned, in.Close(), cmd.Wait())
}

// holders returns the private memory of the holders of both commands' sessions in MiB: with the unchanged pages of files
// if those are asked for.
func holders(ours, theirs *starter, clean bool) (our, their float64, err error) {
	our, err = ours.held(clean)
	if err != nil {
		return 0, 0, err
	}
	their, err = theirs.held(clean)
	return our, their, err
}

func (s *starter) held(clean bool) (float64, error) {
	pid, err := os.ReadFile(filepath.Join(s.root, "sessions", "box", "held"))
	if err != nil {
		return 0, err
	}
	parts := []string{"Private_Dirty"}
	if clean {
		parts = append(parts, "Private_Clean")
	}
	return float64(rollup("/proc/"+string(pid), parts...)) / (1 << 20), nil
}

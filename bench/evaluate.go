package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/evaltool"
)

var evaluateTable = table{
	name: "evaluate", title: "What a notebook's interpreter costs",
	about: "Ours through the whole of `Session.Evaluate`, in a named context of a session with all controls and the log on. The base is `python3 -i` on the host, the fastest there is, " +
		"which is given lines by a pipe and has no controls, no container and no session. The bar of each row is a time or a size of ours; the ratio says how much more that is than the base.",
	parts: []func(*bench, context.Context) error{(*bench).firstByte, (*bench).inContext, (*bench).interrupts, (*bench).idleMemory},
}

// within returns a row whose median must be at most limit.
func within(what, baseName string, ours, base samples, limit time.Duration) row {
	r := unpromised(what, baseName, ours, base)
	r.bar, r.met = fmt.Sprintf("≤ %g ms", ms(limit)), ours.Median() <= limit
	return r
}

const benchContext = "bench"

// evaluate runs one evaluation in the context; each gets its output.
func evaluate(ctx context.Context, s *wisbox.Session, code string, each func(evaltool.Part)) error {
	res, err := s.Evaluate(ctx, evaltool.Run{Params: evaltool.Params{Code: code, Context: benchContext}}, each)
	if err == nil && res.Failed && res.Verdict != evaltool.StatusCancelled {
		err = errors.New("the evaluation failed: " + res.Text)
	}
	return err
}

// prompt is a python3 -i on the host.
type prompt struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newPrompt() (*prompt, error) {
	python, err := hostPython()
	if err != nil {
		return nil, err
	}
	p := &prompt{cmd: exec.Command(python, "-I", "-q", "-u", "-i", "-c", "import sys; sys.ps1 = sys.ps2 = ''")}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *prompt) close() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// ask sends a line and waits for a line.
func (p *prompt) ask(line string) error {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return err
	}
	_, err := p.out.ReadString('\n')
	return err
}

// withPrompt opens a session with a running context, and a prompt on the host.
func (b *bench) withPrompt(ctx context.Context, do func(s *wisbox.Session, p *prompt) error) error {
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	p, err := newPrompt()
	if err != nil {
		return err
	}
	defer p.close()
	if err := evaluate(ctx, s, "1+1", nil); err != nil {
		return err
	}
	return do(s, p)
}

// firstByte measures the time until the first output of code that then runs for a while.
func (b *bench) firstByte(ctx context.Context) error {
	const rest = "import time; time.sleep(0.05)"
	return b.withPrompt(ctx, func(s *wisbox.Session, p *prompt) error {
		var ours, base samples
		for range max(10, b.n/4) {
			began, first := time.Now(), time.Duration(0)
			err := evaluate(ctx, s, "print('x')\n"+rest, func(part evaltool.Part) {
				if part.Stdout != "" && first == 0 {
					first = time.Since(began)
				}
			})
			if err != nil || first == 0 {
				return errors.Join(err, errors.New("nothing was streamed"))
			}
			ours = append(ours, first)
			began = time.Now()
			if err := p.ask("print('x'); " + rest); err != nil {
				return err
			}
			base = append(base, time.Since(began))
			if err := p.ask("print()"); err != nil { // it has slept
				return err
			}
		}
		b.add(within("the first byte that code prints", "`python3 -i` by a pipe, on the host", ours, base, 10*time.Millisecond))
		return nil
	})
}

func (b *bench) inContext(ctx context.Context) error {
	return b.withPrompt(ctx, func(s *wisbox.Session, p *prompt) error {
		ours, base, err := alternate(b.n, func() error { return evaluate(ctx, s, "1+1", nil) }, func() error { return p.ask("1+1") })
		if err != nil {
			return err
		}
		b.add(within("an evaluation of `1+1` in a context", "the same", ours, base, 1500*time.Microsecond))
		return nil
	})
}

// interrupts measures the end of a loop, from the cancellation to the answer.
func (b *bench) interrupts(ctx context.Context) error {
	return b.withPrompt(ctx, func(s *wisbox.Session, p *prompt) error {
		var ours, base samples
		for range max(10, b.n/4) {
			took, err := interruptOurs(ctx, s)
			if err != nil {
				return err
			}
			ours = append(ours, took)
			if err := p.ask("try:\n  print('on')\n  while True: pass\nexcept KeyboardInterrupt: print('off')\n"); err != nil {
				return err
			}
			began := time.Now()
			if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
				return err
			}
			if _, err := p.out.ReadString('\n'); err != nil {
				return err
			}
			base = append(base, time.Since(began))
		}
		b.add(within("an interrupt of `while True: pass`, names kept", "SIGINT to it", ours, base, 50*time.Millisecond))
		return evaluate(ctx, s, "kept", nil)
	})
}

func interruptOurs(ctx context.Context, s *wisbox.Session) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var began time.Time
	err := evaluate(ctx, s, "kept = 1\nprint('on')\nwhile True: pass", func(part evaltool.Part) {
		if part.Stdout != "" && began.IsZero() {
			began = time.Now()
			cancel()
		}
	})
	if err != nil || began.IsZero() {
		return 0, errors.Join(err, errors.New("the loop did not begin"))
	}
	return time.Since(began), nil
}

// idleMemory compares the memory of the container's processes with and without contexts to that of
// a plain Python.
func (b *bench) idleMemory(ctx context.Context) error {
	const contexts, limit, settle = 5, 15.0, 2 * time.Second
	return b.withPrompt(ctx, func(s *wisbox.Session, p *prompt) error {
		in, err := s.Inspect(ctx)
		if err != nil {
			return err
		}
		time.Sleep(settle)
		before := memoryIn(in.Sandbox.Object)
		for i := range contexts {
			run := evaltool.Run{Params: evaltool.Params{Code: "x = 1", Context: fmt.Sprint("more-", i)}}
			if _, err := s.Evaluate(ctx, run, nil); err != nil {
				return err
			}
		}
		time.Sleep(settle)
		each := mib(memoryIn(in.Sandbox.Object)-before) / contexts
		host := mib(rollup(fmt.Sprintf("/proc/%d", p.cmd.Process.Pid), "Pss"))
		b.notes = append(b.notes, fmt.Sprintf("the memory of an idle context: %.1f MiB (proportional share, mean of %d; at most %g MiB: %s); `python3 -i` on the host %.1f MiB: %.1f times as much",
			each, contexts, limit, met(each <= limit), host, each/host))
		return nil
	})
}

// memoryIn returns the share of memory of a container's processes.
func memoryIn(object string) (sum int64) {
	for _, dir := range processesIn(object) {
		sum += rollup(dir, "Pss")
	}
	return sum
}

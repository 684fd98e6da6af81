package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

var lispTable = table{
	name: "lisp", title: "What evaluating Common Lisp costs",
	about: "Medians (and p99), ours through the whole of `Session.Call` with all controls and the log on. " +
		"The base is SBCL on a script file with the same form, with Debian's own core in the page cache, which SBCL maps: on the host it has no controls, no container and no session.",
	parts: []func(*bench, context.Context) error{(*bench).lispCalls, (*bench).lispStart, (*bench).lispTimeouts},
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
	if err := tool(ctx, s, "write_file", `{"file_path":"form.lisp","content":"`+lispForm+`"}`); err != nil {
		return err
	}
	in, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	kept := func() error { return tool(ctx, s, "evaluate-lisp", `{"code":"`+lispForm+`"}`) }
	ours, host, err := alternate(b.n, kept, func() error { return exec.Command("sbcl", "--script", script).Run() })
	if err != nil {
		return err
	}
	b.add(faster("`evaluate-lisp` of `(+ 1 2)`", "`sbcl --script` on the host", ours, host, 50))
	inside, err := measure(min(b.n, 60), func() error {
		return exec.Command("podman", "exec", "--user", "1000", in.Sandbox.Object, "sbcl", "--script", "/workspace/form.lisp").Run()
	})
	if err != nil {
		return fmt.Errorf("podman exec: %w", err)
	}
	b.add(faster("the same", "`podman exec` of `sbcl --script`, in the same container", ours, inside, 50))
	b.notes = append(b.notes, fmt.Sprintf("`(+ 1 2)` once started: median %.2f ms (at most 2 ms: %s)", ms(ours.Median()), met(ours.Median() <= 2*time.Millisecond)))
	return b.echo(ctx, s, host)
}

// echo measures the minimum for a call of an interpreter in the container: a round trip of bytes.
func (b *bench) echo(ctx context.Context, s *wisbox.Session, host samples) error {
	const size = 200 // bytes, as in a request and its answer
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	p, err := s.Start(ctx, sandbox.Cmd{Argv: []string{"cat"}, Stdin: in, Stdout: out})
	if err != nil {
		return err
	}
	defer func() { _ = p.Kill() }()
	buf := make([]byte, size)
	floor, err := measure(b.n, func() error {
		if _, err := requests.Write(buf); err != nil {
			return err
		}
		_, err := io.ReadFull(answers, buf)
		return err
	})
	if err != nil {
		return err
	}
	b.notes = append(b.notes, fmt.Sprintf("the floor: %d bytes to `cat` in the container and back, through Podman, conmon and the agent, take %.2f ms; "+
		"so nothing evaluated there is more than %.0f times as fast as `sbcl --script` on this host, which maps its core and starts in %.1f ms",
		size, ms(floor.Median()), float64(host.Median())/float64(floor.Median()), ms(host.Median())))
	return nil
}

// lispTimeouts measures the time from an evaluation's limit to its answer, also for one that only a
// kill ends.
func (b *bench) lispTimeouts(ctx context.Context) error {
	s, err := b.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	const limit, rounds = time.Second, 5
	if err := tool(ctx, s, "configure-limits", `{"timeout":1}`); err != nil {
		return err
	}
	var took samples
	for _, code := range []string{"(loop)", "(loop (print 1))", "(sb-sys:without-interrupts (loop))"} {
		for range rounds {
			if err := tool(ctx, s, "evaluate-lisp", `{"code":"1"}`); err != nil {
				return err
			}
			one, err := measureOne(func() error {
				_, err := s.Call(ctx, "evaluate-lisp", json.RawMessage(`{"code":"`+code+`"}`))
				return err
			})
			if err != nil {
				return err
			}
			took = append(took, one-limit)
		}
	}
	b.notes = append(b.notes, fmt.Sprintf("a timeout is answered after its limit by: median %.0f ms, slowest %.0f ms of %d, a third of them endless without interrupts (at most 1 s: %s)",
		ms(took.Median()), ms(took.At(1)), len(took), met(took.At(1) <= time.Second)))
	return nil
}

// lispStart measures the first evaluation of a session with a running container: the start of SBCL
// with the driver, and the value.
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
		fmt.Sprintf("start of SBCL to the first value, %d sessions: median %.0f ms, slowest %.0f ms (at most 150 ms always: %s)", rounds, ms(took.Median()), ms(took.At(1)), met(took.At(1) <= mostTime)),
		fmt.Sprintf("memory of an idle SBCL, proportional: at most %.1f MiB (at most 60 MiB: %s)", float64(worst)/(1<<20), met(worst <= mostMemory)))
	return nil
}

package sandboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

// hostProcess is a program under its supervisor (supervisor.go).
type hostProcess struct {
	box        *hostBox
	supervisor *exec.Cmd
	began      time.Time
	terminal   *os.File // the master, or nil
	shared     atomic.Bool
	pumps      sync.WaitGroup
	out, errs  counter
	outs       []*source // stdout and stderr, if they are pipes
	done       chan struct{}
	result     sandbox.Result // valid once done is closed

	mu     sync.Mutex
	orders *os.File // nil once the supervisor is gone
}

func (h *hostHandle) start(ctx context.Context, cmd sandbox.Cmd) (*hostProcess, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkCmd(cmd); err != nil {
		return nil, err
	}
	j, err := h.box.job(cmd)
	if err != nil {
		return nil, err
	}
	p := &hostProcess{box: h.box, began: time.Now(), done: make(chan struct{})}
	if err := h.box.add(p, h); err != nil {
		return nil, err
	}
	if err := p.launch(cmd, j); err != nil {
		h.box.forget(p)
		return nil, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	return p, nil
}

func (b *hostBox) job(cmd sandbox.Cmd) (job, error) {
	b.mu.Lock()
	gone := b.gone
	b.mu.Unlock()
	if gone {
		return job{}, fmt.Errorf("%w: it was closed or removed", sandbox.ErrLost)
	}
	dir, err := resolveDir(b.spec.Workspace, cmd.Dir)
	if err != nil {
		return job{}, err
	}
	j := job{
		Argv: cmd.Argv, Dir: dir, Env: b.environ(cmd.Env), Timeout: cmd.Timeout,
		TTY: cmd.TTY != nil, Control: cmd.Control != nil || cmd.Python != nil,
	}
	if cmd.Python != nil {
		j.Argv, err = b.pythonArgv(*cmd.Python)
	}
	return j, err
}

// pythonMain executes the source as a module and then calls its main with the control channel, as the agent of a real
// sandbox does.
const pythonMain = `
import os, sys, types
name, path = sys.argv[1:3]
sys.argv = [name]
with open(path, encoding="utf-8") as f:
    source = f.read()
os.unlink(path)
module = sys.modules[name] = types.ModuleType(name)
exec(compile(source, name, "exec"), module.__dict__)
with open(3, "rb") as inp, open(4, "wb") as out:
    module.main(inp, out)
`

func (b *hostBox) pythonArgv(prog sandbox.PythonProgram) ([]string, error) {
	python, err := lookPath("python3", fixedPath)
	if err != nil {
		return nil, fmt.Errorf("%w: there is no python3", sandbox.ErrUnsupported)
	}
	f, err := os.CreateTemp(b.scratch, "program-*.py")
	if err != nil {
		return nil, fmt.Errorf("%w: no room for temporary files", sandbox.ErrUnavailable)
	}
	defer f.Close()
	if _, err := f.WriteString(prog.Source); err != nil {
		return nil, fmt.Errorf("%w: no room for temporary files", sandbox.ErrUnavailable)
	}
	return []string{python, "-I", "-S", "-B", "-c", pythonMain, prog.Name, f.Name()}, nil
}

// launch starts the supervisor with all its pipes.
func (p *hostProcess) launch(cmd sandbox.Cmd, j job) error {
	w := &wiring{}
	defer w.closeChildEnds()
	p.wire(w, cmd)
	orders := w.input()
	verdicts := w.output()
	if w.err != nil {
		w.closeOurEnds()
		return w.err
	}
	p.orders = orders
	p.supervisor = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{supervisorName}, Env: []string{"GORACE=atexit_sleep_ms=0"}, // otherwise a race build waits a second at its end
		Stdin: w.child[0], Stdout: w.child[1], Stderr: w.child[2], ExtraFiles: w.child[3:],
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := p.supervisor.Start(); err != nil {
		w.closeOurEnds()
		return err
	}
	for _, pump := range w.pumps {
		pump()
	}
	p.order(j)
	go p.finish(verdicts)
	return nil
}

// wire plans descriptors 0 to 4 of the program and the pumps that serve them.
func (p *hostProcess) wire(w *wiring, cmd sandbox.Cmd) {
	if cmd.TTY != nil {
		p.wireTerminal(w, cmd)
	} else {
		p.feed(w, cmd.Stdin)
		stdout := p.drain(w, w.output(), cmd.Stdout, cmd.Capture, &p.out)
		stderr := p.drain(w, w.output(), cmd.Stderr, cmd.Capture, &p.errs)
		p.outs = []*source{stdout, stderr}
	}
	control := cmd.Control
	if control == nil {
		control = &sandbox.Control{}
	}
	p.feed(w, control.In)
	message := p.drain(w, w.output(), control.Out, nil, &counter{})
	message.first = p.outs
}

func (p *hostProcess) wireTerminal(w *wiring, cmd sandbox.Cmd) {
	master, slave := w.terminal(*cmd.TTY)
	p.terminal = master
	w.child = append(w.child, slave, slave, slave)
	w.pumps = append(w.pumps, func() {
		go func() {
			if cmd.Stdin != nil {
				_, _ = io.Copy(master, cmd.Stdin)
			}
			_, _ = master.Write([]byte{4, 4}) // the first may only end an unfinished line
		}()
	})
	p.drain(w, master, cmd.Stdout, cmd.Capture, &p.out)
}

func (p *hostProcess) feed(w *wiring, from io.Reader) {
	if from == nil {
		w.null()
		return
	}
	to := w.input()
	w.pumps = append(w.pumps, func() {
		go func() {
			_, _ = io.Copy(to, from)
			_ = to.Close()
		}()
	})
}

func (p *hostProcess) drain(w *wiring, from *os.File, to io.Writer, c *sandbox.Capture, n *counter) *source {
	n.to, n.capture = to, c
	s := &source{from: from, to: n}
	w.pumps = append(w.pumps, func() {
		p.pumps.Go(s.pump)
	})
	return s
}

// finish waits for the verdict and then for the streams, and publishes the result.
func (p *hostProcess) finish(verdicts *os.File) {
	var v verdict
	lost := json.NewDecoder(verdicts).Decode(&v) != nil
	_ = verdicts.Close()
	_ = p.supervisor.Wait()
	p.mu.Lock()
	_ = p.orders.Close()
	p.orders = nil
	p.mu.Unlock()
	p.pumps.Wait()
	p.result = v.result(lost)
	p.result.Duration = time.Since(p.began)
	p.result.Stdout, p.result.Stderr = p.out.stream(), p.errs.stream()
	p.result.Shared = p.shared.Load()
	p.box.forget(p)
	close(p.done)
}

func (p *hostProcess) order(v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.orders != nil {
		_ = json.NewEncoder(p.orders).Encode(v)
	}
}

func (p *hostProcess) kill(status sandbox.Status) { p.order(order{Kill: status}) }

// Wait implements sandbox.Process.
func (p *hostProcess) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-p.done:
		return p.result, nil
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
}

// Signal implements sandbox.Process.
func (p *hostProcess) Signal(name string) error {
	n := unix.SignalNum("SIG" + name)
	if n == 0 {
		return invalid("%.40q is not a signal", name)
	}
	p.order(order{Signal: int(n)})
	return nil
}

// Kill implements sandbox.Process.
func (p *hostProcess) Kill() error {
	p.kill(sandbox.StatusSignaled)
	return nil
}

// Resize implements sandbox.Process.
func (p *hostProcess) Resize(size sandbox.WinSize) error {
	if p.terminal == nil {
		return fmt.Errorf("%w: the program has no terminal", sandbox.ErrUnsupported)
	}
	raw, err := p.terminal.SyscallConn()
	if err == nil {
		// Unlike Fd, Control keeps the descriptor open meanwhile. It fails only if that is closed: the program has ended.
		_ = raw.Control(func(fd uintptr) {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: size.Cols, Row: size.Rows})
		})
	}
	if err != nil {
		return fmt.Errorf("%w: resize: %w", sandbox.ErrUnavailable, err)
	}
	return nil
}

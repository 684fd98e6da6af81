package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

const fixedPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// hostBox is one sandbox; every handle on it shares it.
type hostBox struct {
	spec    sandbox.Spec
	created time.Time
	scratch string // holds home and the sources of Python programs

	mu      sync.Mutex
	gone    bool
	running map[*hostProcess]*hostHandle
	secrets map[string]string
}

func newHostBox(spec sandbox.Spec) (*hostBox, error) {
	scratch, err := os.MkdirTemp("", "wisbox-host-")
	if err != nil {
		return nil, fmt.Errorf("%w: no room for temporary files", sandbox.ErrUnavailable)
	}
	if err := os.Mkdir(scratch+"/home", 0o700); err != nil {
		return nil, fmt.Errorf("%w: no room for temporary files", sandbox.ErrUnavailable)
	}
	return &hostBox{spec: spec, created: time.Now(), scratch: scratch, running: map[*hostProcess]*hostHandle{}}, nil
}

func (b *hostBox) info() sandbox.Info {
	return sandbox.Info{
		ID: b.spec.ID, Object: "host:" + b.spec.ID, State: "running", Image: b.spec.Image, Runtime: "none",
		Created: b.created, Limits: b.spec.Limits.WithDefaults().Asked("nothing: the host backend has no limits"),
		Gaps: []string{"programs run on the host itself, as its user: nothing is isolated and no limit is enforced"},
	}
}

// environ returns a program's environment: the fixed variables, the sandbox's and the command's, and none of the
// host's. Later ones win.
func (b *hostBox) environ(extra []string) []string {
	all := []string{
		"PATH=" + fixedPath, "HOME=" + b.scratch + "/home", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1",
	}
	for key, value := range b.spec.Env {
		all = append(all, key+"="+value)
	}
	return dedupe(append(all, extra...))
}

func dedupe(env []string) []string {
	at := map[string]int{}
	out := []string{}
	for _, kv := range env {
		key := kv[:slices.Index([]byte(kv), '=')]
		if i, seen := at[key]; seen {
			out[i] = kv
			continue
		}
		at[key] = len(out)
		out = append(out, kv)
	}
	return out
}

// add registers a process, or returns an error if the sandbox is gone.
func (b *hostBox) add(p *hostProcess, h *hostHandle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || h.detached {
		return fmt.Errorf("%w: it was closed or removed", sandbox.ErrLost)
	}
	if len(b.running) > 0 {
		p.shared.Store(true)
	}
	for other := range b.running {
		other.shared.Store(true)
	}
	b.running[p] = h
	return nil
}

func (b *hostBox) forget(p *hostProcess) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, p)
}

// KeepSecrets implements [sandbox.SecretKeeper]. This backend has no directory for secrets: tests get them from
// [Host.Secrets].
func (h *hostHandle) KeepSecrets(_ context.Context, values map[string][]byte) error {
	h.box.mu.Lock()
	defer h.box.mu.Unlock()
	if h.box.gone {
		return fmt.Errorf("%w: it was closed or removed", sandbox.ErrLost)
	}
	if h.box.secrets == nil {
		h.box.secrets = map[string]string{}
	}
	for name, value := range values {
		h.box.secrets[name] = string(value)
	}
	return nil
}

// endPrograms kills the programs that the handle started, or all for a nil handle, and waits for their end.
func (b *hostBox) endPrograms(ctx context.Context, of *hostHandle, mark func()) error {
	b.mu.Lock()
	mark()
	var procs []*hostProcess
	for p, h := range b.running {
		if of == nil || h == of {
			procs = append(procs, p)
		}
	}
	b.mu.Unlock()
	for _, p := range procs {
		p.kill(sandbox.StatusSandboxLost)
	}
	for _, p := range procs {
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *hostBox) end(ctx context.Context) error {
	err := b.endPrograms(ctx, nil, func() { b.gone = true })
	if rmErr := os.RemoveAll(b.scratch); err == nil {
		err = rmErr
	}
	return err
}

// hostHandle is the result of Create and Open: one user of a sandbox.
type hostHandle struct {
	host     *Host
	box      *hostBox
	detached bool // guarded by box.mu
}

func (h *hostHandle) Info(context.Context) (sandbox.Info, error) {
	h.box.mu.Lock()
	defer h.box.mu.Unlock()
	if h.box.gone || h.detached {
		return sandbox.Info{}, fmt.Errorf("%w: it was closed or removed", sandbox.ErrLost)
	}
	return h.box.info(), nil
}

func (h *hostHandle) Detach() error {
	return h.box.endPrograms(context.Background(), h, func() { h.detached = true })
}

func (h *hostHandle) Close(ctx context.Context) error {
	h.host.mu.Lock()
	if h.host.boxes[h.box.spec.ID] == h.box {
		delete(h.host.boxes, h.box.spec.ID)
	}
	h.host.mu.Unlock()
	return h.box.end(ctx)
}

func (h *hostHandle) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	p, err := h.start(ctx, cmd)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer context.AfterFunc(ctx, func() { p.kill(sandbox.StatusCancelled) })()
	for signals := cmd.Signals; ; {
		select {
		case <-p.done:
			return p.result, nil
		case name, more := <-signals:
			if !more {
				signals = nil
				continue
			}
			_ = p.Signal(name)
		}
	}
}

func (h *hostHandle) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	p, err := h.start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return p, nil
}

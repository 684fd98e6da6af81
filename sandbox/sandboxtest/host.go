package sandboxtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/wisbox/wisbox/sandbox"
)

// Host is a sandbox.Backend that runs programs on the host itself, in the
// workspace directory and with the variables of a sandbox. It keeps the whole contract except isolation and limits:
// Info.Gaps reports that, and Spec.Strict is refused. Programs see the workspace under its host path, not under
// /workspace.
//
// It needs Linux, and for Python programs a python3. It runs the test binary a
// second time as the supervisor of each program, so only tests can use it.
type Host struct {
	mu    sync.Mutex
	boxes map[string]*hostBox
}

var _ sandbox.Backend = (*Host)(nil)

// NewHost returns a Host without sandboxes. The sandboxes live in its memory: Open
// finds those that Create of the same Host made.
func NewHost() *Host { return &Host{boxes: map[string]*hostBox{}} }

// Create implements sandbox.Backend.
func (h *Host) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := h.refuse(ctx, spec); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes[spec.ID] != nil {
		return nil, fmt.Errorf("%w: %s; open it", sandbox.ErrExists, spec.ID)
	}
	box, err := newHostBox(spec)
	if err != nil {
		return nil, err
	}
	h.boxes[spec.ID] = box
	return &hostHandle{host: h, box: box}, nil
}

func (h *Host) refuse(ctx context.Context, spec sandbox.Spec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkSpec(spec); err != nil {
		return err
	}
	if spec.Image == MissingImage {
		return fmt.Errorf("%w: image %q not found", sandbox.ErrUnavailable, spec.Image)
	}
	if spec.Strict {
		return fmt.Errorf("%w: the host backend enforces no limit and strict was requested", sandbox.ErrUnavailable)
	}
	if info, err := os.Stat(spec.Workspace); err != nil || !info.IsDir() {
		return fmt.Errorf("%w: the workspace is missing or no directory", sandbox.ErrInvalid)
	}
	return nil
}

// Open implements sandbox.Backend. Several handles on one sandbox may be open.
func (h *Host) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	box := h.boxes[spec.ID]
	if box == nil {
		return nil, fmt.Errorf("%w: %q", sandbox.ErrNotFound, spec.ID)
	}
	return &hostHandle{host: h, box: box}, nil
}

// List implements sandbox.Backend.
func (h *Host) List(context.Context) ([]sandbox.Info, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	infos := []sandbox.Info{}
	for _, id := range slices.Sorted(maps.Keys(h.boxes)) {
		infos = append(infos, h.boxes[id].info())
	}
	return infos, nil
}

// Remove implements sandbox.Backend.
func (h *Host) Remove(ctx context.Context, id string) error {
	if !idPattern.MatchString(id) {
		return invalid("the id %.80q must match %s", id, idPattern)
	}
	box := h.take(id)
	if box == nil {
		return nil
	}
	return box.end(ctx)
}

// Lose makes a sandbox disappear as if its container had been removed behind
// the backend's back: its programs end with StatusSandboxLost, its handles
// answer ErrLost and Open answers ErrNotFound. An unknown sandbox is not an error.
func (h *Host) Lose(id string) {
	if box := h.take(id); box != nil {
		_ = box.end(context.Background())
	}
}

// Secrets returns the secrets that a sandbox was given, by name.
func (h *Host) Secrets(id string) map[string]string {
	h.mu.Lock()
	box := h.boxes[id]
	h.mu.Unlock()
	if box == nil {
		return nil
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	return maps.Clone(box.secrets)
}

func (h *Host) take(id string) *hostBox {
	h.mu.Lock()
	defer h.mu.Unlock()
	box := h.boxes[id]
	delete(h.boxes, id)
	return box
}

// Owner implements sandbox.Backend: programs run as the tester.
func (h *Host) Owner(context.Context) (sandbox.Owner, error) {
	return sandbox.Owner{UID: os.Getuid(), GID: os.Getgid()}, nil
}

// Close implements sandbox.Backend. As the contract requires, the sandboxes stay.
func (h *Host) Close() error { return nil }

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/beside"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// TestTheSuiteInPods: each sandbox is a Pod, and this process takes the holder's role: the two directories that a
// holder shares with programs are directories of this machine.
func TestTheSuiteInPods(t *testing.T) {
	script(t)
	sandboxtest.Suite(t, func(t *testing.T) (sandbox.Backend, sandbox.Spec) {
		dir, err := os.MkdirTemp("/tmp", "wisbox-suite-") // t.TempDir includes the check's name, too long for a socket
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		b := &pods{pod: podOf(t, fmt.Sprintf("suite%d-%d", os.Getpid(), count.Add(1))), dir: dir}
		spec := sandbox.Spec{ID: b.pod.session, Image: "localhost/wisbox-pod:latest", Workspace: filepath.Join(b.dir, "workspace")}
		for _, dir := range []string{"ctl", "workspace", "state"} {
			require.NoError(t, os.Mkdir(filepath.Join(b.dir, dir), 0o700))
		}
		require.NoError(t, os.Chmod(spec.Workspace, 0o755))
		require.NoError(t, os.Chown(spec.Workspace, sandbox.UserID, sandbox.GroupID))
		b.Backend = beside.New(&beside.Options{Socket: filepath.Join(b.dir, "ctl", "agent.sock"), StateDir: filepath.Join(b.dir, "state"), Name: b.pod.name})
		return b, spec
	}, &sandboxtest.Options{Isolated: true, Except: map[string]string{
		"an image that is not there is unavailable and leaves nothing": "the Pod has its image before there is a sandbox",
	}})
}

// pods makes a Pod for the first sandbox that is created in it.
type pods struct {
	*beside.Backend
	pod *pod
	dir string

	mu   sync.Mutex
	made bool
}

// Create implements sandbox.Backend.
func (b *pods) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	never, cancel := context.WithCancel(ctx)
	cancel()
	if box, err := b.Backend.Create(never, spec); !errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return box, err // the spec is wrong
	}
	if err := b.make(ctx, spec.Limits.WithDefaults()); err != nil {
		return nil, err
	}
	return b.Backend.Create(ctx, spec)
}

func (b *pods) make(ctx context.Context, l sandbox.Limits) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made {
		return nil
	}
	b.made = true
	b.pod.t.Cleanup(b.pod.remove)
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return b.pod.make(ctx,
		manifest[strings.Index(manifest, "  - name: holder"):strings.Index(manifest, "  volumes:")], "",
		"{name: state, mountPath: /workspace, subPath: cache/workspace}", "{name: state, mountPath: /workspace}",
		"emptyDir: {sizeLimit: 4Gi}", "hostPath: {path: "+filepath.Join(b.dir, "workspace")+"}",
		"{name: ctl, emptyDir: {medium: Memory, sizeLimit: 1Mi}}", "{name: ctl, hostPath: {path: "+filepath.Join(b.dir, "ctl")+"}}",
		"sizeLimit: 64Mi", "sizeLimit: "+number(l.Tmp),
		`"16384"`, strconv.Quote(number(l.NoFile)), `"2147483648"`, strconv.Quote(number(l.FileSize)),
		`limits: {cpu: "1", memory: 512Mi}`, fmt.Sprintf(`limits: {cpu: "%v", memory: "%d"}`, l.CPUs, l.Memory),
	)
}

// Package cluster tests sessions in Pods of a real Kubernetes: make test-cluster.
package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
)

//go:embed testdata/pod.yaml
var manifest string

// prompt is the maximum time for the kubelet to notice something.
const prompt = 90 * time.Second

// script returns the path of the script that talks to the cluster.
func script(t *testing.T) string {
	t.Helper()
	path := os.Getenv("WISBOX_CLUSTER")
	if path == "" {
		t.Skip("make test-cluster does this, in a Kubernetes of its own")
	}
	return path
}

// pod is a Pod for a session, without a session yet.
type pod struct {
	t             *testing.T
	script        string
	name, session string
}

var count atomic.Int64

// newPod creates a Pod and waits until it runs. Pairs of replace change its manifest.
func newPod(t *testing.T, replace ...string) *pod {
	t.Helper()
	p := podOf(t, fmt.Sprintf("s%d-%d", os.Getpid(), count.Add(1)))
	t.Cleanup(p.remove)
	require.NoError(t, p.make(t.Context(), replace...))
	return p
}

func podOf(t *testing.T, session string) *pod {
	return &pod{t: t, script: script(t), session: session, name: "wisbox-" + session}
}

func (p *pod) make(ctx context.Context, replace ...string) error {
	text := strings.NewReplacer(append(replace, "SESSION", p.session)...).Replace(manifest)
	apply := p.kubectl(ctx, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(text)
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	out, err := p.kubectl(ctx, "wait", "--for=condition=Ready", "pod/"+p.name, "--timeout=60s").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (p *pod) remove() {
	if p.t.Failed() {
		for _, args := range [][]string{{"describe", "pod", p.name}, {"logs", p.name, "-c", "programs"}, {"logs", p.name, "-c", "programs", "--previous"}, {"logs", p.name, "-c", "holder"}} {
			out, _ := p.kubectl(context.Background(), args...).CombinedOutput()
			p.t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
		}
	}
	out, err := p.kubectl(context.Background(), "delete", "pod", p.name, "--ignore-not-found", "--wait=true").CombinedOutput()
	assert.NoError(p.t, err, "%s", out)
}

func (p *pod) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, p.script, append([]string{"kubectl"}, args...)...)
}

// get reads a field of the Pod.
func (p *pod) get(path string) string {
	p.t.Helper()
	out, err := p.kubectl(p.t.Context(), "get", "pod", p.name, "-o", "jsonpath={"+path+"}").Output()
	require.NoError(p.t, err)
	return string(out)
}

// pipe is a program whose stdin and stdout are the stream.
type pipe struct {
	io.ReadCloser
	in  io.WriteCloser
	cmd *exec.Cmd
}

func (s *pipe) Write(b []byte) (int, error) { return s.in.Write(b) }

func (s *pipe) Close() error {
	_ = s.in.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	return nil
}

// relay connects like package cluster, by kubectl.
func (p *pod) relay(context.Context) (io.ReadWriteCloser, error) {
	cmd := p.kubectl(context.Background(), "exec", "-i", p.name, "-c", "holder", "--", "/usr/local/bin/wisbox", "__relay", "--pod")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	return &pipe{out, in, cmd}, cmd.Start()
}

// manager returns a client of the Pod.
func (p *pod) manager() *wisbox.Manager {
	p.t.Helper()
	m, err := wisbox.NewManager(p.t.Context(), &wisbox.Options{CacheDir: p.t.TempDir(), Far: p.name, FarConnect: p.relay})
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, m.Close()) })
	return m
}

func (p *pod) open(m *wisbox.Manager, o wisbox.SessionOptions) *wisbox.Session {
	p.t.Helper()
	o.Name, o.Kept, o.Image = p.session, true, "localhost/wisbox-pod:latest"
	s, err := m.Open(p.t.Context(), &o)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, s.Close(context.Background())) })
	return s
}

// process returns the pid on this machine of a process of the Pod whose command line contains word.
func (p *pod) process(word string) int {
	p.t.Helper()
	uid := p.get(".metadata.uid")
	dirs, err := os.ReadDir("/proc")
	require.NoError(p.t, err)
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		groups, _ := os.ReadFile("/proc/" + dir.Name() + "/cgroup")
		line, _ := os.ReadFile("/proc/" + dir.Name() + "/cmdline")
		if bytes.Contains(groups, []byte("pod"+uid)) && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), word) {
			return pid
		}
	}
	p.t.Fatalf("the Pod has no process %q", word)
	return 0
}

func (p *pod) kill(word string) {
	p.t.Helper()
	process, err := os.FindProcess(p.process(word))
	require.NoError(p.t, err)
	require.NoError(p.t, process.Kill())
}

// restarted waits until the kubelet has started a container again.
func (p *pod) restarted(container string) {
	p.t.Helper()
	path := `.status.containerStatuses[?(@.name=="` + container + `")]`
	require.Eventually(p.t, func() bool {
		return p.get(path+".restartCount") == "1" && p.get(path+".state.running") != ""
	}, prompt, 200*time.Millisecond)
}

// ended waits until the Pod has ended.
func (p *pod) ended() {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.get(".status.phase") == "Succeeded" }, prompt, 200*time.Millisecond)
	assert.Equal(p.t, "0 0", p.get(".status.containerStatuses[*].state.terminated.exitCode"))
}

package beside

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/native"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is an environment for an agent without a container.
type pod struct {
	t                                 *testing.T
	dir, workspace, tmp, secrets, ctl string
	agent                             *resident.Spawned
}

func newPod(t *testing.T) *pod {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "wisbox-beside-") // other users have no access to t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	p := &pod{t: t, dir: dir}
	for _, one := range []struct {
		path *string
		name string
		mode os.FileMode
	}{{&p.workspace, "workspace", 0o755}, {&p.tmp, "tmp", 0o777}, {&p.secrets, "secrets", 0o755}, {&p.ctl, "ctl", 0o700}} {
		*one.path = filepath.Join(dir, one.name)
		require.NoError(t, os.Mkdir(*one.path, 0o700))
		require.NoError(t, os.Chmod(*one.path, one.mode))
	}
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(p.workspace, sandbox.UserID, sandbox.GroupID))
	}
	require.NoError(t, jsonfile.Write(filepath.Join(p.ctl, environFile), []string{"HOME=" + p.tmp, "OF_THE_IMAGE=yes"}))
	require.NoError(t, jsonfile.Write(filepath.Join(p.ctl, mountsFile), []string{}))
	p.begin()
	t.Cleanup(p.end)
	return p
}

// begin starts the agent, as the kubelet starts its container.
func (p *pod) begin() {
	p.t.Helper()
	path, err := native.Install(p.dir)
	require.NoError(p.t, err)
	argv := resident.ServeArgv(resident.DefaultPath, filepath.Join(p.ctl, "agent.sock"))
	argv[2], argv[3] = p.workspace, p.secrets
	cmd := exec.Command(path, argv[1:]...)
	cmd.Stderr = os.Stderr
	p.agent, err = resident.Spawn(cmd)
	require.NoError(p.t, err)
}

func (p *pod) end() {
	if p.agent != nil {
		assert.NoError(p.t, p.agent.Close())
	}
	p.agent = nil
}

// die ends the container of programs.
func (p *pod) die() {
	p.t.Helper()
	process, err := os.FindProcess(p.agent.PID())
	require.NoError(p.t, err)
	require.NoError(p.t, process.Kill())
	p.end()
}

// backend returns the Backend of one of many processes that use the sandbox.
func (p *pod) backend() *Backend {
	b := New(&Options{Socket: filepath.Join(p.ctl, "agent.sock"), StateDir: p.ctl})
	b.scratch, b.secrets, b.unfiltered = []string{p.tmp}, p.secrets, true
	return b
}

func (p *pod) spec() sandbox.Spec {
	return sandbox.Spec{ID: "one", Image: "localhost/wisbox", Workspace: p.workspace}
}

func (p *pod) create() sandbox.Sandbox {
	p.t.Helper()
	box, err := p.backend().Create(p.t.Context(), p.spec())
	require.NoError(p.t, err)
	return box
}

func said(t *testing.T, box sandbox.Runner, script string) string {
	t.Helper()
	var out strings.Builder
	res, err := box.Run(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out})
	require.NoError(t, err)
	require.Equal(t, 0, res.ExitCode, out.String())
	return strings.TrimSpace(out.String())
}

func TestTheSuiteWithoutAContainer(t *testing.T) {
	sandboxtest.Suite(t, func(t *testing.T) (sandbox.Backend, sandbox.Spec) {
		p := newPod(t)
		return p.backend(), p.spec()
	}, &sandboxtest.Options{Except: map[string]string{
		"an image that is not there is unavailable and leaves nothing": "the Pod has its image before there is a sandbox",
	}})
}

func TestThereIsOneSandbox(t *testing.T) {
	p := newPod(t)
	box := p.create()
	other := p.spec()
	other.ID = "two"
	_, err := p.backend().Create(t.Context(), other)
	assert.ErrorIs(t, err, sandbox.ErrUnsupported)
	_, err = p.backend().Open(t.Context(), other)
	assert.ErrorIs(t, err, sandbox.ErrNotFound)
	require.NoError(t, p.backend().Remove(t.Context(), "two"))
	assert.Equal(t, "on", said(t, box, "echo on"))
	require.NoError(t, box.Close(t.Context()))
	box, err = p.backend().Create(t.Context(), other)
	require.NoError(t, err)
	require.NoError(t, box.Close(t.Context()))
}

// TestNothingOfASandboxIsLeftForTheNext: both use the same agent and file systems.
func TestNothingOfASandboxIsLeftForTheNext(t *testing.T) {
	p := newPod(t)
	box := p.create()
	require.NoError(t, box.(sandbox.SecretKeeper).KeepSecrets(t.Context(), map[string][]byte{"TOKEN": []byte("a secret value")}))
	said(t, box, "cd "+p.tmp+"; mkdir -p a/b/c closed/d; touch a/b/c/f closed/d/f; chmod 0 a/b/c a/b closed; cd -; echo kept >file")
	detached, err := box.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}, Lifetime: sandbox.LifetimeDetached})
	require.NoError(t, err)
	ended, err := box.Start(t.Context(), sandbox.Cmd{Argv: []string{"true"}, Lifetime: sandbox.LifetimeDetached})
	require.NoError(t, err)
	require.NoError(t, box.Detach())
	require.NoError(t, p.backend().Remove(t.Context(), "one"))
	for _, process := range []sandbox.Process{detached, ended} {
		_, err := process.Wait(t.Context())
		require.NoError(t, err)
	}

	box = p.create()
	defer box.Close(t.Context())
	assert.Empty(t, said(t, box, "ls -A "+p.tmp))
	assert.Empty(t, said(t, box, "cat "+p.secrets+"/* 2>/dev/null || true"))
	assert.Equal(t, "kept", said(t, box, "cat file"), "the workspace is the session's")
	left, err := box.(sandbox.Detacher).Detached(t.Context())
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestAContainerThatEndedIsALostSandbox: the sandbox can be claimed again after the container
// restarts.
func TestAContainerThatEndedIsALostSandbox(t *testing.T) {
	p := newPod(t)
	box := p.create()
	said(t, box, "echo kept >file; touch "+p.tmp+"/gone")
	running, err := box.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	p.die()
	res, err := running.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusSandboxLost, res.Status)
	p.begin()
	_, err = box.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	assert.ErrorIs(t, err, sandbox.ErrLost)
	_, err = p.backend().Open(t.Context(), p.spec())
	assert.ErrorIs(t, err, sandbox.ErrNotFound)
	require.NoError(t, box.Close(t.Context()))
	again := p.create()
	assert.Equal(t, "kept", said(t, again, "cat file"))
	assert.Empty(t, said(t, again, "ls -A "+p.tmp))
	require.NoError(t, box.Close(t.Context()))
	assert.Equal(t, "on", said(t, again, "echo on"), "a handle on the lost one ends nothing")
	require.NoError(t, again.Close(t.Context()))
}

func TestACreateThatFailsLeavesTheSandboxToOthers(t *testing.T) {
	p := newPod(t)
	elsewhere := p.spec()
	elsewhere.Workspace = p.tmp
	_, err := p.backend().Create(t.Context(), elsewhere)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	assert.ErrorContains(t, err, "another directory at /workspace")
	strict := p.spec()
	strict.Strict = true
	_, err = p.backend().Create(t.Context(), strict)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	assert.ErrorContains(t, err, "pids: "+byNode)
	filtered := p.backend()
	filtered.unfiltered = false
	_, err = filtered.Create(t.Context(), p.spec())
	assert.ErrorContains(t, err, "seccomp")
	for _, spec := range []sandbox.Spec{
		{Isolation: sandbox.IsolationGVisor}, {Seccomp: "/etc/seccomp.json"},
	} {
		spec.ID, spec.Image, spec.Workspace = "one", "i", p.workspace
		_, err = p.backend().Create(t.Context(), spec)
		assert.ErrorIs(t, err, sandbox.ErrUnavailable)
	}
	require.NoError(t, p.create().Close(t.Context()))
}

func TestProgramsHaveTheImagesEnvironment(t *testing.T) {
	p := newPod(t)
	spec := p.spec()
	spec.Env = map[string]string{"MINE": "too"}
	box, err := p.backend().Create(t.Context(), spec)
	require.NoError(t, err)
	defer box.Close(t.Context())
	assert.Equal(t, "yes too", said(t, box, "echo $OF_THE_IMAGE $MINE"))
}

func TestAHomeIsTheWorkspaceOrRefused(t *testing.T) {
	p := newPod(t)
	spec := p.spec()
	spec.UserHome, spec.Env = true, map[string]string{"USER": "mine"}
	b := p.backend()
	b.home = p.tmp
	_, err := b.Create(t.Context(), spec)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "doesn't have the workspace at /home/user")
	b.home = filepath.Join(p.dir, "home")
	require.NoError(t, os.Symlink(p.workspace, b.home))
	box, err := b.Create(t.Context(), spec)
	require.NoError(t, err)
	defer box.Close(t.Context())
	assert.Equal(t, "/home/user mine user", said(t, box, "echo $HOME $USER $LOGNAME; ls -A "+p.workspace))
}

func TestWithoutAnAgentItIsUnavailable(t *testing.T) {
	p := newPod(t)
	p.end()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.backend().Create(ctx, p.spec())
	assert.ErrorIs(t, err, context.Canceled)
	require.NoError(t, os.Remove(filepath.Join(p.ctl, "agent.sock")))
	require.NoError(t, p.backend().Leave(t.Context()), "there is nothing to end")
}

func TestAnAgentThatIsToLeaveDoes(t *testing.T) {
	p := newPod(t)
	box := p.create()
	require.NoError(t, p.backend().Leave(t.Context()))
	require.NoError(t, box.Close(t.Context()))
}

func TestGapsAreReported(t *testing.T) {
	base := len(gaps(agent.Hello{Seccomp: true, Interfaces: []string{"lo"}}))
	for says, hello := range map[string]agent.Hello{
		"network (eth0)":     {Seccomp: true, Interfaces: []string{"lo", "eth0"}},
		"is unknown":         {Seccomp: true},
		"all programs":       {Seccomp: true, Interfaces: []string{"lo"}, Limits: map[string]string{"oom_group": "1"}},
		"no seccomp filter":  {Interfaces: []string{"lo"}},
		"of the agent's own": {Seccomp: true, Interfaces: []string{"lo"}, Gaps: []string{"of the agent's own"}},
	} {
		found := gaps(hello)
		assert.Len(t, found, base+1)
		assert.Contains(t, strings.Join(found, "\n"), says)
	}
}

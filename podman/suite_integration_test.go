//go:build integration

package podman

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/podman/podmantest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

func TestPodmanPassesTheSuite(t *testing.T) {
	sandboxtest.Suite(t, func(t *testing.T) (sandbox.Backend, sandbox.Spec) {
		h := newHost(t, nil)
		return h, h.spec("suite")
	}, &sandboxtest.Options{Isolated: isolated(t)})
}

// TestImagesWithoutPythonPassTheSuite: a session needs nothing of ours but the agent.
func TestImagesWithoutPythonPassTheSuite(t *testing.T) {
	withoutPython(t, sandbox.IsolationDefault, nil)
}

func TestImagesWithoutPythonPassTheSuiteInGVisor(t *testing.T) {
	if os.Getenv("WISBOX_RUNSC") == "" {
		t.Skip("make test-gvisor does this, with gVisor")
	}
	except := maps.Clone(gvisorDifferences)
	delete(except, "a python program's message comes after what it wrote before")
	for _, name := range []string{
		"nothing outlives an exit, whatever holds the streams", "nothing outlives a crash", "a timeout ends everything in time, also what ignores signals",
		"nothing of a started program outlives its end", "closing ends what runs", "a detached sandbox stays without its programs and can be opened",
	} {
		except[name] = "the host looks at a pipe, and gVisor keeps those of the workspace open; with Python it looks at a lock"
	}
	withoutPython(t, sandbox.IsolationGVisor, except)
}

func withoutPython(t *testing.T, isolation sandbox.Isolation, except map[string]string) {
	h := newHost(t, nil)
	for name, c := range map[string]struct {
		image func() string
		shell []string
	}{
		"busybox":               {func() string { return h.image(podmantest.Busybox(t)) }, []string{"sh", "-c"}},
		"alpine-like":           {func() string { return h.image(podmantest.AlpineLike(t)) }, []string{"/bin/ash", "-c"}},
		"debian without python": {func() string { return h.buildImage("RUN rm -f $(which -a python3 python)\nENV NODE_VERSION=22\n", nil) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			image := c.image()
			sandboxtest.Suite(t, func(t *testing.T) (sandbox.Backend, sandbox.Spec) {
				h := newHost(t, nil)
				spec := h.spec("suite")
				spec.Image, spec.Isolation = image, isolation
				return h, spec
			}, &sandboxtest.Options{Isolated: isolated(t), NoPython: true, Shell: c.shell, Except: except})
		})
	}
}

// TestAnImageWithoutAShell: a session works without a shell or any other program.
func TestAnImageWithoutAShell(t *testing.T) {
	h := newHost(t, nil)
	spec := h.spec("distroless")
	spec.Image = h.image(podmantest.Distroless(t))
	s := h.create(spec)
	var out, errs bytes.Buffer
	result, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader("in"), Stdout: &out})
	require.NoError(t, err)
	require.Equal(t, 0, result.ExitCode)
	require.Equal(t, "in", out.String())
	result, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "true"}, Stderr: &errs})
	require.NoError(t, err)
	require.Equal(t, sandbox.ExitNotFound, result.ExitCode)
	result, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"/app/sleep", "600"}, Timeout: time.Second})
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusTimedOut, result.Status)
	process, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	require.NoError(t, s.EndAll(t.Context(), sandbox.StatusDiskLimit))
	result, err = process.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusDiskLimit, result.Status)
	require.NoError(t, s.KeepSecrets(t.Context(), map[string][]byte{"A": []byte("value")}))
	out.Reset()
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"cat", "/run/secrets/A"}, Stdout: &out})
	require.NoError(t, err)
	require.Equal(t, "value", out.String())
	for name, there := range map[string]bool{"sh": false, "bash": false, "python3": false, "sbcl": false} {
		has, err := s.HasProgram(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, there, has, name)
	}
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	require.Contains(t, info.Lacks, "sh")
	again, err := h.Open(t.Context(), spec)
	require.NoError(t, err)
	require.NoError(t, again.Detach())
}

// TestProgramsHaveTheImagesEnvironment: its PATH precedes ours, HOME is replaced, and the session's variables win. The
// agent gets none of them.
func TestProgramsHaveTheImagesEnvironment(t *testing.T) {
	h := newHost(t, nil)
	spec := h.spec("env")
	spec.Image = h.image(podmantest.AlpineLike(t))
	s := h.create(spec)
	require.Equal(t, "/opt/tool\n", said(t, s, "tool"), "a program that only the image's PATH has")
	has, err := s.HasProgram(t.Context(), "sbcl")
	require.NoError(t, err)
	require.True(t, has, "the agent looks where programs are found")
	require.Equal(t, "/opt/tool/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin "+sandbox.Home+"\n", said(t, s, "echo $PATH $HOME"))
	require.NoError(t, s.Close(t.Context()))
	spec.Env = map[string]string{"TOOL_HOME": "mine", "PATH": "/opt/tool/bin:/bin"}
	s = h.create(spec)
	require.Equal(t, "mine /opt/tool/bin:/bin\n", said(t, s, "echo $(tool) $PATH"))
	again, err := h.Open(t.Context(), spec)
	require.NoError(t, err)
	defer func() { assert.NoError(t, again.Detach()) }()
	require.Equal(t, "mine /opt/tool/bin:/bin\n", said(t, again.(*Sandbox), "echo $(tool) $PATH"))
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", agentPID(t, s)))
	if !errors.Is(err, fs.ErrPermission) { // rootless the agent is another user's
		require.NoError(t, err)
		require.NotContains(t, string(environ), "TOOL_HOME")
	}
}

// TestAContainerOfAFormerVersionIsMadeAgain: its agent, if it has one, speaks another protocol.
func TestAContainerOfAFormerVersionIsMadeAgain(t *testing.T) {
	h := newHost(t, nil)
	spec := h.spec("former")
	c, err := h.container(t.Context(), spec)
	require.NoError(t, err)
	delete(c.labels, labelAgent)
	c.limits = spec.Limits.WithDefaults()
	var cleanup undo.Steps
	require.NoError(t, h.make(t.Context(), c, &cleanup))
	require.NoError(t, h.start(t.Context(), c.name))
	_, err = h.Open(t.Context(), spec)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	require.Empty(t, mustList(t, h))
	out, _ := sh(t, h.create(spec), "echo on")
	require.Equal(t, "on\n", out)
}

// isolated reports whether limits hold: rootless on cgroup v1 they don't, and the suite would fill the host.
func isolated(t *testing.T) bool {
	s, err := newHost(t, nil).Service(t.Context())
	return err == nil && !(s.Rootless && s.CgroupVersion == "v1")
}

// gvisorDifferences are described to users in docs/gvisor.md.
var gvisorDifferences = map[string]string{
	"a cancelled call ends everything and says so":                "locks are gVisor's own: the host, where the check looks, never sees one",
	"a kill takes all that the program started":                   "likewise",
	"a terminal can be resized":                                   "no SIGWINCH reaches the program",
	"many programs run at the same time":                          "gVisor's own threads count for the limit of processes",
	"a python program's message comes after what it wrote before": "gVisor's epoll gives pipes that are ready in another order",
	"processors are limited":                                      "they are, by the host; but gVisor reports times in its own ticks",
	"programs are uid 1000 without any capability":                "/proc/PID/status has no NoNewPrivs",
	"the root is read-only, temporary files are not":              "the refusal has another text",
	"there is no network":                                         "/proc/net/dev is another",
	"memory over the limit is a kill that is reported":            "the host kills gVisor and with it the sandbox",
	"processes over the limit are reported":                       "the counters are the host's: the agent can't read them",
}

func TestGVisorPassesTheSuite(t *testing.T) {
	if os.Getenv("WISBOX_RUNSC") == "" {
		t.Skip("make test-gvisor does this, with gVisor")
	}
	sandboxtest.Suite(t, func(t *testing.T) (sandbox.Backend, sandbox.Spec) {
		h := newHost(t, nil)
		spec := h.spec("suite")
		spec.Isolation = sandbox.IsolationGVisor
		return h, spec
	}, &sandboxtest.Options{Isolated: isolated(t), Except: gvisorDifferences})
}

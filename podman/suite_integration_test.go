//go:build integration

package podman

import (
	"os"
	"testing"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

func TestPodmanPassesTheSuite(t *testing.T) {
	sandboxtest.Suite(t, func(t *testing.T) (sandbox.Backend, sandbox.Spec) {
		h := newHost(t, nil)
		return h, h.spec("suite")
	}, &sandboxtest.Options{Isolated: isolated(t)})
}

// isolated: rootless on cgroup v1 no limit holds, and the suite would fill the host.
func isolated(t *testing.T) bool {
	s, err := newHost(t, nil).Service(t.Context())
	return err == nil && !(s.Rootless && s.CgroupVersion == "v1")
}

// gvisorDifferences are told to users in docs/gvisor.md.
var gvisorDifferences = map[string]string{
	"a cancelled call ends everything and says so":                "locks are gVisor's own: the host, where the check looks, never sees one",
	"a kill takes all that the program started":                   "likewise",
	"a terminal can be resized":                                   "no SIGWINCH reaches the program",
	"many programs run at the same time":                          "gVisor's own threads count for the limit of processes",
	"a python program's message comes after what it wrote before": "gVisor's epoll gives pipes that are ready in another order",
	"processors are limited":                                      "they are, by the host; but the times that gVisor tells are its own ticks",
	"programs are uid 1000 without any capability":                "/proc/PID/status has no NoNewPrivs",
	"the root is read-only, temporary files are not":              "the refusal has another text",
	"there is no network":                                         "/proc/net/dev is another",
	"memory over the limit is a kill that is told":                "the host kills gVisor and with it the sandbox",
	"processes over the limit are told":                           "the counters are the host's: the agent can't read them",
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

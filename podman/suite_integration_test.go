//go:build integration

package podman

import (
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

//go:build integration

package podman

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// TestNoProgramGainsPrivilegesWhereTheContainerMay: where a runtime's AppArmor profile keeps the container from
// no_new_privs, every process in it has the flag from the agent all the same.
func TestNoProgramGainsPrivilegesWhereTheContainerMay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("rootless Podman uses no AppArmor profile")
	}
	for _, name := range []string{"runc", "crun"} {
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil && name == "crun" {
			continue // crun 1.8 refuses a hybrid of both versions
		}
		if path, err := exec.LookPath(name); err == nil {
			t.Run(name, func(t *testing.T) { noProgramGains(t, name, path) })
		}
	}
}

func noProgramGains(t *testing.T, name, path string) {
	standInAppArmor(t, "Y\n", name+" (unconfined)\n")
	h := newHost(t, &Options{Runtime: path})
	s := h.create(h.spec("stacked"))
	data, err := h.inspect(t.Context(), s.name)
	require.NoError(t, err)
	assert.NotContains(t, data.HostConfig.SecurityOpt, "no-new-privileges")
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "1000"}})
	require.NoError(t, err)
	defer func() { _ = p.Kill() }()
	// Each process: the agent, its monitors, a program that was started, one that runs, and a child of it.
	out, _ := sh(t, s, `sleep 1000 & for p in /proc/[0-9]*; do echo "$(tr '\0' ' ' <$p/cmdline | cut -c1-40) $(grep -E 'NoNewPrivs|Seccomp:|CapEff' $p/status | tr -s '\n\t' ' ')"; done; kill $!`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	assert.GreaterOrEqual(t, len(lines), 5, out)
	for _, line := range lines {
		assert.Contains(t, line, "NoNewPrivs: 1", out)
		assert.Contains(t, line, "Seccomp: 2", out)
	}
	assert.Contains(t, out, "sleep 1000")
	assert.Contains(t, out, "wisbox-agent")
}

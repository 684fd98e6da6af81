package podman

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

func goldenContainer(userns usernsMode) container {
	return container{
		name: "wisbox-root-id", image: "localhost/wisbox:1", init: []string{"/usr/local/bin/wisbox-init"}, caps: agentCaps,
		workspace: "/state/id/workspace", files: hostFiles{seccomp: "/run/wisbox/seccomp.json", empty: "/run/wisbox/empty"},
		limits: sandbox.Limits{}.WithDefaults(), userns: userns, ipcBounds: true, labels: map[string]string{labelRoot: "root", labelSandbox: "id"},
	}
}

// TestTheWholeCreateSpec: a change of the isolation is a change of these files.
func TestTheWholeCreateSpec(t *testing.T) {
	for name, userns := range map[string]usernsMode{"rootful": {base: rangeStart}, "rootless": {keepID: true}} {
		t.Run(name, func(t *testing.T) {
			g := goldenContainer(userns).generate()
			for i, l := range g.Rlimits { // what this host allows is not what is asked here
				require.LessOrEqual(t, l.Hard, uint64(2<<30))
				g.Rlimits[i].Soft, g.Rlimits[i].Hard = 0, 0
			}
			got, err := json.MarshalIndent(g, "", " ")
			require.NoError(t, err)
			path := filepath.Join("testdata", "spec-"+name+".json")
			if os.Getenv("UPDATE") != "" {
				require.NoError(t, os.WriteFile(path, append(got, '\n'), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(got))
		})
	}
}

// Before 6.10 no container starts that asks for them.
func TestTheBoundsOfSystemVNeedAKernelThatTakesThem(t *testing.T) {
	for kernel, want := range map[string]bool{
		"6.10.0": true, "6.18.44-fc-v657": true, "7.0": true, "6.9.12": false, "6.1.0-28-amd64": false, "5.15.0-1-generic": false, "": false,
	} {
		info := &hostInfo{}
		info.Host.Kernel = kernel
		require.Equal(t, want, info.boundsIPC(), kernel)
	}
}

func TestNoUlimitIsAboveTheHostsOwn(t *testing.T) {
	c := goldenContainer(usernsMode{})
	c.limits.NoFile = 1 << 40
	var host unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &host))
	for _, l := range c.generate().Rlimits {
		require.Equal(t, l.Soft, l.Hard)
		if l.Type == "nofile" {
			require.LessOrEqual(t, l.Hard, host.Max)
		}
	}
}

func TestTheSeccompProfileRefusesWhatReachesTheKernel(t *testing.T) {
	var p struct {
		DefaultAction string
		Syscalls      []struct {
			Names  []string
			Action string
			Args   []any
		}
	}
	require.NoError(t, json.Unmarshal(seccompProfile, &p))
	require.Equal(t, "SCMP_ACT_ERRNO", p.DefaultAction)
	never := map[string]bool{}
	for _, name := range []string{
		"unshare", "setns", "mount", "fsopen", "open_tree", "move_mount", "pivot_root", "chroot", "bpf", "perf_event_open", "userfaultfd",
		"io_uring_setup", "keyctl", "add_key", "ptrace", "process_vm_writev", "pidfd_getfd", "open_by_handle_at", "init_module", "clone3",
	} {
		never[name] = true
	}
	conditional := map[string]bool{"clone": true, "socket": true, "personality": true, "mknod": true, "mknodat": true}
	for _, rule := range p.Syscalls {
		for _, name := range rule.Names {
			if rule.Action == "SCMP_ACT_ALLOW" {
				require.False(t, never[name], name)
				require.False(t, conditional[name] && len(rule.Args) == 0, name)
			}
		}
	}
}

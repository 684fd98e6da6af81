package podman

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/containers/podman/v5/libpod/define"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

func goldenContainer(userns usernsMode) container {
	return container{
		name: "wisbox-root-id", hostname: "id", image: "localhost/wisbox:1",
		workspace: "/state/id/workspace", files: hostFiles{seccomp: "/run/wisbox/seccomp.json", empty: "/run/wisbox/empty", hosts: "/state/id/hosts", agent: "/state/agent/sum"},
		limits: sandbox.Limits{}.WithDefaults(), userns: userns, ipcBounds: true, labels: map[string]string{labelRoot: "root", labelSandbox: "id"},
	}
}

// TestTheWholeCreateSpec: a change of the isolation is a change of these files.
func TestTheWholeCreateSpec(t *testing.T) {
	for name, userns := range map[string]usernsMode{"rootful": {base: rangeStart}, "rootless": {rootless: true, uids: 65536, gids: 65536}} {
		t.Run(name, func(t *testing.T) {
			g := goldenContainer(userns).generate()
			for i, l := range g.Rlimits { // this host's limits don't matter here
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

// Before 6.10 a container with these settings doesn't start.
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
			Args   []condition
		}
		ArchMap []profileArch
	}
	require.NoError(t, json.Unmarshal(seccompProfile, &p))
	require.NotEmpty(t, p.ArchMap)
	for _, a := range p.ArchMap {
		require.Empty(t, a.SubArchitectures, "the profile is for one ABI: %s", a.Architecture)
	}
	require.Equal(t, "SCMP_ACT_ERRNO", p.DefaultAction)
	never := map[string]bool{}
	for _, name := range []string{
		"unshare", "setns", "mount", "fsopen", "open_tree", "move_mount", "pivot_root", "chroot", "bpf", "perf_event_open", "userfaultfd",
		"io_uring_setup", "keyctl", "add_key", "ptrace", "process_vm_writev", "pidfd_getfd", "open_by_handle_at", "init_module", "clone3",
		"socketcall", "ipc", "syscall", "io_setup", "io_submit", "fanotify_mark", "modify_ldt", "vmsplice",
	} {
		never[name] = true
	}
	conditional := map[string]bool{
		"clone": true, "socket": true, "socketpair": true, "personality": true, "mknod": true, "mknodat": true, "fcntl": true, "ioctl": true,
		"shmctl": true, "shmget": true, "mmap": true, "memfd_create": true,
	}
	for _, rule := range p.Syscalls {
		for _, name := range rule.Names {
			if rule.Action == "SCMP_ACT_ALLOW" {
				require.False(t, never[name], name)
				require.False(t, conditional[name] && len(rule.Args) == 0, name)
				for _, c := range rule.Args { // the kernel ignores the other bits of an int
					require.Equal(t, "SCMP_CMP_MASKED_EQ", c.Op, name)
					require.LessOrEqual(t, c.Value, uint64(math.MaxUint32), name)
				}
			}
		}
	}
}

// TestNothingOfTheHostIsMountedBeyondWhatWasAsked: Podman must report exactly the four mounts.
func TestNothingOfTheHostIsMountedBeyondWhatWasAsked(t *testing.T) {
	c := goldenContainer(usernsMode{})
	mount := func(source, dest string, rw bool, options ...string) define.InspectMount {
		return define.InspectMount{Source: source, Destination: dest, RW: rw, Options: options}
	}
	workspace := mount(c.workspace, sandbox.WorkspaceDir, true, "nosuid", "nodev")
	agent := mount(c.files.agent, "/.wisbox-agent", false, "nosuid", "nodev")
	resolv := mount(c.files.empty, "/etc/resolv.conf", false, "nosuid", "nodev", "noexec")
	hosts := mount(c.files.hosts, "/etc/hosts", false, "nosuid", "nodev", "noexec")
	require.True(t, c.mountsAgree([]define.InspectMount{workspace, agent, resolv, hosts}))
	require.True(t, c.mountsAgree([]define.InspectMount{mount("devpts", ptsDir, true), resolv, hosts, agent, workspace}))
	for name, wrong := range map[string][]define.InspectMount{
		"no agent":             {workspace, resolv, hosts},
		"agent twice":          {workspace, agent, agent, resolv, hosts},
		"agent writable":       {workspace, mount(c.files.agent, "/.wisbox-agent", true, "nosuid", "nodev"), resolv, hosts},
		"agent of set-id":      {workspace, mount(c.files.agent, "/.wisbox-agent", false, "nodev"), resolv, hosts},
		"agent with devices":   {workspace, mount(c.files.agent, "/.wisbox-agent", false, "nosuid"), resolv, hosts},
		"another agent":        {workspace, mount("/state/agent/other", "/.wisbox-agent", false, "nosuid", "nodev"), resolv, hosts},
		"its folder":           {workspace, mount("/state/agent", "/.wisbox-agent", false, "nosuid", "nodev"), resolv, hosts},
		"agent elsewhere":      {workspace, mount(c.files.agent, "/bin/sh", false, "nosuid", "nodev"), resolv, hosts},
		"one more":             {workspace, agent, resolv, hosts, mount("/etc/passwd", "/etc/passwd", false, "nosuid", "nodev")},
		"no hosts":             {workspace, agent, resolv},
		"hosts of the host":    {workspace, agent, resolv, mount("/etc/hosts", "/etc/hosts", false, "nosuid", "nodev")},
		"hosts writable":       {workspace, agent, resolv, mount(c.files.hosts, "/etc/hosts", true, "nosuid", "nodev")},
		"in resolv.conf's way": {workspace, agent, mount("/etc/resolv.conf", "/etc/resolv.conf", false), hosts},
	} {
		require.False(t, c.mountsAgree(wrong), name)
	}
}

func TestAnImageForAnotherMachineIsRefused(t *testing.T) {
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for name, i := range map[string]*image{"architecture": {OS: "linux", Arch: other}, "system": {OS: "windows", Arch: runtime.GOARCH}} {
		err := i.fits("localhost/x:1")
		require.ErrorIs(t, err, sandbox.ErrUnsupported, name)
		require.ErrorContains(t, err, "choose an image for it")
	}
	require.NoError(t, (&image{OS: "linux", Arch: runtime.GOARCH}).fits("x"))
	require.NoError(t, (&image{}).fits("an image without an architecture"))
}

func TestProgramsGetTheImagesVariablesButItsHome(t *testing.T) {
	ours := fixedEnv["PATH"]
	for _, c := range []struct{ image, want []string }{
		{nil, []string{}},
		{[]string{"A=1", "HOME=/root", "B=", "=x", "broken", "N=a\x00b"}, []string{"A=1", "B="}},
		{[]string{"PATH=/opt/x:/usr/bin"}, []string{"PATH=/opt/x:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"}},
		{[]string{"PATH="}, []string{"PATH=" + ours}},
		{[]string{"PATH=" + ours}, []string{"PATH=" + ours}},
	} {
		require.Equal(t, append([]string{"HOME=/var/home/wisbox"}, c.want...), resident.ProgramEnv(c.image))
	}
}

// TestAHomeOfTheUsersOwnIsTheWorkspace, with three more mounts and nothing else.
func TestAHomeOfTheUsersOwnIsTheWorkspace(t *testing.T) {
	c := goldenContainer(usernsMode{})
	without := c.generate()
	c.userHome, c.files.passwd, c.files.group = true, "/run/wisbox/passwd", "/run/wisbox/group"
	with := c.generate()
	var more []specs.Mount
	for _, m := range with.Mounts {
		if !slices.ContainsFunc(without.Mounts, func(o specs.Mount) bool { return o.Destination == m.Destination }) {
			more = append(more, m)
		}
	}
	file := []string{"bind", "private", "ro", "nosuid", "nodev", "noexec"}
	require.Equal(t, []specs.Mount{
		{Destination: "/home/user", Type: "bind", Source: "/state/id/workspace", Options: without.Mounts[0].Options},
		{Destination: "/etc/passwd", Type: "bind", Source: "/run/wisbox/passwd", Options: file},
		{Destination: "/etc/group", Type: "bind", Source: "/run/wisbox/group", Options: file},
	}, more)
	tmpfs := func(m specs.Mount) bool { return m.Destination == sandbox.Home }
	require.True(t, slices.ContainsFunc(without.Mounts, tmpfs))
	require.False(t, slices.ContainsFunc(with.Mounts, tmpfs), "it has another home")
	with.Mounts = without.Mounts
	require.Equal(t, without, with)
}

// TestLowPortsAreASysctlOfTheirOwn: a sandbox without network rules has none.
func TestLowPortsAreASysctlOfTheirOwn(t *testing.T) {
	require.Nil(t, container{}.generate().Sysctl)
	require.Equal(t, map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}, container{lowPorts: true}.generate().Sysctl)
	require.Equal(t, ipcSysctls, container{ipcBounds: true}.generate().Sysctl)
	both := container{ipcBounds: true, lowPorts: true}.generate().Sysctl
	require.Len(t, both, len(ipcSysctls)+1)
	require.NotContains(t, ipcSysctls, "net.ipv4.ip_unprivileged_port_start")
}

// TestUnderGVisorFewProgramsRunAtOnce: its threads count against the limit of processes.
func TestUnderGVisorFewProgramsRunAtOnce(t *testing.T) {
	c := goldenContainer(usernsMode{})
	plain := c.generate().Command
	c.gvisor = true
	require.Equal(t, append(plain, "26"), c.generate().Command)
	c.limits.PIDs = 8
	require.Equal(t, append(plain, "1"), c.generate().Command)
}

package podman

import (
	"math"
	"strconv"
	"syscall"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/specgen"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	storage "go.podman.io/storage/types"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

const (
	runSize   = 1 << 20  // bytes of /run
	secrets   = 1 << 20  // bytes of sandbox.SecretsDir
	shmSize   = 64 << 20 // bytes of /dev/shm, at most a quarter of the memory, to which they count
	cpuPeriod = 100_000  // microseconds

	perEntry   = 8 << 10 // bytes of /tmp for each entry that it may have
	minEntries = 1024    // that each tmpfs may have

	// maxProcs is RLIMIT_NPROC. It counts by user, on old kernels over all
	// containers: it is only there to be finite, the cgroup's pids limit is the one
	// that holds. Podman lowers its own to the least pid_max, 32,768.
	maxProcs = 30_000
)

// agentCaps is what the agent and pid 1 keep, to become uid 1000 and to kill;
// programs have none of it.
var agentCaps = []string{"CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"}

// masked shows nothing inside, beyond what Podman masks anyway: what tells
// about the host's kernel, its start and its hardware.
var masked = []string{
	"/proc/cmdline", "/proc/config.gz", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/kmsg",
	"/proc/modules", "/proc/pagetypeinfo", "/proc/slabinfo", "/proc/softirqs", "/proc/vmallocinfo",
	"/sys/class/dmi", "/sys/devices/virtual/dmi", "/sys/devices/virtual/powercap", "/sys/kernel/vmcoreinfo", "/sys/module",
}

// fixedEnv is all of the environment of pid 1 and the agent.
var fixedEnv = map[string]string{
	"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME": "/tmp",
	"LANG": "C.UTF-8",
}

// reaper is pid 1 where the image brings none. An ignored SIGCHLD survives the
// exec, so the kernel reaps orphans, and sleep installs no handlers that a signal
// from inside could reach. Some shells can't ignore it, hence three ways; the
// last one's wait reaps too.
var reaper = []string{"sh", "-c", `command -v bash >/dev/null && exec bash -c "trap '' CHLD; exec sleep infinity"
command -v python3 >/dev/null && exec python3 -I -S -c "
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execvp('sleep', ['sleep', 'infinity'])"
sleep infinity & wait`}

// container is everything about a container that differs between two of them.
// All else is fixed in generate.
type container struct {
	name      string
	image     string
	init      []string // pid 1
	caps      []string // agentCaps, or none where no agent will run
	workspace string   // host directory
	files     hostFiles
	limits    sandbox.Limits // filled in
	userns    usernsMode
	selinux   bool
	gvisor    bool // the runtime must be gVisor's
	ipcBounds bool // the kernel lets ipcSysctls be set
	labels    map[string]string
}

// generate is the one place where a container's isolation is written down.
func (c container) generate() *specgen.SpecGenerator {
	g := &specgen.SpecGenerator{ContainerHealthCheckConfig: noHealthCheck}
	c.basics(&g.ContainerBasicConfig)
	c.storage(&g.ContainerStorageConfig)
	c.security(&g.ContainerSecurityConfig)
	c.resources(&g.ContainerResourceConfig)
	g.CgroupNS = private()
	g.CgroupsMode = "enabled"
	g.NetNS = specgen.Namespace{NSMode: specgen.NoNetwork}
	if c.ipcBounds {
		g.Sysctl = ipcSysctls
	}
	g.UseImageHosts = ptr(true) // no names and addresses of the host
	return g
}

// noHealthCheck is what a client of Podman sends when there is none: Podman 5.3
// and later refuse an empty destination.
var noHealthCheck = specgen.ContainerHealthCheckConfig{
	HealthLogDestination: define.DefaultHealthCheckLocalDestination,
	HealthMaxLogCount:    define.DefaultHealthMaxLogCount,
	HealthMaxLogSize:     define.DefaultHealthMaxLogSize,
}

func (c container) basics(g *specgen.ContainerBasicConfig) {
	g.Name, g.Labels = c.name, c.labels
	g.Entrypoint, g.Command = c.init[:1], c.init[1:]
	g.Env, g.UnsetEnvAll = fixedEnv, ptr(true)
	g.EnvHost, g.HTTPProxy = ptr(false), ptr(false)
	g.Hostname = "wisbox"
	g.PidNS, g.UtsNS = private(), private()
	g.StopSignal, g.StopTimeout = ptr(syscall.SIGKILL), ptr(uint(0))
	g.RestartPolicy, g.Systemd, g.SdNotifyMode = "no", "false", "ignore"
	g.LogConfiguration = &specgen.LogConfig{Driver: "none"}
	g.Passwd = ptr(false) // keep-id would write the host user's name
	g.Terminal, g.Stdin = ptr(false), ptr(false)
}

func (c container) storage(g *specgen.ContainerStorageConfig) {
	g.Image, g.RawImageName = c.image, c.image
	g.ImageVolumeMode = "ignore"
	g.Init = ptr(false)
	g.IpcNS = private()
	g.WorkDir = "/"
	workspace := []string{"bind", "private", "rw", "nosuid", "nodev"}
	if c.selinux {
		workspace = append(workspace, "Z")
	}
	g.Mounts = []specs.Mount{
		{Destination: sandbox.WorkspaceDir, Type: "bind", Source: c.workspace, Options: workspace},
		{Destination: "/etc/resolv.conf", Type: "bind", Source: c.files.empty, Options: []string{"bind", "private", "ro", "nosuid", "nodev", "noexec"}},
		c.tmpfs("/tmp", c.limits.Tmp, c.limits.Tmp/perEntry, "mode=1777"),
		c.tmpfs("/run", runSize, 0, "mode=0755", "noexec"),
		c.tmpfs(sandbox.SecretsDir, secrets, 0, "mode=1777", "noexec"),
		c.tmpfs("/dev/shm", min(shmSize, c.limits.Memory/4), 0, "mode=1777", "noexec"), // Podman 5's own is read-only where the root is
	}
}

// tmpfs has a bound on its entries too: an empty file is a kilobyte of memory that no
// kill frees. Podman knows no option for it, and hands on what follows a size.
func (c container) tmpfs(dest string, size, entries int64, more ...string) specs.Mount {
	bound := "size=" + strconv.FormatInt(size, 10)
	if !c.gvisor { // its own tmpfs knows no such bound
		bound += ",nr_inodes=" + strconv.FormatInt(max(entries, minEntries), 10)
	}
	options := append([]string{"rw", "nosuid", "nodev", "notmpcopyup", bound}, more...)
	return specs.Mount{Destination: dest, Type: "tmpfs", Source: "tmpfs", Options: options}
}

// ipcSysctls bound what of System V's shared memory, semaphores and queues outlives the
// program that made it, all of which is memory. Before 6.10 the kernel lets nobody set them in a user namespace.
var ipcSysctls = map[string]string{
	"kernel.shm_rmid_forced": "1", // a segment goes with the last process that has it
	"kernel.sem":             "250 32000 100 128",
	"kernel.msgmni":          "64",
}

func (c container) security(g *specgen.ContainerSecurityConfig) {
	g.Privileged = ptr(false)
	g.User = "0:0"
	g.CapDrop, g.CapAdd = []string{"all"}, c.caps
	g.NoNewPrivileges = ptr(true)
	g.SeccompProfilePath = c.files.seccomp
	g.ReadOnlyFilesystem, g.ReadWriteTmpfs = ptr(true), ptr(false)
	g.Umask = "0022"
	g.Mask = masked
	g.UserNS, g.IDMappings = c.userns.spec()
}

func (m usernsMode) spec() (specgen.Namespace, *storage.IDMappingOptions) {
	if m.keepID {
		return specgen.Namespace{NSMode: specgen.KeepID, Value: "uid=" + strconv.Itoa(sandbox.UserID) + ",gid=" + strconv.Itoa(sandbox.GroupID)}, nil
	}
	return private(), &storage.IDMappingOptions{UIDMap: m.idMap(), GIDMap: m.idMap()}
}

func (c container) resources(g *specgen.ContainerResourceConfig) {
	l := c.limits
	g.ResourceLimits = &specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Period: ptr(uint64(cpuPeriod)), Quota: ptr(int64(math.Round(l.CPUs * cpuPeriod)))},
		Memory: &specs.LinuxMemory{Limit: ptr(l.Memory), Swap: ptr(l.Memory)},
		Pids:   &specs.LinuxPids{Limit: l.PIDs},
	}
	g.Rlimits = []specs.POSIXRlimit{
		rlimit("nofile", unix.RLIMIT_NOFILE, l.NoFile),
		rlimit("fsize", unix.RLIMIT_FSIZE, l.FileSize),
		rlimit("core", unix.RLIMIT_CORE, 0),
		rlimit("nproc", unix.RLIMIT_NPROC, maxProcs),
		rlimit("memlock", unix.RLIMIT_MEMLOCK, 8<<20),
		rlimit("msgqueue", unix.RLIMIT_MSGQUEUE, 819_200),
	}
}

// rlimit is never above what this host lets us have.
func rlimit(name string, resource int, want int64) specs.POSIXRlimit {
	v := uint64(capped(resource, want))
	return specs.POSIXRlimit{Type: name, Soft: v, Hard: v}
}

func private() specgen.Namespace { return specgen.Namespace{NSMode: specgen.Private} }

func ptr[T any](v T) *T { return &v }

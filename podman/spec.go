package podman

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/specgen"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	storage "go.podman.io/storage/types"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	runSize   = 1 << 20 // bytes of /run
	secrets   = 1 << 20 // bytes of sandbox.SecretsDir
	cpuPeriod = 100_000 // microseconds

	perSegment = 64 << 10 // bytes of /dev/shm for each
	perEntry   = 8 << 10  // bytes of /tmp and of the home directory for each entry that it may have
	minEntries = 1024     // that each tmpfs may have

	// maxProcs is RLIMIT_NPROC. It counts per user, on old kernels over all containers: it only has to be finite, since
	// the cgroup's pids limit is lower. Podman lowers its own to the smallest pid_max, 32,768.
	maxProcs = 30_000
)

// agentCaps are the capabilities that the agent needs to become uid 1000 and to kill; programs have none.
var agentCaps = []string{"CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"}

// masked lists paths to hide in addition to Podman's own: they describe the host's kernel, its boot and its hardware.
var masked = []string{
	"/proc/cmdline", "/proc/config.gz", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/kmsg",
	"/proc/modules", "/proc/pagetypeinfo", "/proc/slabinfo", "/proc/softirqs", "/proc/vmallocinfo",
	"/sys/class/dmi", "/sys/devices/virtual/dmi", "/sys/devices/virtual/powercap", "/sys/kernel/vmcoreinfo", "/sys/module",
}

// fixedEnv is the agent's whole environment.
var fixedEnv = map[string]string{
	"PATH": resident.DefaultPath,
	"HOME": "/",
	"LANG": "C.UTF-8",
}

// container holds the settings that differ between containers. generate fixes all others.
type container struct {
	name      string
	hostname  string
	image     string
	imageEnv  []string // for programs, never for the agent
	workspace string   // host directory
	files     hostFiles
	limits    sandbox.Limits // complete
	userns    usernsMode
	selinux   bool
	gvisor    bool   // the runtime must be gVisor's
	stacked   bool   // see hostInfo.stacksProfiles
	parent    string // the control group above; empty means Podman's default
	ipcBounds bool   // the kernel lets ipcSysctls be set
	lowPorts  bool
	userHome  bool
	fileTable int64 // maximum number of this machine's open files, except root's
	labels    map[string]string
}

// generate returns the container's spec. It is the only place that defines the isolation.
func (c container) generate() *specgen.SpecGenerator {
	g := &specgen.SpecGenerator{ContainerHealthCheckConfig: noHealthCheck}
	c.basics(&g.ContainerBasicConfig)
	c.storage(&g.ContainerStorageConfig)
	c.security(&g.ContainerSecurityConfig)
	c.resources(&g.ContainerResourceConfig)
	g.CgroupNS = private()
	g.CgroupsMode, g.CgroupParent = "enabled", c.parent
	g.NetNS = specgen.Namespace{NSMode: specgen.NoNetwork}
	g.Sysctl = c.sysctls()
	g.UseImageHosts = new(true) // Podman writes none: ours is mounted
	return g
}

// noHealthCheck is the value that Podman's client sends without a health check: Podman 5.3 and later refuse an empty
// destination.
var noHealthCheck = specgen.ContainerHealthCheckConfig{
	HealthLogDestination: define.DefaultHealthCheckLocalDestination,
	HealthMaxLogCount:    define.DefaultHealthMaxLogCount,
	HealthMaxLogSize:     define.DefaultHealthMaxLogSize,
}

func (c container) basics(g *specgen.ContainerBasicConfig) {
	g.Name, g.Labels = c.name, c.labels
	most := 0
	if c.gvisor {
		most = atOnce(c.limits.PIDs)
	}
	argv := resident.InitArgv(resident.PathOf(resident.ProgramEnv(c.imageEnv)), most)
	g.Entrypoint, g.Command = argv[:1], argv[1:]
	g.Env, g.UnsetEnvAll = fixedEnv, new(true)
	g.EnvHost, g.HTTPProxy = new(false), new(false)
	g.Hostname = c.hostname
	g.PidNS, g.UtsNS = private(), private()
	g.StopSignal, g.StopTimeout = new(syscall.SIGKILL), new(uint(0))
	g.RestartPolicy, g.Systemd, g.SdNotifyMode = "no", "false", "ignore"
	g.LogConfiguration = &specgen.LogConfig{Driver: "none"}
	g.Passwd = new(false)                       // the image's own, or ours is mounted
	g.Terminal, g.Stdin = new(false), new(true) // a pipe: without it, stdin is the host's /dev/null, see hostDevices
}

func (c container) storage(g *specgen.ContainerStorageConfig) {
	g.Image, g.RawImageName = c.image, c.image
	g.ImageVolumeMode = "ignore"
	g.Init = new(false)
	g.IpcNS = private()
	g.WorkDir = "/"
	workspace := []string{"bind", "private", "rw", "nosuid", "nodev"}
	if c.selinux {
		workspace = append(workspace, "Z")
	}
	g.Mounts = []specs.Mount{
		{Destination: sandbox.WorkspaceDir, Type: "bind", Source: c.workspace, Options: workspace},
		{Destination: resident.Path, Type: "bind", Source: c.files.agent, Options: c.readOnly()},
		{Destination: "/etc/resolv.conf", Type: "bind", Source: c.files.empty, Options: c.readOnly("noexec")},
		{Destination: "/etc/hosts", Type: "bind", Source: c.files.hosts, Options: c.readOnly("noexec")},
		c.tmpfs("/tmp", c.limits.Tmp, c.limits.Tmp/perEntry, "mode=1777"),
		c.tmpfs("/run", runSize, 0, "mode=0755", "noexec"),
		c.tmpfs(sandbox.SecretsDir, secrets, 0, "mode=0755", "noexec"),
		c.tmpfs("/dev/shm", c.limits.Shm, max(1024, c.limits.Shm/perSegment), "mode=1777", "noexec"), // Podman 5's own is read-only if the root is
	}
	if c.userHome {
		file := c.readOnly("noexec")
		g.Mounts = append(g.Mounts,
			specs.Mount{Destination: sandbox.UserHome, Type: "bind", Source: c.workspace, Options: workspace},
			specs.Mount{Destination: "/etc/passwd", Type: "bind", Source: c.files.passwd, Options: file},
			specs.Mount{Destination: "/etc/group", Type: "bind", Source: c.files.group, Options: file})
	} else {
		g.Mounts = append(g.Mounts, c.home())
	}
	if !c.gvisor { // its terminals aren't the host's
		g.Mounts = append(g.Mounts, terminals())
	}
}

// readOnly returns the options of a mount of a file, which several containers may have.
func (c container) readOnly(more ...string) []string {
	options := append([]string{"bind", "private", "ro", "nosuid", "nodev"}, more...)
	if c.selinux {
		options = append(options, "z")
	}
	return options
}

// terminals returns the mount of a container's own terminals.
func terminals() specs.Mount {
	return specs.Mount{Destination: ptsDir, Type: "devpts", Source: "devpts", Options: []string{
		"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "max=" + strconv.Itoa(maxPTYs),
	}}
}

// home returns the mount of the programs' home directory, which belongs to them, except in gVisor: it knows no owner of
// a tmpfs beside a size.
func (c container) home() specs.Mount {
	size := c.limits.Home()
	m := c.tmpfs(sandbox.Home, size, size/perEntry)
	if c.gvisor {
		m.Options = append(m.Options, "mode=1777")
		return m
	}
	i := slices.IndexFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "size=") })
	m.Options[i] += fmt.Sprintf(",uid=%d,gid=%d", sandbox.UserID, sandbox.GroupID)
	m.Options = append(m.Options, "mode=0700")
	return m
}

// tmpfs also limits the number of entries: an empty file takes a kilobyte of memory that no kill frees. Podman has no
// option for it, but passes on the text after a size.
func (c container) tmpfs(dest string, size, entries int64, more ...string) specs.Mount {
	bound := "size=" + strconv.FormatInt(size, 10)
	if !c.gvisor { // gVisor's own tmpfs has no such limit
		bound += ",nr_inodes=" + strconv.FormatInt(max(entries, minEntries), 10)
	}
	options := append([]string{"rw", "nosuid", "nodev", "notmpcopyup", bound}, more...)
	return specs.Mount{Destination: dest, Type: "tmpfs", Source: "tmpfs", Options: options}
}

// ipcSysctls bound the memory of System V's shared memory, semaphores and queues, which outlive the program that made
// them. Before 6.10 nobody can set them in a user namespace.
var ipcSysctls = map[string]string{
	"kernel.shm_rmid_forced": "1", // a segment ends with the last process that has it attached
	"kernel.sem":             "250 32000 100 128",
	"kernel.msgmni":          "64",
}

// lowPortSysctl gives programs low ports without a capability: the ports are the sandbox's own.
const lowPortSysctl = "net.ipv4.ip_unprivileged_port_start"

func (c container) sysctls() map[string]string {
	var all map[string]string
	if c.ipcBounds {
		all = ipcSysctls
	}
	if c.lowPorts {
		all = maps.Clone(all)
		if all == nil {
			all = map[string]string{}
		}
		all[lowPortSysctl] = "0"
	}
	return all
}

func (c container) security(g *specgen.ContainerSecurityConfig) {
	g.Privileged = new(false)
	g.User = "0:0"
	g.CapDrop, g.CapAdd = []string{"all"}, agentCaps
	g.NoNewPrivileges = new(!c.stacked)
	g.SeccompProfilePath = c.files.seccomp
	g.ReadOnlyFilesystem, g.ReadWriteTmpfs = new(true), new(false)
	g.Umask = "0022"
	g.Mask = masked
	uids, gids := c.userns.idMaps()
	g.UserNS, g.IDMappings = private(), &storage.IDMappingOptions{UIDMap: uids, GIDMap: gids}
}

func (c container) resources(g *specgen.ContainerResourceConfig) {
	l := c.limits
	g.ResourceLimits = cgroupLimits(l)
	g.Rlimits = []specs.POSIXRlimit{
		rlimit("nofile", unix.RLIMIT_NOFILE, c.noFile()),
		rlimit("fsize", unix.RLIMIT_FSIZE, l.FileSize),
		rlimit("core", unix.RLIMIT_CORE, 0),
		rlimit("nproc", unix.RLIMIT_NPROC, maxProcs),
		rlimit("memlock", unix.RLIMIT_MEMLOCK, 8<<20),
	}
	if !c.gvisor { // gVisor has its own signals and queues
		g.Rlimits = append(g.Rlimits, rlimit("msgqueue", limitQueues, maxQueues), rlimit("sigpending", limitSignals, maxSignals))
	}
}

// rlimit returns a limit that never exceeds this process's own.
func rlimit(name string, resource int, want int64) specs.POSIXRlimit {
	v := uint64(capped(resource, want))
	return specs.POSIXRlimit{Type: name, Soft: v, Hard: v}
}

func private() specgen.Namespace { return specgen.Namespace{NSMode: specgen.Private} }

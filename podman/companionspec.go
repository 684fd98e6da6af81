package podman

import (
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/specgen"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// companionCaps are the capabilities that images of databases use to give their directories to a user
// and to become that user. In the sandbox's user namespace, they apply only to the companion's own files
// and processes.
var companionCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETGID", "CAP_SETUID"}

// companion is a container beside a sandbox's. The differences between the two kinds
// are here; limits and system calls are the same.
type companion struct {
	container

	main  string // the sandbox's container
	env   map[string]string
	dirs  []string
	owner string // of dirs, as options of a tmpfs; "" for root
	log   string // file of its output; "" for Podman's
}

// generate returns the companion's spec: the one place that defines its isolation.
func (c companion) generate() *specgen.SpecGenerator {
	g := &specgen.SpecGenerator{ContainerHealthCheckConfig: noHealthCheck}
	c.basics(&g.ContainerBasicConfig)
	c.storage(&g.ContainerStorageConfig)
	c.security(&g.ContainerSecurityConfig)
	c.resources(&g.ContainerResourceConfig)
	g.CgroupNS = private()
	g.CgroupsMode, g.CgroupParent = "enabled", c.parent
	g.NetNS = specgen.Namespace{NSMode: specgen.FromContainer, Value: c.main}
	g.Sysctl = c.sysctls()
	return g
}

func (c companion) basics(g *specgen.ContainerBasicConfig) {
	g.Name, g.Labels = c.name, c.labels
	g.Env = maps.Clone(c.env) // beside the image's
	g.EnvHost, g.HTTPProxy = new(false), new(false)
	g.Hostname = c.hostname
	g.PidNS, g.UtsNS = private(), private()
	g.StopSignal, g.StopTimeout = new(syscall.SIGKILL), new(uint(0))
	g.RestartPolicy, g.Systemd, g.SdNotifyMode = "no", "false", "ignore"
	g.LogConfiguration = &specgen.LogConfig{Driver: define.KubernetesLogging, Size: logFileSize, Path: c.log}
	g.Passwd = new(false)
	g.Terminal, g.Stdin = new(false), new(false)
}

func (c companion) storage(g *specgen.ContainerStorageConfig) {
	g.Image, g.RawImageName = c.image, c.image
	g.ImageVolumeMode = "ignore"
	g.Init = new(false)
	g.IpcNS = private()
	file := c.readOnly("noexec")
	g.Mounts = []specs.Mount{
		{Destination: "/etc/resolv.conf", Type: "bind", Source: c.files.empty, Options: file},
		{Destination: "/etc/hosts", Type: "bind", Source: c.files.hosts, Options: file},
		terminals(),
		c.tmpfs("/dev/shm", c.limits.Memory/4, 0, "mode=1777", "noexec"),
	}
	for _, dir := range c.writable() {
		g.Mounts = append(g.Mounts, c.copied(dir))
	}
}

// copied returns the mount of a directory in memory that begins with the image's content.
func (c companion) copied(dir string) specs.Mount {
	m := c.tmpfs(dir, c.limits.Memory/2, c.limits.Memory/perEntry)
	for i, option := range m.Options {
		switch {
		case option == "notmpcopyup":
			m.Options[i] = "tmpcopyup"
		case strings.HasPrefix(option, "size=") && slices.Contains(c.dirs, dir):
			m.Options[i] += c.owner
		}
	}
	if dir == "/tmp" || dir == "/var/tmp" {
		m.Options = append(m.Options, "mode=1777") // where the image has none, too
	}
	return m
}

// writable returns the writable directories, without duplicates.
func (c companion) writable() []string {
	dirs := []string{"/run", "/tmp", "/var/tmp"}
	for _, dir := range c.dirs {
		if dir == "/var/run" || strings.HasPrefix(dir, "/var/run/") { // a link to /run
			continue
		}
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return slices.Compact(slices.DeleteFunc(dirs, kernelDir))
}

// kernelDir reports whether a directory is the kernel's.
func kernelDir(dir string) bool {
	for _, taken := range []string{"/proc", "/sys", "/dev"} {
		if dir == "/" || dir == taken || strings.HasPrefix(dir, taken+"/") {
			return true
		}
	}
	return false
}

func (c companion) security(g *specgen.ContainerSecurityConfig) {
	g.Privileged = new(false)
	g.CapDrop, g.CapAdd = []string{"all"}, companionCaps
	g.NoNewPrivileges = new(true)
	if c.stacked { // the service has no agent that could set the flag
		g.ApparmorProfile = "unconfined"
	}
	g.SeccompProfilePath = c.files.seccomp
	g.ReadOnlyFilesystem, g.ReadWriteTmpfs = new(true), new(false)
	g.Umask = "0022"
	g.Mask = masked
	g.UserNS = specgen.Namespace{NSMode: specgen.FromContainer, Value: c.main}
}

// differences lists properties of the container that we did not request.
func (c companion) differences(data *define.InspectContainerData) []string {
	h := data.HostConfig
	caps := slices.Clone(data.BoundingCaps)
	slices.Sort(caps)
	var wrong []string
	expect := func(ok bool, what string) {
		if !ok {
			wrong = append(wrong, what)
		}
	}
	expect(!h.Privileged, "privileged")
	expect(h.NetworkMode == "container:"+c.main, "network")
	expect(h.UsernsMode == "container:"+c.main, "user namespace")
	expect(h.ReadonlyRootfs, "read-only root")
	expect(slices.Equal(caps, companionCaps), "capabilities")
	expect(slices.Contains(h.SecurityOpt, "no-new-privileges"), "no_new_privs")
	expect(h.PidMode == "private" && h.IpcMode != "host" && h.UTSMode != "host", "namespaces")
	expect(len(h.Devices) == 0, "devices")
	for _, m := range data.Mounts {
		file := m.Destination == "/etc/resolv.conf" && m.Source == c.files.empty || m.Destination == "/etc/hosts" && m.Source == c.files.hosts
		expect(file && !m.RW || m.Destination == ptsDir && m.Source == "devpts", "mounts")
	}
	return wrong
}

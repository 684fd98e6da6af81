package kubernetes

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/sandbox"
)

// Names by which other programs find a Pod and its parts.
const (
	sessionLabel = "wisbox.dev/session"
	creationNote = "wisbox.dev/creation" // an annotation: identifies the Pod to a creator that received no answer
	managedLabel = "app.kubernetes.io/managed-by"
	managedBy    = "wisbox"
	passwdNote   = "wisbox.dev/passwd" // annotations: the programs' /etc/passwd
	groupNote    = "wisbox.dev/group"  // and /etc/group, with [PodOptions.UserHome]
	podPrefix    = "wisbox-"

	programs = "programs"
	holder   = "holder"
	binary   = "/usr/local/bin/wisbox"
)

const (
	ctlSize      = 1 << 20   // bytes of the directory with the agent's socket
	secretsSize  = 1 << 20   // bytes of sandbox.SecretsDir
	logSize      = 64 << 20  // bytes of a container's output that the kubelet keeps
	stateExtra   = 128 << 20 // bytes of state beside files and snapshots, including 56 MiB of compiled Python in WebAssembly
	holderMemory = 1 << 30   // bytes
	leastMemory  = 128 << 20 // bytes that a container requests from a node
	leastCPU     = 100       // thousandths of a processor
	holderCPUs   = 1.0

	// diskSlack is the ratio of the files' share to the session's limit. Kubernetes evicts a Pod
	// over its sizeLimit with all files, so a watcher ends the programs at half of the share.
	diskSlack = 2

	endGrace = 1 // seconds
	ttlSlack = time.Minute
)

// shape has all differences between the Pods of two sessions.
type shape struct {
	name, image      string
	pull             corev1.PullPolicy
	cpus             float64
	memory, tmp      int64
	state            int64 // bytes of the files and of the holder's other state
	noFile, fileSize int64
	deadline         int64 // seconds; 0 means never
	runtimeClass     string
	userHome         bool
	creation         string // random; "" in a Pod not created by wisbox
	notes            Notes
}

func shapeFor(s PodOptions) shape {
	l := s.Limits.WithDefaults()
	out := shape{
		name: s.Name, image: s.Image, pull: corev1.PullPolicy(cmp.Or(s.Pull, cluster.PullMissing)), runtimeClass: s.RuntimeClass, userHome: s.UserHome, notes: s.Notes,
		cpus: l.CPUs, memory: l.Memory, tmp: l.Tmp, noFile: l.NoFile, fileSize: l.FileSize,
	}
	out.state = diskSlack*l.Disk + cmp.Or(s.Snapshots, 2*l.Disk) + stateExtra
	if s.TTL > 0 {
		out.deadline = int64((s.TTL + ttlSlack + time.Second - 1) / time.Second)
	}
	return out
}

// generate is the only place that defines the isolation of a session's Pod. It also sets the
// defaults of the API server, so that verify can compare the complete Pod.
func (s shape) generate(namespace string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = podPrefix+s.name, namespace
	pod.Labels = map[string]string{sessionLabel: s.name, managedLabel: managedBy}
	pod.Annotations = s.annotations()
	put(s.notes, pod)
	pod.Spec = corev1.PodSpec{
		Containers:                    []corev1.Container{s.programs(), s.holder()},
		Volumes:                       s.volumes(),
		RestartPolicy:                 corev1.RestartPolicyOnFailure,
		TerminationGracePeriodSeconds: new(int64(endGrace)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		Hostname:                      "wisbox",
		DNSPolicy:                     corev1.DNSNone,
		DNSConfig:                     &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}}, // TEST-NET-1: no server answers there
		SecurityContext: &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			Sysctls:        []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}},
		},
	}
	if s.deadline > 0 {
		pod.Spec.ActiveDeadlineSeconds = &s.deadline
	}
	if s.runtimeClass != "" {
		pod.Spec.RuntimeClassName = &s.runtimeClass
	}
	return pod
}

func (s shape) annotations() map[string]string {
	notes := map[string]string{}
	if s.creation != "" {
		notes[creationNote] = s.creation
	}
	if s.userHome {
		notes[passwdNote], notes[groupNote] = sandbox.UserPasswd, sandbox.UserGroup
	}
	return notes
}

func (s shape) programs() corev1.Container {
	c := s.container(programs, s.command(), "KILL", "SETGID", "SETPCAP", "SETUID")
	c.Resources = resources(s.cpus, s.memory, logSize)
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: "state", MountPath: sandbox.WorkspaceDir, SubPath: "cache/workspace"},
		corev1.VolumeMount{Name: "tmp", MountPath: "/tmp"},
		corev1.VolumeMount{Name: "secrets", MountPath: sandbox.SecretsDir})
	if s.userHome {
		c.VolumeMounts = append(c.VolumeMounts,
			corev1.VolumeMount{Name: "state", MountPath: sandbox.UserHome, SubPath: "cache/workspace"},
			corev1.VolumeMount{Name: "accounts", MountPath: "/etc/passwd", SubPath: "passwd", ReadOnly: true},
			corev1.VolumeMount{Name: "accounts", MountPath: "/etc/group", SubPath: "group", ReadOnly: true})
	} else {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "home", MountPath: sandbox.Home})
	}
	return c
}

// Indexes in command of the limits that Kubernetes lacks.
const (
	noFileAt   = 3
	fileSizeAt = 5
)

func (s shape) command() []string {
	return []string{binary, "__init", "--nofile", strconv.FormatInt(s.noFile, 10), "--fsize", strconv.FormatInt(s.fileSize, 10), "/ctl/agent.sock"}
}

func (s shape) holder() corev1.Container {
	c := s.container(holder, []string{binary, "__pod"}, "CHOWN", "DAC_OVERRIDE", "FOWNER")
	c.Resources = resources(holderCPUs, holderMemory, s.state+logSize)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "state", MountPath: "/state"})
	c.Env = []corev1.EnvVar{
		{Name: "WISBOX_CACHE", Value: "/state/cache"},
		{Name: "XDG_RUNTIME_DIR", Value: "/state/run"},
		{Name: "TMPDIR", Value: "/state/tmp"},
		{Name: "HOME", Value: "/state"},
		{Name: "WISBOX_POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
	}
	return c
}

func (s shape) container(name string, command []string, caps ...corev1.Capability) corev1.Container {
	return corev1.Container{
		Name: name, Image: s.image, ImagePullPolicy: s.pull, Command: command,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)),
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Privileged:               new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: caps},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "ctl", MountPath: "/ctl"}},
	}
}

func (s shape) volumes() []corev1.Volume {
	all := []corev1.Volume{
		volume("ctl", ctlSize, corev1.StorageMediumMemory),
		volume("state", s.state, corev1.StorageMediumDefault),
		volume("tmp", s.tmp, corev1.StorageMediumMemory),
		volume("secrets", secretsSize, corev1.StorageMediumMemory),
	}
	if s.userHome {
		all = append(all, accounts())
	} else {
		all = append(all, volume("home", sandbox.Limits{Memory: s.memory, Tmp: s.tmp}.Home(), corev1.StorageMediumMemory))
	}
	return all
}

// accounts returns a volume with two files from the Pod's annotations. The root is read-only,
// and a separate object would need its own creation and removal.
func accounts() corev1.Volume {
	file := func(name, note string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + note + "']"}}
	}
	return corev1.Volume{Name: "accounts", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{file("passwd", passwdNote), file("group", groupNote)}, DefaultMode: new(int32(0o644)),
	}}}
}

func volume(name string, size int64, medium corev1.StorageMedium) corev1.Volume {
	dir := &corev1.EmptyDirVolumeSource{Medium: medium, SizeLimit: bytesOf(size)}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: dir}}
}

// resources returns limits in processors and bytes. The requests are lower, because most
// sessions need less.
func resources(cpus float64, memory, disk int64) corev1.ResourceRequirements {
	milli := max(int64(math.Round(cpus*1000)), 1)
	list := func(milli, memory, disk int64) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU:              *resource.NewMilliQuantity(milli, resource.DecimalSI),
			corev1.ResourceMemory:           *bytesOf(memory),
			corev1.ResourceEphemeralStorage: *bytesOf(disk),
		}
	}
	return corev1.ResourceRequirements{
		Limits:   list(milli, memory, disk),
		Requests: list(min(milli, leastCPU), min(memory, leastMemory), min(disk, logSize)),
	}
}

func bytesOf(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// shapeOf reads back the arguments of generate. The result bounds nothing by itself: verify
// compares the complete Pod with the output of generate.
func shapeOf(pod *corev1.Pod) shape {
	s := shape{name: pod.Labels[sessionLabel], creation: pod.Annotations[creationNote], notes: notesOf(pod)}
	if d := pod.Spec.ActiveDeadlineSeconds; d != nil {
		s.deadline = *d
	}
	if c := pod.Spec.RuntimeClassName; c != nil {
		s.runtimeClass = *c
	}
	for _, c := range pod.Spec.Containers {
		if c.Name != programs || len(c.Command) != len(s.command()) {
			continue
		}
		s.image, s.pull = c.Image, c.ImagePullPolicy
		s.userHome = slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == sandbox.UserHome })
		s.cpus = float64(c.Resources.Limits.Cpu().MilliValue()) / 1000
		s.memory = c.Resources.Limits.Memory().Value()
		s.noFile, _ = strconv.ParseInt(c.Command[noFileAt], 10, 64)     // on an error,
		s.fileSize, _ = strconv.ParseInt(c.Command[fileSizeAt], 10, 64) // verify finds a difference
	}
	for _, v := range pod.Spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil {
			continue
		}
		switch v.Name {
		case "state":
			s.state = v.EmptyDir.SizeLimit.Value()
		case "tmp":
			s.tmp = v.EmptyDir.SizeLimit.Value()
		}
	}
	return s
}

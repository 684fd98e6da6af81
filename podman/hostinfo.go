package podman

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.podman.io/storage/pkg/idtools"
)

// hostInfo is the part of `podman info` that is used here. It is a separate struct because the types of
// other fields change between versions.
type hostInfo struct {
	Host struct {
		Arch           string   `json:"arch"`
		CgroupManager  string   `json:"cgroupManager"`
		CgroupsVersion string   `json:"cgroupVersion"` // "v1" or "v2"
		Kernel         string   `json:"kernel"`
		IDMappings     struct { // of the namespace in which a rootless service runs
			UIDs []idtools.IDMap `json:"uidmap"`
			GIDs []idtools.IDMap `json:"gidmap"`
		} `json:"idMappings"`
		OCIRuntime struct {
			Name    string `json:"name"`
			Package string `json:"package"`
			Path    string `json:"path"`
			Version string `json:"version"`
		} `json:"ociRuntime"`
		Security struct {
			Rootless       bool `json:"rootless"`
			SELinuxEnabled bool `json:"selinuxEnabled"`
		} `json:"security"`
	} `json:"host"`
	Store struct {
		GraphDriverName string         `json:"graphDriverName"`
		GraphOptions    map[string]any `json:"graphOptions"`
		GraphRoot       string         `json:"graphRoot"`
	} `json:"store"`
	Version struct {
		Version string `json:"Version"`
	} `json:"version"`
}

// runtimeName is "runc 1.1.5".
func (i *hostInfo) runtimeName() string {
	first, _, _ := strings.Cut(i.Host.OCIRuntime.Version, "\n")
	first = strings.Replace(first, " version ", " ", 1)
	if first == "" {
		return i.Host.OCIRuntime.Name
	}
	return first
}

// changesDevices reports whether the runtime gives a device node of the host, if it is a container's standard stream, to the
// container's user: crun before 1.24 (its issue 1845) and runc 1.1.3 and 1.1.4 (its issue 3674). Rootless it can't.
func (i *hostInfo) changesDevices() bool {
	var major, minor, patch int
	name := i.runtimeName()
	if n, _ := fmt.Sscanf(name, "crun %d.%d", &major, &minor); n == 2 {
		return !i.Host.Security.Rootless && (major < 1 || major == 1 && minor < 24)
	}
	n, _ := fmt.Sscanf(name, "runc %d.%d.%d", &major, &minor, &patch)
	return !i.Host.Security.Rootless && n == 3 && major == 1 && minor == 1 && (patch == 3 || patch == 4)
}

// runtimeFeatures are those that crun lists, such as +SECCOMP.
func (i *hostInfo) runtimeFeatures() []string {
	return slices.DeleteFunc(strings.Fields(i.Host.OCIRuntime.Version), func(word string) bool { return !strings.HasPrefix(word, "+") })
}

// boundsIPC reports whether ipcSysctls can be set on this kernel.
func (i *hostInfo) boundsIPC() bool { return atLeast(i.Host.Kernel, 6, 10) }

// atLeast compares the first two numbers of a version.
func atLeast(version string, wantMajor, wantMinor int) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && (major > wantMajor || major == wantMajor && minor >= wantMinor)
}

func (e *engine) readInfo(ctx context.Context) error {
	err := e.do(ctx, request{method: http.MethodGet, path: "/info", out: &e.info, doing: "describe itself"})
	return explain(ctx, "describe the host", err)
}

// Service describes the Podman service in use, for diagnosis.
type Service struct {
	From           string   `json:"from"` // which of the ways it was found by
	Own            bool     `json:"own"`  // wisbox's private service
	URL            string   `json:"url"`
	Version        string   `json:"version"`
	Rootless       bool     `json:"rootless"`
	Runtime        string   `json:"runtime"`
	RuntimePackage string   `json:"runtime_package"`            // as its distribution names it, or Unknown
	Features       []string `json:"runtime_features,omitempty"` // of the runtime, as crun lists them
	CgroupVersion  string   `json:"cgroup_version"`
	CgroupManager  string   `json:"cgroup_manager"`
	StorageDriver  string   `json:"storage_driver"`
	Kernel         string   `json:"kernel"`
	// ChangesDevices says that the runtime may change device nodes of the host, which wisbox puts back.
	ChangesDevices bool `json:"changes_devices,omitempty"`
	SELinuxEnabled bool `json:"selinux,omitempty"`
}

// Service finds Podman, or starts the private service, and describes it. The URL is a host path, which
// isn't for agents.
func (b *Backend) Service(ctx context.Context) (Service, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return Service{}, err
	}
	h := e.info.Host
	return Service{
		From: e.from, Own: e.own, URL: e.conn.URI.Redacted(), Version: e.info.Version.Version,
		Rootless: h.Security.Rootless, Runtime: e.info.runtimeName(), RuntimePackage: h.OCIRuntime.Package, Features: e.info.runtimeFeatures(),
		CgroupVersion: h.CgroupsVersion, CgroupManager: h.CgroupManager,
		StorageDriver: e.info.Store.GraphDriverName, Kernel: h.Kernel, ChangesDevices: e.info.changesDevices(), SELinuxEnabled: h.Security.SELinuxEnabled,
	}, nil
}

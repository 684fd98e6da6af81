package podman

import (
	"os"
	"strings"
)

// Where the kernel says whether AppArmor is on, and which profiles are loaded. Tests change them.
var (
	appArmorOn       = "/sys/module/apparmor/parameters/enabled"
	appArmorProfiles = "/sys/kernel/security/apparmor/profiles"
)

// stacksProfiles reports whether the runtime has an AppArmor profile of its own, as Debian 13 ships for crun and runc.
// For a container with no_new_privs it can then only stack the container's profile on its own, and under that label no
// program may signal another: Podman's profile allows signals to itself alone. So no container gets the flag there;
// the agent sets it for itself and all programs. Rootless Podman uses no profiles.
func (i *hostInfo) stacksProfiles() bool {
	if i.Host.Security.Rootless {
		return false
	}
	on, err := os.ReadFile(appArmorOn)
	if err != nil || !strings.HasPrefix(string(on), "Y") {
		return false
	}
	profiles, err := os.ReadFile(appArmorProfiles)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(profiles)) {
		if name, _, _ := strings.Cut(line, " ("); name == i.Host.OCIRuntime.Name {
			return true
		}
	}
	return false
}

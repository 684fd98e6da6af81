package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/rundir"
)

// unenforced returns the limits that this machine doesn't enforce for a user without root, and the reason, as far as
// the cgroups below root say so. bus reports whether the user's systemd, if there is one, can be reached. What a container
// really gets is read back once it runs, see wisbox inspect.
func unenforced(root string, uid int, bus bool) (limits []string, why string) {
	if uid == 0 {
		return nil, ""
	}
	all := []string{"memory", "cpu", "pids"}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		return all, "rootless Podman needs cgroup v2, and this machine has v1"
	}
	if !bus {
		return all, "there is no session bus, by which systemd would give your containers cgroups with limits"
	}
	raw, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("user.slice/user-%d.slice/user@%[1]d.service/cgroup.controllers", uid)))
	if err != nil {
		return nil, "" // another manager than systemd
	}
	given := strings.Fields(string(raw))
	lacks := slices.DeleteFunc(all, func(name string) bool { return slices.Contains(given, name) })
	return lacks, "systemd doesn't delegate these controllers to this user"
}

// sayUnenforced prints one line if a new session's programs run without limits of memory, processor or processes.
func (a *app) sayUnenforced() {
	if a.far != "" || a.url != "" || os.Getenv("PODMAN_BASE_URL") != "" || a.json || a.pod {
		return // another machine's, or a service of somebody else
	}
	_, err := os.Stat("/run/systemd/system")
	bus := err != nil || rundir.Bus(rundir.Login(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	lacks, why := unenforced("/sys/fs/cgroup", os.Geteuid(), bus)
	if len(lacks) > 0 {
		fmt.Fprintf(a.err, "wisbox: warning: no limit of %s is enforced here: %s; see wisbox doctor, and --strict, which refuses that\n", strings.Join(lacks, ", "), why)
	}
}

package doctor

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

func (e *examination) podman() Line {
	s := e.service
	mode := "rootful"
	if s.Rootless {
		mode = "rootless"
	}
	l := Line{"podman", OK, fmt.Sprintf("%s, %s, by %s", s.Version, mode, s.From), ""}
	if v := parseVersion(s.Version); v.known() && v.before(4, 3, 0) {
		l.Status, l.Fix = Broken, "update Podman to 4.3 or later"
	}
	return l
}

// rootless checks the requirements of rootless Podman for the user who runs us, even through sudo.
func (e *examination) rootless(ctx context.Context) []Line {
	if patient().Uid == "0" {
		return nil
	}
	return []Line{
		e.helpers(),
		e.check(ctx, func() Line { return e.subordinate("/etc/subuid") }),
		e.check(ctx, func() Line { return e.subordinate("/etc/subgid") }),
		e.check(ctx, e.namespaces),
	}
}

func (e *examination) helpers() Line {
	for _, name := range []string{"newuidmap", "newgidmap"} {
		if !e.onPath(name) {
			return Line{"newuidmap", Broken, name + " is not there", "install it: Debian and Ubuntu `apt-get install uidmap`, Fedora `dnf install shadow-utils`"}
		}
	}
	return Line{"newuidmap", OK, "found", ""}
}

func (e *examination) onPath(name string) bool {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin", "/bin", "/usr/sbin", "/sbin")
	for _, dir := range dirs {
		if info, err := os.Stat(filepath.Join(e.opts.Root, dir, name)); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// fewIDs is the minimum for an image: programs are user 1000, nobody is 65534.
const fewIDs = 65536

// subordinate looks for the user's range of ids in a file.
func (e *examination) subordinate(path string) Line {
	name := strings.TrimPrefix(path, "/etc/")
	who := patient()
	fix := fmt.Sprintf("give yourself a range, as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s", who.Username)
	raw, err := os.ReadFile(filepath.Join(e.opts.Root, path))
	if err != nil {
		return Line{name, Broken, path + " can't be read", fix}
	}
	switch n := rangeOf(string(raw), who); {
	case n == 0:
		return Line{name, Broken, "no range for " + who.Username, fix}
	case n < fewIDs:
		return Line{name, Broken, fmt.Sprintf("a range of %d ids; %d are needed", n, fewIDs), fix}
	default:
		return Line{name, OK, fmt.Sprintf("%d ids", n), ""}
	}
}

// patient returns the user who would run rootless Podman.
func patient() *user.User {
	if name := os.Getenv("SUDO_USER"); os.Geteuid() == 0 && name != "" {
		if u, err := user.Lookup(name); err == nil {
			return u
		}
	}
	if u, err := user.Current(); err == nil {
		return u
	}
	id := strconv.Itoa(os.Getuid())
	return &user.User{Uid: id, Username: id}
}

// rangeOf returns the number of ids that a file of subordinate ids gives to a user, by name or by
// number.
func rangeOf(file string, who *user.User) (sum int64) {
	in := bufio.NewScanner(strings.NewReader(file))
	for in.Scan() {
		f := strings.Split(strings.TrimSpace(in.Text()), ":")
		if len(f) != 3 || f[0] != who.Username && f[0] != who.Uid {
			continue
		}
		if n, err := strconv.ParseInt(f[2], 10, 64); err == nil && n > 0 {
			sum += n
		}
	}
	return sum
}

// switches are settings by which distributions forbid user namespaces.
var switches = []struct{ file, forbids, allows string }{
	{"user/max_user_namespaces", "0", "15000"},
	{"kernel/unprivileged_userns_clone", "0", "1"},
	{"kernel/apparmor_restrict_unprivileged_userns", "1", "0"},
}

func (e *examination) namespaces() Line {
	for _, s := range switches {
		raw, err := os.ReadFile(filepath.Join(e.opts.Root, "proc/sys", s.file))
		if err == nil && strings.TrimSpace(string(raw)) == s.forbids {
			fix := "allow them, as root: sysctl " + strings.ReplaceAll(s.file, "/", ".") + "=" + s.allows
			return Line{"user namespaces", Broken, "/proc/sys/" + s.file + " is " + s.forbids, fix}
		}
	}
	return Line{"user namespaces", OK, "allowed", ""}
}

func (e *examination) storage() Line {
	if driver := e.service.StorageDriver; driver == "vfs" {
		return Line{"storage", NotEnforced, "driver vfs: a copy of the image for every container, slow and large", "use the driver overlay: set driver = \"overlay\" in ~/.config/containers/storage.conf, then podman system reset (it removes your containers and images)"}
	}
	return Line{"storage", OK, "driver " + e.service.StorageDriver, ""}
}

// cgroup reports which limits can be expected; experiments check them.
func (e *examination) cgroup() Line {
	s := e.service
	l := Line{"cgroup", OK, fmt.Sprintf("%s, managed by %s", s.CgroupVersion, s.CgroupManager), ""}
	if !s.Rootless {
		return l
	}
	if s.CgroupVersion == "v1" {
		l.Status, l.Fix = NotEnforced, cgroupV1Fix
		l.Detail += ": a user without rights can set no limit there"
		return l
	}
	if e.withoutBus() {
		l.Status, l.Fix = NotEnforced, busFix
		l.Detail += ": you have no session bus here, by which systemd would give your programs cgroups with limits"
		return l
	}
	if missing := e.undelegated(); len(missing) > 0 {
		l.Status, l.Fix = NotEnforced, delegateFix
		l.Detail += ": not delegated to you: " + strings.Join(missing, ", ")
	}
	return l
}

const (
	cgroupV1Fix = "boot with cgroup v2 (kernel parameter systemd.unified_cgroup_hierarchy=1), or run Podman as root"
	delegateFix = "delegate them, as root: systemctl edit user@.service, with the lines [Service] and Delegate=cpu cpuset io memory pids, then log in again"
	busFix      = "log in by ssh or at a console, not by su or sudo; for a user who doesn't log in, run as root: loginctl enable-linger USER; the bus is in the package dbus-user-session of Debian and Ubuntu"
)

// withoutBus reports whether Podman of a user makes cgroups by itself on a machine with systemd, which lets it make none.
func (e *examination) withoutBus() bool {
	return e.exists("run/systemd/system") && e.service.Rootless && e.service.CgroupManager == "cgroupfs"
}

// withoutLogin reports whether systemd has no runtime directory for this user, without which Podman doesn't start if it
// had one before: its storage keeps the path.
func (e *examination) withoutLogin() bool {
	uid := patient().Uid
	return uid != "0" && e.exists("run/systemd/system") && !e.exists("run/user/"+uid)
}

func (e *examination) exists(path string) bool {
	_, err := os.Stat(filepath.Join(e.opts.Root, path))
	return err == nil
}

// undelegated returns the controllers that the user's own cgroups lack.
func (e *examination) undelegated() (missing []string) {
	uid := strconv.Itoa(os.Getuid())
	path := filepath.Join(e.opts.Root, "sys/fs/cgroup/user.slice/user-"+uid+".slice/user@"+uid+".service/cgroup.controllers")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil // unknown without systemd: the experiment decides
	}
	has := " " + strings.TrimSpace(string(raw)) + " "
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !strings.Contains(has, " "+c+" ") {
			missing = append(missing, c)
		}
	}
	return missing
}
